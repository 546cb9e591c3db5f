"""Groups in play, and the order in which places of the task stream are played."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from envhub.rollout.leases import Lease, Outcome


@dataclass(slots=True, eq=False)
class Group:
    """A group that is being played."""

    id: str
    index: int
    missing: set[int]
    done: dict[int, tuple[str, Outcome]] = field(default_factory=dict)
    playing: dict[str, Lease] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)  # by member; those of an earlier process do not count
    hedged: Counter[int] = field(default_factory=Counter)  # twins given, by member
    started_s: float | None = None  # when its first member was; a group that waits for a slot does not age

    def plays(self, member: int) -> list[Lease]:
        """The leases on one member: one, more if it has twins."""
        return [lease for lease in self.playing.values() if lease.member == member]


LEVELS = 3


class Places:
    """Which place of the task stream is played next: what was put off first, then new ones.

    Places that were too slow for a round wait for a round of their own kind: those of new tasks for one of level 1, those that
    were too slow for that for one of level 2, and so on; the last level waits for everybody.
    """

    def __init__(self, next_index: int, backlog: Sequence[int], *, round_size: int, extra: int) -> None:
        """Places before `next_index` that were never resolved come first. A round plays `extra` beyond its `round_size`."""
        self._next, self._round_size, self._extra = next_index, round_size, extra
        self._backlog = deque(sorted(backlog))
        self._slow: list[deque[int]] = [deque() for _ in range(LEVELS)]
        self._level = 0
        self._closing = False

    @property
    def first_new(self) -> int:
        """The next place that nobody has played."""
        return self._next

    @property
    def extra(self) -> int:
        """How many groups this round plays beyond those that are trained on."""
        return 0 if self._closing or self._level == LEVELS else self._extra

    def begin_round(self, left: float) -> None:
        """Choose what the next round plays; `left` groups will be trained on in all.

        A level's turn comes when it fills a round. When no more is left than what waits, nothing is put off any more.
        """
        waiting = sum(map(len, self._slow))
        self._closing = waiting + self._extra > left - self._round_size
        full = [n for n, slow in enumerate(self._slow, 1) if len(slow) >= self._round_size + (self._extra if n < LEVELS else 0)]
        self._level = 0 if self._closing else max(full, default=0)

    def next(self) -> int:
        """Hand out a place."""
        levels = self._slow[::-1] if self._closing else self._slow[self._level - 1 : self._level] if self._level else []
        for slow in levels:
            if slow:
                return slow.popleft()
        if self._backlog:
            index = self._backlog.popleft()
        else:
            index, self._next = self._next, self._next + 1
        self._next = max(self._next, index + 1)
        return index

    def give_back(self, slow: Iterable[int], others: Iterable[int]) -> None:
        """Places to be played again: those that were too slow for this round in a later one of their own kind."""
        if self._extra:
            self._slow[min(self._level, LEVELS - 1)].extend(slow)
        else:
            others = [*slow, *others]
        self._backlog = deque(sorted([*self._backlog, *others]))

    def waiting(self) -> set[int]:
        """All places that were handed back, or never resolved before."""
        return {*self._backlog, *(index for slow in self._slow for index in slow)}
