"""What a registered environment declares about itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.tasks import TaskSet


class RewardKind(StrEnum):
    """What a step's reward means."""

    STEP = "step"  # each step's reward is what that step earned; they add up
    CUMULATIVE = "cumulative"  # each step reports the total so far


class Isolation(StrEnum):
    """How far an environment's actions are kept away from the host."""

    NONE = "none"
    LOCAL = "local"
    DOCKER = "docker"


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """One environment, as its package's entry point names it.

    Attributes:
        id: "<family>/<Name>-v<number>"; the version rises when scores stop being comparable.
        make: builds a fresh environment; called with the options of the config's `env.options`.
        summary: one line for lists; this, `tags` and `isolation` may stand in the package's envhub.toml instead, where
            `envhub list` reads them without importing anything.
        tasks: builds the task set, with the same options; None if the environment only draws tasks from seeds.
        instructions: what every player is told before the first observation; for models and people alike.
        max_turns: the episode is truncated after this many replies, unless a config says less.
        success_reward: an episode counts as solved from this total reward on, where `info["success"]` is not given.
        reward_range: bounds of an episode's total reward.
        reward_kind: whether step rewards add up or report the total.
        inline: True if every verb returns within about a millisecond, so that it may run on the event loop.
        isolation: the least isolation its actions need.
        players: how many seats a game has; more than one needs `info["player"]` and `info["rewards"]`.
        baselines: known mean success by policy name, e.g. {"random": 0.03, "solver": 1.0}.
        solver: the best known player, for baselines and checks: sees the environment itself and names the next action.
            Its mean success is `baselines["solver"]`, 1 where that is not given.
        tools: JSON schemas of the tools that a player may call, for `envhub show`.
    """

    id: str
    make: Callable[..., Env | AsyncEnv]
    summary: str = ""
    tasks: Callable[..., TaskSet] | None = None
    instructions: str = ""
    max_turns: int = 32
    success_reward: float | None = None
    reward_range: tuple[float, float] = (0.0, 1.0)
    reward_kind: RewardKind = RewardKind.STEP
    inline: bool = False
    isolation: Isolation = Isolation.NONE
    tags: tuple[str, ...] = ()
    players: int = 1
    baselines: Mapping[str, float] = field(default_factory=dict)
    default_options: Mapping[str, Any] = field(default_factory=dict)
    solver: Callable[[Any], str] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
