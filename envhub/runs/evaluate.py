"""Evaluation: any policy on any environment, the same code before, during and after training."""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from envhub.envs.tasks import Task
from envhub.errors import ConfigError
from envhub.eval.summary import summarise
from envhub.journal.store import Journal
from envhub.policy.core import Policy
from envhub.rollout.episode import Stage
from envhub.rollout.many import play_many
from envhub.runs.seats import open_policy, seated
from envhub.runs.stage import DEFAULT_PLAYER, PlayerOptions, build_stage, held_out
from envhub.types import EvalSummary, Trajectory


def evaluate(
    env_id: str,
    policy: str,
    *,
    options: Mapping[str, Any],
    split: str = "test",
    episodes: int = 100,
    samples: int = 1,
    seed: int = 0,
    player: PlayerOptions = DEFAULT_PLAYER,
    max_turns: int | None = None,
    out: Path | None = None,
    opponents: Sequence[str] = (),
    seat: int | None = None,
    tasks: Path | None = None,
) -> EvalSummary:
    """Play `episodes` different tasks of a split `samples` times each and sum up.

    Args:
        env_id: a registered environment.
        policy: "random", "solver", "scripted:FILE" or "hf:FOLDER".
        options: for the environment's factory and task set.
        split: of the task set.
        episodes: different tasks.
        samples: plays of each.
        seed: of environments and sampler.
        player: how policies with a model sample.
        max_turns: of one episode, at most the environment's own limit.
        out: a folder that gets the journal of all episodes.
        opponents: policies of the other seats of a game; none means that the policy plays against itself.
        seat: where the policy sits; None lets it take turns.
        tasks: a file or folder whose rows are the tasks, instead of the environment's own.

    Raises:
        ConfigError: environment, policy or options are not what they should be.
    """
    if out is not None:
        _make_folder(out)
    stage = build_stage(env_id, options, max_turns=max_turns, seat=seat, tasks=tasks)
    if opponents and len(opponents) >= stage.spec.players:
        raise ConfigError(f"{env_id} has {stage.spec.players} seats", mend="give opponents for the other seats")
    chosen = held_out(stage, options, split, episodes)
    began = time.monotonic()
    played = asyncio.run(_play(stage, policy, opponents, chosen, samples, seed, player))
    if out is not None:
        with Journal.open(out / "journal.sqlite") as journal:
            journal.append(played)
    return summarise(played, time.monotonic() - began)


async def measure(
    stage: Stage, policy: Policy, tasks: Sequence[Task], *, samples: int, seed: int, stream: str
) -> tuple[EvalSummary, tuple[Trajectory, ...]]:
    """Play and sum up; what training and `evaluate` share."""
    began = time.monotonic()
    played = await play_many(stage, policy, tasks, samples=samples, seed=seed, stream=stream)
    return summarise(played, time.monotonic() - began), played


async def _play(
    stage: Stage, policy: str, opponents: Sequence[str], tasks: Sequence[Task], samples: int, seed: int, player: PlayerOptions
) -> tuple[Trajectory, ...]:
    async with AsyncExitStack() as running:
        own = await open_policy(policy, stage, player, running)
        table = await seated(stage, opponents, player, running)
        return await play_many(table, own, tasks, samples=samples, seed=seed, stream="eval")


def _make_folder(out: Path) -> None:
    """Before anything is played, so that no episode is lost to a folder that cannot be written."""
    if (out / "journal.sqlite").exists():
        raise ConfigError(f"{out} holds an evaluation already", mend="choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ConfigError(f"cannot write to {out}: {error}", mend="choose another --out") from error
