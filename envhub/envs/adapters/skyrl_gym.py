"""SkyRL-gym: `skyrl_gym:gsm8k`, unchanged. A task names its conversation and what the environment takes as extras:

    {"prompt": [{"role": "user", "content": "2 + 2?"}], "extras": {"reward_model": {"ground_truth": "4"}}}

They come from a file (`env.tasks`, `envhub eval --tasks`), since SkyRL-gym keeps its data apart.
"""

from collections.abc import Sequence
from typing import Any

import skyrl_gym
from skyrl_gym.envs.registration import registry

from envhub.envs.core import Env, Info
from envhub.envs.spec import EnvSpec
from envhub.errors import ConfigError

LONGEST_REPLY = 65_536


class SkyRLEnv(Env):
    """One of SkyRL-gym's environments, made anew for every task."""

    def __init__(self, env_id: str, **options: Any) -> None:
        """`options` are the environment's config."""
        self._env_id, self._options = env_id, options
        self._env: Any = None
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin a task. Raises ValueError without one, or if SkyRL-gym refuses it."""
        super().reset(seed=seed)
        task = self.task_of(options) or {"prompt": "2 + 2?", "extras": {"reward_model": {"ground_truth": "4"}}}
        self.close()
        try:
            self._env = skyrl_gym.make(self._env_id, env_config=self._options, extras=dict(task.get("extras", {})))
            prompt = task["prompt"]
            messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
            shown, _ = self._env.init(messages)
        except (AssertionError, KeyError, TypeError) as error:
            raise ValueError(f"{self._env_id}: {type(error).__name__}: {error}") from error
        self._over = False
        return _text(shown), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """SkyRL-gym's own step."""
        if self._over or self._env is None:
            return "The episode is over.", 0.0, True, False, {"illegal": True}
        given = self._env.step(action[-LONGEST_REPLY:].encode("utf-8", "replace").decode())
        reward, self._over = float(given["reward"]), bool(given["done"])
        info: Info = {"success": reward >= 1.0} if self._over else {}
        return _text(given["observations"]), reward, self._over, False, info

    def close(self) -> None:
        """Close the environment of the last task."""
        if self._env is not None:
            self._env.close()
            self._env = None


def _text(messages: Sequence[Any]) -> str:
    return "\n\n".join(str(message.get("content", "")) for message in messages if isinstance(message, dict))


def spec(rest: str) -> EnvSpec:
    """The spec of one of SkyRL-gym's ids. Raises ConfigError if there is none."""
    if rest not in registry:
        raise ConfigError(f"SkyRL-gym has no {rest!r}", mend=f"use one of: {', '.join(sorted(registry))}")
    return EnvSpec(
        id=f"skyrl_gym:{rest}",
        make=lambda **options: SkyRLEnv(rest, **options),
        summary=f"SkyRL-gym's {rest}.",
        max_turns=16,
        success_reward=1.0,
        reward_range=(-100.0, 100.0),
        tags=("skyrl-gym",),
    )
