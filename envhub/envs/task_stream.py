"""An endless, repeatable stream of tasks from a task set's split."""

import hashlib

import numpy as np

from envhub.envs.tasks import Task, TaskSet


class TaskStream:
    """The task at every place from 0, the same for the same split and seed.

    A finite split is shuffled anew in each epoch. An endless one is read from a place that the seed decides. Without a task set
    tasks are empty, and the environment draws its own from the episode's seed.
    """

    def __init__(self, tasks: TaskSet | None, split: str, seed: int) -> None:
        """Read `split` of `tasks`. Raises ConfigError for an unknown split."""
        self._tasks, self._split, self._seed = tasks, split, seed
        self.size = None if tasks is None else tasks.size(split)
        self._offset = start_of(split, seed)
        self._epoch = -1
        self._order = np.arange(0)

    def at(self, place: int) -> Task:
        """The task at a place."""
        if self._tasks is None:
            return Task(hashlib.sha256(f"{self._split}/{self._seed}/{place}".encode()).hexdigest()[:16], {})
        if self.size is None:
            return self._tasks.get(self._split, self._offset + place)
        epoch, within = divmod(place, self.size)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self._seed, epoch]).permutation(self.size)
            self._epoch = epoch
        return self._tasks.get(self._split, int(self._order[within]))


def start_of(split: str, seed: int) -> int:
    """Where a stream begins in an endless split, 32 bits."""
    return int.from_bytes(hashlib.blake2b(f"{split}/{seed}".encode(), digest_size=4).digest(), "little")
