"""The environment protocol: Gymnasium's five verbs over text.

`Env` is a `gymnasium.Env` whose action is the policy's text and whose observation is text. `AsyncEnv` is its twin with
`async` verbs, for environments that wait on a browser, a container or the network.

Keys of `info` that EnvHub reads, all optional:
    success: bool                   the task is solved (given when the episode ends)
    anchor: str                     a name of the current state, equal for equal states of one task
    reward_parts: dict[str, float]  the reward's named parts
    illegal: bool                   the last action was no legal move
"""

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium

from envhub.envs.spaces import UnicodeText

Info = dict[str, Any]


class Env(gymnasium.Env[str, str]):
    """A language environment. Implement `reset` and `step`; call `super().reset(seed=seed)` first, then use `self.np_random`.

    `reset(options={"task": task.data})` plays that task; without options the environment draws one from its seed.
    A bad action is no exception: answer it with an observation (and perhaps a penalty).
    """

    observation_space = UnicodeText()
    action_space = UnicodeText()
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  gymnasium's own shape

    def legal_actions(self) -> tuple[str, ...]:
        """Actions that a random player draws from in the current state; empty if they are not known."""
        return ()

    def task_of(self, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The task's data in `options`, if one was given."""
        return None if options is None else options.get("task")


class AsyncEnv(Protocol):
    """`Env` with async verbs."""

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]: ...

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]: ...

    async def close(self) -> None: ...
