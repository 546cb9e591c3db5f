"""The client of a served environment: `connect` gives a `gymnasium.Env`, `connect_vector` a vector, `spec` an `EnvSpec`."""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import httpx
from gymnasium.vector import AutoresetMode

from envhub.envs.core import Env, Info
from envhub.envs.facts import spec_from
from envhub.envs.spec import EnvSpec
from envhub.envs.sync_face import SyncFace, on_loop
from envhub.envs.tasks import Task, check_split
from envhub.envs.vector import Step, SyncVector
from envhub.errors import ConfigError, EnvError
from envhub.server.connection import Connection, connection

T = TypeVar("T")
WAIT_S = 60.0
CHUNK = 64


class RemoteEnv:
    """A served environment: an `AsyncEnv` whose session opens with its first reset."""

    def __init__(self, base: str, env_id: str, token: str = "", *, wait_s: float = WAIT_S) -> None:
        """Play `env_id` of the server at `base`; wait for a free place for up to `wait_s` seconds."""
        self._base, self._env_id, self._token, self._wait_s = base, env_id, token, wait_s
        self._session = ""
        self._connection: Connection | None = None
        self._steps = 0
        self._requests = itertools.count(1)

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin an episode; opens the session if there is none. Raises EnvError."""
        if not self._session:
            await self.open()
        observation, info = await self._call("reset", [seed, options])
        self._steps = 0
        return observation, info

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """One step. Raises EnvError."""
        given = await self._call("step", action, seq=self._steps + 1)
        self._steps += 1
        return given[0], given[1], given[2], given[3], given[4]

    async def open(self) -> None:
        """Open the session. Raises EnvError."""
        self._connection = connection(self._base, self._token)
        asked = {"env": self._env_id, "wait_s": self._wait_s}
        opened = await self._connection.call("open", None, asked, deadline_s=self._wait_s + 60)
        self._session = opened["session"]
        self._connection.hold(self._session, float(opened["lease_s"]))

    async def fork(self) -> "RemoteEnv":
        """A second session in the same state. Raises EnvError where the environment keeps none."""
        twin = RemoteEnv(self._base, self._env_id, self._token, wait_s=self._wait_s)
        assert self._connection is not None
        twin._connection, twin._steps = self._connection, self._steps
        twin._session = (await self._connection.call("fork", self._session, None))["session"]
        self._connection.hold(twin._session, self._connection._leases[self._session])
        return twin

    async def snapshot(self) -> int:
        """The number of a snapshot that the server keeps. Raises EnvError where the environment keeps none."""
        return int(await self._call("snapshot", None))

    async def restore(self, snapshot: int) -> None:
        """Go back to a snapshot."""
        await self._call("restore", snapshot)

    async def legal_actions(self) -> tuple[str, ...]:
        """What a random player draws from."""
        return tuple(await self._call("legal_actions", None))

    async def close(self) -> None:
        """End the session. Safe to call twice, and when the server is gone."""
        session, self._session = self._session, ""
        if session and self._connection is not None:
            if self._connection.connected:  # a server that is gone needs no goodbye
                with contextlib.suppress(EnvError):
                    await self._connection.call("close", session, None, deadline_s=10.0)
            self._connection.drop(session)

    async def _call(self, verb: str, argument: Any, *, seq: int | None = None) -> Any:
        if self._connection is None:
            raise EnvError(f"{self._env_id}: reset comes before {verb}", mend="call reset first")
        request = str(next(self._requests))
        return await self._connection.call(verb, self._session, argument, request=request, seq=seq)


class RemoteTasks:
    """A served environment's tasks, fetched by the chunk."""

    def __init__(self, url: str, token: str) -> None:
        """Ask the server for its splits. Raises ConfigError."""
        self._url, self._token = url, token
        self._sizes: dict[str, int | None] = _get(f"{url}/tasks", token)
        self._chunk = lru_cache(256)(self._fetch)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self._sizes)

    def size(self, split: str) -> int | None:
        """How many tasks the split has; None if endless."""
        check_split(split, self.splits)
        return self._sizes[split]

    def get(self, split: str, index: int) -> Task:
        """The task at a place."""
        chunk, within = divmod(index, CHUNK)
        return self._chunk(split, chunk)[within]

    def _fetch(self, split: str, chunk: int) -> list[Task]:
        rows = _get(f"{self._url}/tasks/{split}?start={chunk * CHUNK}&count={CHUNK}", self._token)
        return [Task(row["id"], row["data"]) for row in rows]


def spec(url: str) -> EnvSpec:
    """The spec of a served environment. Raises ConfigError if nothing answers there. The token is read from ENVHUB_TOKEN."""
    return remote_spec(url, os.environ.get("ENVHUB_TOKEN", ""))


