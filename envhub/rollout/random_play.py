"""Random play without a model: what a warm-up learns from, and where a small vocabulary comes from."""

import asyncio
import inspect
import random
from dataclasses import dataclass
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.sync_face import SyncFace
from envhub.envs.tasks import Task
from envhub.errors import ConfigError
from envhub.rollout.episode import Stage


@dataclass(frozen=True, slots=True)
class RandomEpisode:
    """Observations and the random replies to them, in order, and what the episode earned."""

    exchanges: tuple[tuple[str, str], ...]
    reward: float


def play_randomly(stage: Stage, task: Task, *, seed: int) -> RandomEpisode:
    """Play one episode with moves drawn from `Env.legal_actions`.

    Raises:
        ConfigError: the environment names no actions.
    """
    made = stage.make_env()
    env = made if isinstance(made, Env) else SyncFace(made)
    try:
        return _at_once(stage, env, task, seed)
    finally:
        env.close()


async def play_randomly_beside(stage: Stage, env: Env | AsyncEnv, task: Task, *, seed: int) -> RandomEpisode:
    """`play_randomly` in a given environment, which stays open, beside other episodes.

    A synchronous environment may wait on the loop itself, so it gets a thread. Raises ConfigError.
    """
    if isinstance(env, Env):
        return await asyncio.to_thread(_at_once, stage, env, task, seed)
    return await _play(stage, env, task, seed)


def _at_once(stage: Stage, env: Env, task: Task, seed: int) -> RandomEpisode:
    """`_play` with verbs that answer at once: it never waits, and needs no loop."""
    playing = _play(stage, env, task, seed)
    try:
        playing.send(None)
    except StopIteration as done:
        found: RandomEpisode = done.value
        return found
    raise AssertionError("a synchronous environment gave something to wait for")


async def _play(stage: Stage, env: Any, task: Task, seed: int) -> RandomEpisode:
    chance = random.Random(seed)
    observation, _ = await _given(env.reset(seed=seed, options={"task": dict(task.data)} if task.data else None))
    exchanges: list[tuple[str, str]] = []
    total = 0.0
    for _ in range(stage.max_turns):
        actions = await _given(env.legal_actions()) if hasattr(env, "legal_actions") else ()
        if not actions:
            raise ConfigError(f"{stage.spec.id} names no legal actions", mend="set trainer.warmup.steps=0")
        action = chance.choice(actions)
        exchanges.append((observation, action))
        observation, reward, terminated, truncated, _ = await _given(env.step(action))
        total += float(reward)
        if terminated or truncated:
            break
    return RandomEpisode(tuple(exchanges), total)


async def _given(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
