"""Policies by name, models among them, and the other seats of a game. Loads torch only for a model."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from envhub.policy.core import Policy
from envhub.rollout.episode import Stage
from envhub.runs.stage import MODEL, PlayerOptions, light_policy

if TYPE_CHECKING:
    from envhub.runs.train import TrainResult, TrainRun


async def open_policy(name: str, stage: Stage, player: PlayerOptions, running: AsyncExitStack) -> Policy:
    """The policy of a name, "hf:FOLDER" among them; what it runs ends with `running`. Raises ConfigError."""
    if name.startswith(MODEL) and name != MODEL:
        players = import_module("envhub.runs.players")  # torch, which no other policy needs
        opened: Policy = await players.open_model(Path(name.removeprefix(MODEL)), player, running)
        return opened
    return light_policy(name, stage)


async def seated(stage: Stage, opponents: Sequence[str], player: PlayerOptions, running: AsyncExitStack) -> Stage:
    """The stage with policies in the other seats. Raises ConfigError."""
    return replace(stage, opponents=tuple([await open_policy(name, stage, player, running) for name in opponents]))


async def with_opponents(run: "TrainRun", *, resume: bool) -> "TrainResult":
    """A run from its first to its last step, with policies in the other seats; its reward workers are closed at the end."""
    sampler = run.config.sampler
    async with AsyncExitStack() as running:
        if run.stage.rewards is not None:
            running.push_async_callback(run.stage.rewards.close)
        run.stage = await seated(
            run.stage, run.config.env.opponents, PlayerOptions(sampler.temperature, sampler.max_tokens), running
        )
        return await run.main(resume=resume)
