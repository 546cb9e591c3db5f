"""Random play without a model: what a warm-up learns from, and where a small vocabulary comes from."""

import random
from dataclasses import dataclass

from envhub.envs.core import Env
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
    chance = random.Random(seed)
    made = stage.make_env()
    env = made if isinstance(made, Env) else SyncFace(made)
    try:
        observation, _ = env.reset(seed=seed, options={"task": dict(task.data)} if task.data else None)
        exchanges: list[tuple[str, str]] = []
        total = 0.0
        for _ in range(stage.max_turns):
            actions = env.legal_actions()
            if not actions:
                raise ConfigError(f"{stage.spec.id} names no legal actions", mend="set trainer.warmup.steps=0")
            action = chance.choice(actions)
            exchanges.append((observation, action))
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            if terminated or truncated:
                break
        return RandomEpisode(tuple(exchanges), total)
    finally:
        env.close()
