"""Random play without a model: what a warm-up learns from, and where a small vocabulary comes from."""

import inspect
import random
from dataclasses import dataclass
from typing import Any

from envhub.envs.tasks import Task
from envhub.errors import ConfigError
from envhub.rollout.episode import Stage


@dataclass(frozen=True, slots=True)
class RandomEpisode:
    """Observations and the random replies to them, in order, and what the episode earned."""

    exchanges: tuple[tuple[str, str], ...]
    reward: float


async def play_randomly(stage: Stage, task: Task, *, seed: int) -> RandomEpisode:
    """Play one episode with moves drawn from `Env.legal_actions`.

    Raises:
        ConfigError: the environment names no actions.
    """
    chance = random.Random(seed)
    env: Any = stage.make_env()  # its verbs are waited for where it is asynchronous
    try:
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
    finally:
        await _given(env.close())


async def _given(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
