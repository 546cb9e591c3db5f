"""The environment protocol: Gymnasium's five verbs over text.

`Env` is a `gymnasium.Env` whose action is the policy's text and whose observation is text. `AsyncEnv` is its twin with
`async` verbs, for environments that wait on a browser, a container or the network.

Keys of `info` that EnvHub reads, all optional:
    success: bool                   the task is solved (given when the episode ends)
    anchor: str                     a name of the current state, equal for equal states of one task
    reward_parts: dict[str, float]  the reward's named parts
    illegal: bool                   the last action was no legal move
    player: int                     in games of several players: who moves next; the observation is meant for this seat
    rewards: Sequence[float]        in games of several players: what each seat earned by the last step
"""

import copy
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self

import gymnasium

from envhub.envs.spaces import UnicodeText
from envhub.errors import EnvError

Info = dict[str, Any]


class StateLevel(StrEnum):
    """What a snapshot holds, hence what a restored environment promises: the same answers to the same actions."""

    STATE = "state"  # all of the state, as plain Python objects
    REPLAY = "replay"  # the seed, the options and the actions so far; restoring plays them again
    FILESYSTEM = "filesystem"  # a copy of the files that are the state
    NONE = "none"  # there are no snapshots


class Env(gymnasium.Env[str, str]):
    """A language environment. Implement `reset` and `step`; call `super().reset(seed=seed)` first, then use `self.np_random`.

    `reset(options={"task": task.data})` plays that task; without options the environment draws one from its seed.
    A bad action is no exception: answer it with an observation (and perhaps a penalty).
    """

    observation_space = UnicodeText()
    action_space = UnicodeText()
    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  gymnasium's own shape
    state_level: ClassVar[StateLevel] = StateLevel.NONE
    """Set STATE where copying the attributes copies the state; other levels override the three verbs."""

    def legal_actions(self) -> tuple[str, ...]:
        """Actions that a random player draws from in the current state; empty if they are not known."""
        return ()

    def snapshot(self) -> Any:
        """The state, to be restored here or in another instance of the same environment. Raises EnvError at level NONE."""
        if self.state_level is not StateLevel.STATE:
            raise EnvError(f"{type(self).__name__} keeps no snapshots", mend="set state_level and implement the state verbs")
        return copy.deepcopy(self.__dict__)

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot, which stays usable. Raises EnvError at level NONE."""
        if self.state_level is not StateLevel.STATE:
            raise EnvError(f"{type(self).__name__} keeps no snapshots", mend="set state_level and implement the state verbs")
        self.__dict__.clear()
        self.__dict__.update(copy.deepcopy(snapshot))

    def fork(self) -> Self:
        """A second environment in the same state, with a future of its own."""
        twin = type(self).__new__(type(self))
        twin.restore(self.snapshot())
        return twin

    def task_of(self, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The task's data in `options`, if one was given."""
        return None if options is None else options.get("task")


class AsyncEnv(Protocol):
    """`Env` with async verbs."""

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]: ...

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]: ...

    async def close(self) -> None: ...
