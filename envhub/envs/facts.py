"""An `EnvSpec` as plain values, for pipes and wires, and back. What can be called stays behind, and is given anew."""

from collections.abc import Callable, Mapping
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.spec import EnvSpec, Isolation, RewardKind
from envhub.envs.tasks import TaskSet

PLAIN = ("id", "summary", "instructions", "max_turns", "success_reward", "reward_kind", "isolation", "players")


def facts_of(spec: EnvSpec) -> dict[str, Any]:
    """What a spec says of itself, in plain values."""
    return {name: getattr(spec, name) for name in PLAIN} | {
        "tags": list(spec.tags),
        "reward_range": list(spec.reward_range),
        "baselines": dict(spec.baselines),
        "default_options": dict(spec.default_options),
        "tools": [dict(tool) for tool in spec.tools],
        "has_tasks": spec.tasks is not None,
        "has_solver": spec.solver is not None,
        "inline": spec.inline,
    }


def spec_from(
    facts: Mapping[str, Any],
    *,
    make: Callable[..., Env | AsyncEnv],
    tasks: Callable[..., TaskSet],
    solver: Callable[[Any], str] | None,
    default_options: Mapping[str, Any],
    inline: bool = False,
) -> EnvSpec:
    """The spec that facts describe; `tasks` and `solver` are used where the facts say that there are some.

    Raises:
        KeyError, TypeError, ValueError: these are no facts of a spec.
    """
    return EnvSpec(
        id=str(facts["id"]),
        make=make,
        summary=str(facts["summary"]),
        tasks=tasks if facts["has_tasks"] else None,
        instructions=str(facts["instructions"]),
        max_turns=int(facts["max_turns"]),
        success_reward=facts["success_reward"],
        reward_range=(float(facts["reward_range"][0]), float(facts["reward_range"][1])),
        reward_kind=RewardKind(facts["reward_kind"]),
        isolation=Isolation(facts["isolation"]),
        tags=tuple(facts["tags"]),
        players=int(facts["players"]),
        baselines=facts["baselines"],
        default_options=default_options,
        solver=solver if facts["has_solver"] else None,
        tools=tuple(facts["tools"]),
        inline=inline,
    )
