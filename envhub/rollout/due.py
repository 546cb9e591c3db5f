"""What comes due in the order in which it began, and how long things usually take."""

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
WINDOW = 256  # durations that are remembered
ENOUGH = 32  # of them, before anything is said; and between two looks
SHARE = 0.95


class Line(Generic[T]):
    """Things in the order they began; those that are over are forgotten when they come to the front. O(1) each, amortised."""

    def __init__(self, going: Callable[[T], bool]) -> None:
        """`going` says whether a thing still matters."""
        self._going = going
        self._line: deque[T] = deque()

    def add(self, thing: T) -> None:
        """A thing has begun, no earlier than any before."""
        self._line.append(thing)

    def first(self) -> T | None:
        """The one that began first of those still going."""
        while self._line and not self._going(self._line[0]):
            self._line.popleft()
        return self._line[0] if self._line else None

    def skip(self) -> None:
        """Forget the first."""
        self._line.popleft()


class Usual:
    """The 95th percentile of the last durations."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._last: deque[float] = deque(maxlen=WINDOW)
        self._since = 0
        self.seconds: float | None = None

    def add(self, seconds: float) -> None:
        """One more has ended."""
        self._last.append(seconds)
        self._since += 1
        if self._since >= ENOUGH:
            self._since = 0
            self.seconds = sorted(self._last)[int(SHARE * len(self._last))]
