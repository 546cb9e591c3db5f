"""An asynchronous environment behind synchronous verbs, for callers without an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from envhub.envs.core import AsyncEnv, Env, Info
from envhub.envs.registry import make

T = TypeVar("T")


class SyncFace(Env):
    """Runs the async verbs on an event loop in a thread of its own, which `close` ends. Not for use inside an event loop."""

    def __init__(self, env: AsyncEnv) -> None:
        """Take over `env`."""
        self._env = env
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        return self._run(self._env.reset(seed=seed, options=options))

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        return self._run(self._env.step(action))

    def close(self) -> None:
        """Close the environment and the loop. Safe to call twice."""
        if not self._thread.is_alive():
            return
        try:
            self._run(self._env.close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, verb: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result()


def make_sync(env_id: str, **options: Any) -> Env:
    """A fresh environment behind synchronous verbs; what `gymnasium.make` calls. Raises ConfigError as `make` does."""
    env = make(env_id, **options)
    return env if isinstance(env, Env) else SyncFace(env)
