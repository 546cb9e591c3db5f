"""A curriculum over a mixture: its members in the order they are written, from easy to hard; success moves the level.

The level decides which member a group's task comes from; a share of the groups reviews easier members. A decision is kept
until its group has been learned from, so that every member of a group, and a resumed run, plays the same task.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from envhub.envs.mixture import MixedTasks
from envhub.envs.task_stream import start_of
from envhub.envs.tasks import Task

KEPT = 65_536


@dataclass(frozen=True, slots=True)
class Ladder:
    """When the level moves.

    Attributes:
        window: groups of the current level that are looked at, since the level last moved.
        up: the level rises when the mean success over the window is at least this.
        down: the level falls when it is at most this.
        review: share of groups that are drawn from easier members.
    """

    window: int = 16
    up: float = 0.8
    down: float = 0.2
    review: float = 0.2


@dataclass(slots=True)
class _Decisions:
    level: int = 0
    window: list[float] = field(default_factory=list)
    member: OrderedDict[int, int] = field(default_factory=OrderedDict)


class CurriculumStream:
    """The task at every place, as `TaskStream` gives it, from the member that the level names."""

    def __init__(self, tasks: MixedTasks, split: str, seed: int, ladder: Ladder) -> None:
        """Begin with the first member. Raises ConfigError for an unknown split."""
        tasks.size(split)
        self._tasks, self._split, self._seed, self._ladder = tasks, split, seed, ladder
        self._offset = start_of(split, seed)
        self._decisions = _Decisions()

    @property
    def level(self) -> int:
        """The current member, from 0."""
        return self._decisions.level

    def at(self, place: int) -> Task:
        """The task at a place, decided at the first call."""
        made = self._decisions.member
        if place not in made:
            made[place] = self._decide(place)
            while len(made) > KEPT:
                made.popitem(last=False)
        return self._tasks.get_from(self._split, self._offset + place, made[place])

    def learn(self, place: int, success: float) -> None:
        """The group at a place has been learned from; `success` is its mean, 0 to 1."""
        now, ladder = self._decisions, self._ladder
        if now.member.pop(place, now.level) != now.level:
            return  # a review, or a group from before the level moved
        now.window.append(success)
        if len(now.window) < ladder.window:
            return
        mean = sum(now.window[-ladder.window :]) / ladder.window
        step = 1 if mean >= ladder.up else -1 if mean <= ladder.down else 0
        level = min(max(now.level + step, 0), self._tasks.members - 1)
        now.window = [] if level != now.level else now.window[-ladder.window :]
        now.level = level

    def state(self) -> dict[str, Any]:
        """All that the future depends on, in plain values."""
        return {"level": self.level, "window": list(self._decisions.window), "member": list(self._decisions.member.items())}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""
        members = OrderedDict((int(place), int(member)) for place, member in state["member"])
        self._decisions = _Decisions(int(state["level"]), list(state["window"]), members)

    def _decide(self, place: int) -> int:
        digest = hashlib.blake2b(f"curriculum/{self._seed}/{place}".encode(), digest_size=8).digest()
        chance = np.random.default_rng(int.from_bytes(digest, "little"))
        if self.level and chance.random() < self._ladder.review:
            return int(chance.integers(self.level))
        return self.level
