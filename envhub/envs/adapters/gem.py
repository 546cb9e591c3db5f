"""GEM's text environments (axon-rl): `gem:game:GuessTheNumber-v0-easy`, unchanged; the last \\boxed{...} is the move."""

import random
from typing import Any

import gem
from gem.envs.registration import ENV_REGISTRY

from envhub.envs.core import Env, Info
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import GeneratedTasks
from envhub.errors import ConfigError

LONGEST_REPLY = 16_384


class GemEnv(Env):
    """One of GEM's environments."""

    def __init__(self, env_id: str, **options: Any) -> None:
        """Make it with its own options. Raises ValueError if GEM refuses."""
        try:
            self.env = gem.make(env_id, **options)
        except (ValueError, TypeError, KeyError, ImportError, LookupError) as error:
            raise ValueError(f"gem.make({env_id!r}): {type(error).__name__}: {error}") from error
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin the task, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        chosen = int(task["seed"]) if task else int(self.np_random.integers(2**31))
        state = random.getstate()
        try:
            random.seed(chosen)  # GEM's games draw from the global generator
            observation, info = self.env.reset(seed=chosen)
            self._own = random.getstate()
        finally:
            random.setstate(state)
        self._over = False
        return str(observation), _plain(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """GEM's own step; GEM answers bad moves itself."""
        if self._over:
            return "The episode is over.", 0.0, True, False, {"illegal": True}
        state = random.getstate()
        try:
            random.setstate(self._own)
            clean = action[-LONGEST_REPLY:].encode("utf-8", "replace").decode()
            observation, reward, terminated, truncated, info = self.env.step(clean)
            self._own = random.getstate()
        finally:
            random.setstate(state)
        self._over = bool(terminated or truncated)
        told = _plain(info) | ({"success": float(reward) >= 1.0} if self._over else {})
        return str(observation), float(reward), bool(terminated), bool(truncated), told


def _plain(info: Any) -> Info:
    return {str(k): v for k, v in dict(info or {}).items() if isinstance(v, bool | int | str)}


def spec(rest: str) -> EnvSpec:
    """The spec of one of GEM's ids. Raises ConfigError if there is none."""
    if rest not in ENV_REGISTRY:
        raise ConfigError(f"GEM has no {rest!r}", mend=f"use one of: {', '.join(sorted(ENV_REGISTRY)[:40])}, ...")
    return EnvSpec(
        id=f"gem:{rest}",
        make=lambda **options: GemEnv(rest, **options),
        summary=f"GEM's {rest}.",
        tasks=lambda **_: GeneratedTasks(lambda seed: {"seed": seed % 2**31}),
        instructions="Put your move into \\boxed{...}, as the rules say.",
        max_turns=100,
        reward_range=(-100.0, 100.0),
        tags=("gem",),
    )