def remote_spec(url: str, token: str) -> EnvSpec:
    """`spec` with a token."""
    base, env_id, facts = _describe(url.rstrip("/"), token)
    served = dict(facts.get("options") or {})
    return spec_from(
        facts | {"id": env_id},
        make=lambda **options: RemoteEnv(base, env_id, token, wait_s=_fixed(options, served)),
        tasks=lambda **_: RemoteTasks(url.rstrip("/"), token),
        solver=None,
        default_options=served,
        inline=True,  # its verbs wait on the event loop and need no thread
    )


def _fixed(options: dict[str, Any], served: dict[str, Any]) -> float:
    """Raises ValueError for options that are not the server's own."""
    if options != served:
        raise ValueError(f"its server decides its options: {served}")
    return WAIT_S


def connect(url: str, *, token: str = "") -> Env:
    """A served environment as a `gymnasium.Env`: "http://127.0.0.1:8000/envs/game/FrozenLake-v1". Raises ConfigError."""
    base, env_id, _ = _describe(url.rstrip("/"), token)
    return SyncFace(RemoteEnv(base, env_id, token))


def _describe(url: str, token: str) -> tuple[str, str, dict[str, Any]]:
    facts = _get(f"{url}/describe", token)
    if not isinstance(facts, dict) or "id" not in facts:
        raise ConfigError(f"{url} is no environment of an EnvHub server", mend="GET /envs of the server lists them")
    base, found, _ = url.partition("/envs/")
    return base if found else url, str(facts["id"]), facts


def _get(url: str, token: str) -> Any:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url, headers=headers, timeout=30.0)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"cannot reach {url}: {error}", mend="is the server running?") from error
    if answer.status_code != 200:
        with contextlib.suppress(ValueError):
            problem = answer.json()
            raise ConfigError(
                f"{url}: {problem.get('detail', answer.status_code)}", mend=problem.get("hint") or "see the server"
            )
        raise ConfigError(f"{url} answered {answer.status_code}", mend="is it an EnvHub server?")
    try:
        return answer.json()
    except ValueError as error:
        raise ConfigError(f"{url} answered no JSON", mend="is it an EnvHub server?") from error


def connect_vector(
    url: str, *, num_envs: int, token: str = "", autoreset: AutoresetMode = AutoresetMode.NEXT_STEP
) -> "RemoteVector":
    """Many sessions of a served environment as a `gymnasium.vector.VectorEnv`, stepped in one frame. Raises ConfigError."""
    base, env_id, _ = _describe(url.rstrip("/"), token)
    return RemoteVector(base, env_id, num_envs, token=token, autoreset=autoreset)


class RemoteVector(SyncVector):
    """A vector whose steps travel together."""

    def __init__(self, base: str, env_id: str, num_envs: int, *, token: str, autoreset: AutoresetMode) -> None:
        """Open `num_envs` sessions when first reset."""
        self._remotes = [RemoteEnv(base, env_id, token) for _ in range(num_envs)]
        faces = [SyncFace(env) for env in self._remotes]
        super().__init__([lambda face=face: face for face in faces], autoreset=autoreset)  # type: ignore[misc]

    def _map(self, calls: Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> list[Any]:
        """Resets, all at once."""
        return on_loop(_all([self._remotes[index].reset(seed=args[0], options=args[1]) for index, _, args in calls]))

    def _steps(self, actions: Sequence[str]) -> list[Step]:
        ended, over = self._ended, self.autoreset
        if over is AutoresetMode.DISABLED and any(ended):
            raise EnvError(f"environments {ended} have ended", mend='reset them with options={"reset_mask": mask}')
        return on_loop(self._go([i for i, e in enumerate(ended) if e], actions))

    async def _go(self, again: Sequence[int], actions: Sequence[str]) -> list[Step]:
        verbs = [_begun(r) if i in again else r.step(a) for i, (r, a) in enumerate(zip(self._remotes, actions, strict=True))]
        steps = await _all(verbs)
        self._ended = [False] * self.num_envs
        done = [i for i, step in enumerate(steps) if step[2] or step[3]]
        if self.autoreset is not AutoresetMode.SAME_STEP:
            for index in done:
                self._ended[index] = True
            return steps
        for index, begun in zip(done, await _all([_begun(self._remotes[i]) for i in done]), strict=True):
            observation, reward, terminated, truncated, info = steps[index]
            final = {"final_obs": observation, "final_info": info}
            steps[index] = (begun[0], reward, terminated, truncated, begun[4] | final)
        return steps


async def _begun(env: RemoteEnv) -> Step:
    observation, info = await env.reset()
    return observation, 0.0, False, False, info


async def _all(verbs: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(verb) for verb in verbs]
    return [task.result() for task in tasks]
