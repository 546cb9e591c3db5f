"""Tasks: lazy, possibly endless sets of problems with splits that share no task."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


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
