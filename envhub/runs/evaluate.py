"""Evaluation: any policy on any environment, the same code before, during and after training."""

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envhub.envs.core import Env
from envhub.envs.tasks import Task
from envhub.errors import ConfigError
from envhub.eval.summary import summarise
from envhub.journal.store import Journal
from envhub.policy.config import SamplerConfig
from envhub.policy.core import Policy
from envhub.policy.local_engine import LocalEngine
from envhub.policy.models import load
from envhub.policy.scripted_policy import RandomPolicy, ScriptedPolicy
from envhub.rollout.episode import Stage
from envhub.rollout.many import play_many
from envhub.runs.parts import token_policy, turn_format
from envhub.runs.stage import build_stage, held_out
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
    temperature: float = 1.0,
    max_tokens: int = 256,
    max_turns: int | None = None,
    out: Path | None = None,
) -> EvalSummary:
    """Play `episodes` different tasks of a split `samples` times each and sum up.

    Args:
        env_id: a registered environment.
        policy: "random", "scripted:FILE" or "hf:FOLDER".
        options: for the environment's factory and task set.
        split: of the task set.
        episodes: different tasks.
        samples: plays of each.
        seed: of environments and sampler.
        temperature: of sampling.
        max_tokens: of one reply.
        max_turns: of one episode, at most the environment's own limit.
        out: a folder that gets the journal of all episodes.

    Raises:
        ConfigError: environment, policy or options are not what they should be.
    """
    if out is not None:
        _make_folder(out)
    stage = build_stage(env_id, options, max_turns=max_turns)
    tasks = held_out(stage, options, split, episodes)
    kind, _, rest = policy.partition(":")
    began = time.monotonic()
    match kind:
        case "random":
            played = asyncio.run(_play(stage, RandomPolicy(_actions(stage)), tasks, samples, seed))
        case "scripted" if rest:
            played = asyncio.run(_play(stage, ScriptedPolicy.read(Path(rest)), tasks, samples, seed))
        case "hf" if rest:
            played = asyncio.run(_play_model(stage, Path(rest), tasks, samples, seed, temperature, max_tokens))
        case _:
            raise ConfigError(f"unknown policy {policy!r}", mend="use random, scripted:FILE or hf:FOLDER")
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


async def _play(stage: Stage, policy: Policy, tasks: Sequence[Task], samples: int, seed: int) -> tuple[Trajectory, ...]:
    return await play_many(stage, policy, tasks, samples=samples, seed=seed, stream="eval")


async def _play_model(
    stage: Stage,
    folder: Path,
    tasks: Sequence[Task],
    samples: int,
    seed: int,
    temperature: float,
    max_tokens: int,
) -> tuple[Trajectory, ...]:
    language = load(folder)
    context = min(language.model.config.get_text_config().max_position_embeddings, 4096)
    config = SamplerConfig(temperature=temperature, max_tokens=max_tokens, max_context_tokens=context)
    layout = turn_format(language, config)
    engine = LocalEngine(language.model, max_rows=config.max_rows, max_context_tokens=context)
    async with engine.running():
        return await _play(stage, token_policy(engine, layout, language, config), tasks, samples, seed)


def _actions(stage: Stage) -> tuple[str, ...]:
    env = stage.make_env()
    if not isinstance(env, Env):
        return ()
    try:
        env.reset(seed=0)
        return env.legal_actions()
    finally:
        env.close()


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
