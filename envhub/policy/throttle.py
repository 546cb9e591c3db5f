"""How many episodes an engine serves, found by trying: more while nobody waits, fewer when its cache or its rows are pressed.

An engine that serves more episodes than its cache holds computes every prompt anew; with hundreds of turns this costs several
times more than it wins, and adding episodes then makes everything slower.
"""

import heapq
from bisect import insort
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from envhub.policy.core import Load

LOOK_S = 1.0  # between two looks at an engine
START = 8
WAITING = 0.25  # turns that wait inside the engine, over those in progress, beyond which it is pressed
EVICTED = 0.05  # prompt tokens lost from its cache over those computed, beyond which it is pressed
KEEP = 0.8  # of what it serves, after pressure
GROWTH = 32  # one more in so many, once pressure has been met; before that, twice as many

Turn = TypeVar("Turn")


@dataclass(slots=True)
class Throttle:
    """Additive increase, multiplicative decrease, with a doubling start (as TCP's, RFC 5681). Pure and deterministic.

    After a cut one look is passed over, until the cut has shown.
    """

    limit: int = START
    _starting: bool = True
    _cut: bool = False

    def observe(self, load: Load, served: int) -> int:
        """Look at an engine, and give the new limit, 1 or more.

        Args:
            load: its counts of tokens are those since the last look.
            served: episodes that have the engine as their home.
        """
        pressed = load.waiting > WAITING * load.running or load.evicted > EVICTED * load.computed
        if self._cut:
            self._cut = False
        elif pressed:
            self._starting, self._cut = False, True
            self.limit = max(1, int(min(self.limit, served) * KEEP))
        elif served >= self.limit:
            self.limit += self.limit if self._starting else max(1, self.limit // GROWTH)
        return self.limit


@dataclass(slots=True)
class Gate(Generic[Turn]):
    """Lets the oldest `limit` episodes of an engine take their turns; the turns of younger ones wait.

    So a lower limit acts at once, what is begun is ended first, and nobody starves: everybody becomes the oldest.
    """

    limit: int = START
    _ages: list[int] = field(default_factory=list)  # of the episodes, sorted
    _parked: list[tuple[int, Turn]] = field(default_factory=list)  # a heap

    def __len__(self) -> int:
        return len(self._ages)

    @property
    def parked(self) -> int:
        """Turns that wait."""
        return len(self._parked)

    def enter(self, age: int) -> None:
        """An episode makes the engine its home. `age` is its number in order of beginning, and names it."""
        insort(self._ages, age)

    def leave(self, age: int) -> list[Turn]:
        """An episode leaves, and its waiting turn is forgotten. Returns turns that may go now."""
        self._ages.remove(age)
        if any(parked == age for parked, _ in self._parked):
            self._parked = [each for each in self._parked if each[0] != age]
            heapq.heapify(self._parked)
        return self._open()

    def ask(self, age: int, turn: Turn) -> bool:
        """Whether the episode's turn may go now; otherwise it waits here."""
        if self._allows(age):
            return True
        heapq.heappush(self._parked, (age, turn))
        return False

    def resize(self, limit: int) -> list[Turn]:
        """Serve so many from now on. Returns turns that may go now."""
        self.limit = limit
        return self._open()

    def _allows(self, age: int) -> bool:
        return len(self._ages) <= self.limit or age <= self._ages[self.limit - 1]

    def _open(self) -> list[Turn]:
        freed: list[Turn] = []
        while self._parked and self._allows(self._parked[0][0]):
            freed.append(heapq.heappop(self._parked)[1])
        return freed
