"""Tasks: lazy, possibly endless sets of problems with splits that share no task."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from envhub.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. `data` is plain JSON and goes to `Env.reset(options={"task": data})`; `id` is its content hash."""

    id: str
    data: Mapping[str, Any]

    @staticmethod
    def of(data: Mapping[str, Any]) -> "Task":
        """The task with this content."""
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return Task(hashlib.sha256(text.encode()).hexdigest()[:16], data)


class TaskSet(Protocol):
    """Tasks by split and place. The same (split, index) always gives the same task."""

    def size(self, split: str) -> int | None:
        """How many tasks the split has; None if endless. Raises ConfigError for an unknown split."""
        ...

    def get(self, split: str, index: int) -> Task:
        """The task at a place, from 0."""
        ...

    @property
    def splits(self) -> tuple[str, ...]: ...


class ListTasks:
    """A finite task set from lists."""

    def __init__(self, splits: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Take each split's tasks as plain JSON objects."""
        self._splits = {name: [Task.of(data) for data in rows] for name, rows in splits.items()}

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self._splits)

    def size(self, split: str) -> int:
        """How many tasks the split has."""
        check_split(split, self.splits)
        return len(self._splits[split])

    def get(self, split: str, index: int) -> Task:
        """The task at a place."""
        return self._splits[split][index]


class GeneratedTasks:
    """An endless task set from a generator of candidates; a task's content decides its split, so splits share no task.

    80 % of all contents are "train", 10 % "validation", 10 % "test". A small family of tasks repeats within a split.
    """

    splits = ("train", "validation", "test")

    def __init__(self, generate: Callable[[int], Mapping[str, Any]]) -> None:
        """Use `generate`, a pure function from a seed (63 bits) to a task's data."""
        self._generate = generate

    def size(self, split: str) -> None:
        """Endless."""
        check_split(split, self.splits)

    def get(self, split: str, index: int) -> Task:
        """The task at a place: the first candidate of the place's own sequence that belongs to the split."""
        for attempt in range(10_000):
            digest = hashlib.blake2b(f"{index}/{attempt}".encode(), digest_size=8).digest()
            task = Task.of(self._generate(int.from_bytes(digest, "little") >> 1))
            if self._split_of(task) == split:
                return task
        raise ConfigError(f"no task of split {split!r} in 10,000 candidates", mend="generate more varied tasks")

    @staticmethod
    def _split_of(task: Task) -> str:
        bucket = int(task.id[:8], 16) % 10
        return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def check_split(split: str, splits: Sequence[str]) -> None:
    """Raises ConfigError for a split that is not among `splits`."""
    if split not in splits:
        raise ConfigError(f"no split {split!r}", mend=f"use one of: {', '.join(splits)}")
