"""An asynchronous environment behind synchronous verbs, for callers without an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from envhub.envs.core import AsyncEnv, Env, Info
from envhub.envs.registry import make

T = TypeVar("T")


_starting = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    """The event loop that all faces of this process share, in a thread of its own."""
    with _starting:  # two threads may come first at once, and `cache` would let both in
        return _started()


@cache
def _started() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="sync-face").start()
    return loop


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run something on the loop that all faces share, and wait for it. Not for use inside that loop."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@runtime_checkable
class NamesActions(Protocol):
    """An async environment that says what a random player may do."""

    async def legal_actions(self) -> tuple[str, ...]: ...


class SyncFace(Env):
    """Runs the async verbs on one event loop in a background thread. Not for use inside that loop."""

    def __init__(self, env: AsyncEnv) -> None:
        """Take over `env`."""
        self._env: AsyncEnv | None = env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        assert self._env is not None, "closed"
        return self._run(self._env.reset(seed=seed, options=options))

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        assert self._env is not None, "closed"
        return self._run(self._env.step(action))

    def legal_actions(self) -> tuple[str, ...]:
        """The environment's own, where it names any."""
        return self._run(self._env.legal_actions()) if isinstance(self._env, NamesActions) else ()

    def close(self) -> None:
        """Close the environment. Safe to call twice."""
        env, self._env = self._env, None
        if env is not None:
            self._run(env.close())

    def _run(self, verb: Coroutine[Any, Any, T]) -> T:
        return on_loop(verb)


def make_sync(env_id: str, **options: Any) -> Env:
    """A fresh environment behind synchronous verbs; what `gymnasium.make` calls. Raises ConfigError as `make` does."""
    env = make(env_id, **options)
    return env if isinstance(env, Env) else SyncFace(env)
