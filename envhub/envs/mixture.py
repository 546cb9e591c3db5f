"""Several environments as one: each task belongs to one of them, by weights or by a curriculum.

mixture("mix/Games-v1", {"game/FrozenLake-v1": 2.0, "game/GuessNumber-v1": 1.0})
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from envhub.envs.core import Env, Info
from envhub.envs.registry import build, load_spec
from envhub.envs.spec import EnvSpec, Isolation
from envhub.envs.sync_face import SyncFace
from envhub.envs.task_stream import TaskStream
from envhub.envs.tasks import Task
from envhub.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Member:
    """One environment of a mixture: its name there, its spec, options and weight."""

    name: str
    spec: EnvSpec
    options: Mapping[str, Any]
    weight: float


def mixture(mixture_id: str, weights: Mapping[str, float | Mapping[str, Any]]) -> EnvSpec:
    """The spec of a mixture of registered environments.

    A value is a weight, or {"weight": ..., "id": ..., "options": {...}}, where `id` is the key unless it is given, so that
    one environment may stand twice with different options.

    Raises:
        ConfigError: an id is unknown, a weight not positive, or two members reward in different kinds.
    """
    members = [_member(name, told) for name, told in weights.items()]
    if not members or any(not m.weight > 0 or m.weight == float("inf") for m in members):
        raise ConfigError(f"{mixture_id}: weights {dict(weights)}", mend="give every member a positive, finite weight")
    kinds = {m.spec.reward_kind for m in members}
    if len(kinds) > 1 or any(m.spec.players > 1 for m in members):
        raise ConfigError(f"{mixture_id} mixes reward kinds or numbers of players", mend="mix environments of one kind")
    levels = list(Isolation)
    return EnvSpec(
        id=mixture_id,
        make=lambda: MixedEnv(members),
        summary=f"A mixture of {', '.join(m.name for m in members)}.",
        tasks=lambda: MixedTasks(members),
        max_turns=max(m.spec.max_turns for m in members),
        reward_range=(min(m.spec.reward_range[0] for m in members), max(m.spec.reward_range[1] for m in members)),
        reward_kind=kinds.pop(),
        inline=all(m.spec.inline for m in members),
        isolation=max((m.spec.isolation for m in members), key=levels.index),
        tags=tuple(sorted({tag for m in members for tag in m.spec.tags})),
    )


def _member(name: str, told: float | Mapping[str, Any]) -> Member:
    facts: dict[str, Any] = dict(told) if isinstance(told, Mapping) else {"weight": told}
    unknown = set(facts) - {"weight", "id", "options"}
    if unknown:
        raise ConfigError(f"{name}: unknown {', '.join(sorted(unknown))}", mend="give weight, id and options")
    spec = load_spec(facts.get("id", name))
    return Member(name, spec, {**spec.default_options, **facts.get("options", {})}, float(facts.get("weight", 1.0)))


class MixedTasks:
    """An endless task set: the place decides the member, in shares of the weights, and the member's next task."""

    def __init__(self, members: list[Member]) -> None:
        """Draw from the members' own task sets. Raises ConfigError if they share no split."""
        self._members = members
        self._sets = [None if m.spec.tasks is None else m.spec.tasks(**m.options) for m in members]
        named = [set(tasks.splits) for tasks in self._sets if tasks is not None]
        shared = set.intersection(*named) if named else {"train", "validation", "test"}
        if not shared:
            raise ConfigError(f"{', '.join(m.name for m in members)} share no split", mend="mix others")
        self.splits = tuple(sorted(shared))
        self._shares = np.array([m.weight for m in members]) / sum(m.weight for m in members)

    def size(self, split: str) -> None:
        """Endless."""
        if split not in self.splits:
            raise ConfigError(f"no split {split!r}", mend=f"use one of: {', '.join(self.splits)}")

    @property
    def members(self) -> int:
        """How many there are."""
        return len(self._members)

    def get(self, split: str, index: int) -> Task:
        """The task at a place."""
        return self.get_from(split, index, None)

    def get_from(self, split: str, index: int, member: int | None) -> Task:
        """The task at a place if it belonged to one member, by number; None leaves it to the weights."""
        chance = np.random.default_rng([index % 2**63, self.splits.index(split)])
        drawn = int(chance.choice(len(self._members), p=self._shares))
        which = drawn if member is None else member
        inner = TaskStream(self._sets[which], split, 0).at(int(chance.integers(2**31)))
        return Task.of({"member": self._members[which].name, "task": dict(inner.data), "seed": int(chance.integers(2**31))})


class MixedEnv(Env):
    """Plays the member that the task names; its instructions precede the first observation."""

    def __init__(self, members: list[Member]) -> None:
        """Members are built when first needed."""
        self._members = {m.name: m for m in members}
        self._names = list(self._members)
        self._built: dict[str, Env] = {}
        self._now: Env | None = None
        self._turns = self._limit = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin the task's member's task; without a task, one of the members is drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        name = self._names[int(self.np_random.integers(len(self._names)))] if task is None else str(task["member"])
        if name not in self._built:
            made = build(self._members[name].spec, self._members[name].options)
            self._built[name] = made if isinstance(made, Env) else SyncFace(made)
        self._now = self._built[name]
        self._turns, self._limit = 0, self._members[name].spec.max_turns
        inner = {"task": dict(task["task"])} if task is not None and task["task"] else None
        observation, info = self._now.reset(seed=seed if task is None else task["seed"], options=inner)
        instructions = self._members[name].spec.instructions
        return (f"{instructions}\n\n{observation}" if instructions else observation), {**info, "member": name}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """The member's answer; its own limit of turns holds."""
        assert self._now is not None
        observation, reward, terminated, truncated, info = self._now.step(action)
        self._turns += 1
        return observation, float(reward), terminated, truncated or (self._turns >= self._limit and not terminated), info

    def legal_actions(self) -> tuple[str, ...]:
        """The member's."""
        return () if self._now is None else self._now.legal_actions()

    def close(self) -> None:
        """Close every member that was built."""
        for env in self._built.values():
            env.close()
        self._built.clear()
