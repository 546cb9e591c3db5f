"""Views of task sets: the first so many, the shuffled, the chosen. Each is a task set again and reads only what it must."""

from collections.abc import Callable

import numpy as np

from envhub.envs.tasks import Task, TaskSet, check_split
from envhub.errors import ConfigError

SEARCHED = 100_000


class Taken:
    """The first `count` tasks of each split."""

    def __init__(self, tasks: TaskSet, count: int) -> None:
        """Look at `tasks`. Raises ConfigError if `count` is not positive."""
        if count < 1:
            raise ConfigError(f"take {count} tasks", mend="take at least one")
        self._tasks, self._count = tasks, count
        self.splits = tasks.splits

    def size(self, split: str) -> int:
        """How many tasks the split has."""
        size = self._tasks.size(split)
        return self._count if size is None else min(size, self._count)

    def get(self, split: str, index: int) -> Task:
        """The task at a place."""
        if not 0 <= index < self.size(split):
            raise IndexError(index)
        return self._tasks.get(split, index)


class Shuffled:
    """The tasks of each finite split in an order that a seed decides. An endless split cannot be shuffled: take some first."""

    def __init__(self, tasks: TaskSet, seed: int) -> None:
        """Look at `tasks`. Raises ConfigError if a split is endless."""
        endless = [split for split in tasks.splits if tasks.size(split) is None]
        if endless:
            raise ConfigError(f"{', '.join(endless)} cannot be shuffled: endless", mend="take some first")
        self._tasks, self._seed = tasks, seed
        self.splits = tasks.splits
        self._orders = {
            split: np.random.default_rng([seed, place]).permutation(tasks.size(split) or 0)
            for place, split in enumerate(self.splits)
        }

    def size(self, split: str) -> int:
        """How many tasks the split has."""
        check_split(split, self.splits)
        return len(self._orders[split])

    def get(self, split: str, index: int) -> Task:
        """The task at a place."""
        if not 0 <= index < self.size(split):
            raise IndexError(index)
        return self._tasks.get(split, int(self._orders[split][index]))


class Chosen:
    """The tasks that a predicate keeps, in order; found as far as they are asked for.

    A finite split is read through once when its size is asked for. An endless one stays endless.
    """

    def __init__(self, tasks: TaskSet, keep: Callable[[Task], bool]) -> None:
        """Look at `tasks`; `keep` must always answer the same."""
        self._tasks, self._keep = tasks, keep
        self.splits = tasks.splits
        self._found: dict[str, list[int]] = {split: [] for split in self.splits}
        self._read: dict[str, int] = dict.fromkeys(self.splits, 0)

    def size(self, split: str) -> int | None:
        """How many tasks the split has; None if endless."""
        size = self._tasks.size(split)
        if size is None:
            return None
        while self._read[split] < size:
            self._read_one(split)
        return len(self._found[split])

    def get(self, split: str, index: int) -> Task:
        """The task at a place. Raises ConfigError if 100,000 tasks in a row are not kept."""
        check_split(split, self.splits)
        size, found, since = self._tasks.size(split), self._found[split], 0
        while len(found) <= index:
            if size is not None and self._read[split] >= size:
                raise IndexError(index)
            since = 0 if self._read_one(split) else since + 1
            if since >= SEARCHED:
                raise ConfigError(f"no task of {split} among {SEARCHED:,} is kept", mend="loosen the filter")
        return self._tasks.get(split, found[index])

    def _read_one(self, split: str) -> bool:
        place = self._read[split]
        self._read[split] = place + 1
        kept = self._keep(self._tasks.get(split, place))
        if kept:
            self._found[split].append(place)
        return kept
