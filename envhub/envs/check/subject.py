"""What is being checked: an environment's spec, its tasks, and ways to play it without a model."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from envhub.envs.core import Env
from envhub.envs.registry import build
from envhub.envs.spec import EnvSpec
from envhub.envs.sync_face import SyncFace
from envhub.envs.task_stream import TaskStream
from envhub.envs.tasks import Task, TaskSet

Chooser = Callable[[Env, random.Random], str]
WORDS = ("", "yes", "no", "1", "left", "look", "42", "I do not know.")
TURNS = 30
EPISODES = 4


class Failed(Exception):
    """The environment breaks a rule; the message says how."""


class Skipped(Exception):
    """A check that does not concern this environment; the message says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of an environment."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any

    @property
    def over(self) -> bool:
        return bool(self.terminated or self.truncated)


@dataclass(slots=True)
class Episode:
    """What was done and seen in one episode; `steps[0]` is the reset's answer with a reward of 0."""

    steps: list[Step]
    actions: list[str] = field(default_factory=list)

    @property
    def total(self) -> float:
        return float(sum(step.reward for step in self.steps))


@dataclass(frozen=True, slots=True)
class Subject:
    """The environment under check, and the options it is built with."""

    spec: EnvSpec
    options: Mapping[str, Any]

    def make(self) -> Env:
        """A fresh environment behind synchronous verbs."""
        env = build(self.spec, self.options)
        return env if isinstance(env, Env) else SyncFace(env)

    def task_set(self) -> TaskSet | None:
        """The environment's tasks."""
        return None if self.spec.tasks is None else self.spec.tasks(**{**self.spec.default_options, **self.options})

    def tasks(self, count: int) -> list[Task]:
        """The first tasks of the first split; empty tasks where there is no task set."""
        tasks = self.task_set()
        stream = TaskStream(tasks, tasks.splits[0] if tasks else "train", 0)
        return [stream.at(place) for place in range(count)]


def begin(env: Env, task: Task, seed: int) -> Step:
    """Reset to a task."""
    observation, info = env.reset(seed=seed, options={"task": dict(task.data)} if task.data else None)
    return Step(observation, 0.0, False, False, info)


def play(env: Env, task: Task, seed: int, choose: Chooser, turns: int = TURNS) -> Episode:
    """Play from reset to the end, or for so many turns."""
    episode, chance = Episode([begin(env, task, seed)]), random.Random(seed)
    for _ in range(turns):
        action = choose(env, chance)
        episode.actions.append(action)
        episode.steps.append(Step(*env.step(action)))
        if episode.steps[-1].over:
            break
    return episode


def follow(env: Env, actions: list[str]) -> list[Step]:
    """The answers to some actions, up to the end."""
    steps = []
    for action in actions:
        steps.append(Step(*env.step(action)))
        if steps[-1].over:
            break
    return steps


def anything(env: Env, chance: random.Random) -> str:
    """A legal action where they are known, else a plain word."""
    return chance.choice(env.legal_actions() or WORDS)


def solver_of(spec: EnvSpec) -> Chooser | None:
    """The spec's solver as a chooser."""
    solver = spec.solver
    return None if solver is None else lambda env, _: solver(env)
