"""An environment behind OpenEnv's wire: `openenv:http://127.0.0.1:8000`, over its WebSocket.

An action is the schema's one required text field, or a JSON object where the schema asks for more. An observation with one
text field is that text; any other is shown as JSON. `done` ends it; `metadata.truncated` says whether it was cut.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from envhub.envs.core import Info
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import GeneratedTasks
from envhub.errors import ConfigError, EnvError

DEADLINE_S = 60.0
MAX_FRAME = 16 << 20
HIDDEN = ("metadata", "done", "reward")


class OpenEnv:
    """A client of one session; the socket opens with the first reset."""

    def __init__(self, url: str, field: str | None) -> None:
        """Play the environment at `url`; replies go into the action's `field`, or are JSON where there is none."""
        self._url, self._field = url, field
        self._socket: ClientConnection | None = None
        self._over = True

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin an episode. Raises EnvError."""
        task = (options or {}).get("task")
        chosen = int(task["seed"]) if task else seed
        if self._socket is None:
            await self._open()
        data = await self._ask({"type": "reset", "data": {} if chosen is None else {"seed": chosen}})
        self._over = False
        return shown(data["observation"]), {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """One step; an action that the server does not take is answered in words. Raises EnvError."""
        if self._over:
            return "The episode is over.", 0.0, True, False, {"illegal": True}
        try:
            sent = self._action(action)
            data = await self._ask({"type": "step", "data": sent})
        except _Invalid as wrong:
            return f"The action was not taken: {wrong}", 0.0, False, False, {"illegal": True}
        told = {**(data.get("metadata") or {}), **(data["observation"].get("metadata") or {})}
        self._over, truncated = bool(data.get("done")), bool(told.get("truncated"))
        return shown(data["observation"]), _reward(data.get("reward")), self._over and not truncated, truncated, {}

    async def close(self) -> None:
        """End the session. Safe to call twice."""
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                async with asyncio.timeout(5):
                    await socket.send('{"type": "close"}')
                    await socket.close()

    def _action(self, text: str) -> Mapping[str, Any]:
        clean = text.encode("utf-8", "replace").decode()
        if self._field is not None:
            return {self._field: clean}
        try:
            value = json.loads(clean)
        except (ValueError, RecursionError) as error:
            raise _Invalid(f"no JSON: {str(error)[:200]}") from error
        if not isinstance(value, dict):
            raise _Invalid("a JSON object belongs here")
        return value

    async def _open(self) -> None:
        address = self._url.replace("http", "ws", 1) + "/ws"
        try:
            self._socket = await connect(address, max_size=MAX_FRAME, open_timeout=DEADLINE_S, compression=None)
        except (OSError, WebSocketException, TimeoutError) as error:
            raise EnvError(f"cannot connect to {address}: {error}", mend="is the server running?") from error

    async def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """One message out, one in. Raises EnvError, or _Invalid for an action that is refused."""
        assert self._socket is not None
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._socket.send(json.dumps(message))
                answer = json.loads(await self._socket.recv())
        except (OSError, WebSocketException, TimeoutError, ValueError, RecursionError) as error:
            await self.close()
            raise EnvError(f"{self._url}: {type(error).__name__}: {error}", mend="see the server's log") from error
        match answer:
            case {"type": "observation", "data": {"observation": dict()} as data}:
                return dict(data)
            case {"type": "error", "data": {"code": "VALIDATION_ERROR"} as data} if message["type"] == "step":
                raise _Invalid(json.dumps(data.get("errors") or data.get("message"))[:1000])
            case {"type": "error", "data": dict() as data}:
                raise EnvError(
                    f"{self._url}: {data.get('code')}: {str(data.get('message'))[:500]}", mend="see the server's log"
                )
        raise EnvError(f"{self._url} answered something else than an observation", mend="is it an OpenEnv server?")


class _Invalid(Exception):
    """The server does not take an action."""


def _reward(value: Any) -> float:
    if value is None:
        return 0.0
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise EnvError(f"the reward is {value!r}", mend="mend the environment")
    return float(value)


def shown(observation: Mapping[str, Any]) -> str:
    """An observation as text."""
    rest = {key: value for key, value in observation.items() if key not in HIDDEN}
    texts = [value for value in rest.values() if isinstance(value, str)]
    return texts[0] if len(rest) == 1 and texts else json.dumps(rest, ensure_ascii=False)


def spec(rest: str) -> EnvSpec:
    """The spec of the environment at a URL. Raises ConfigError if no OpenEnv server answers there."""
    url = rest.rstrip("/")
    try:
        schema, about = (httpx.get(f"{url}/{name}", timeout=30.0).raise_for_status().json() for name in ("schema", "metadata"))
        action = schema["action"]
        required = [name for name in action.get("required", []) if name not in HIDDEN]
        fields = action.get("properties", {})
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"no OpenEnv server at {url}: {error}", mend="give its URL: openenv:http://host:port") from error
    field = required[0] if len(required) == 1 and fields.get(required[0], {}).get("type") == "string" else None
    wanted = "" if field is not None else f"Answer with a JSON object of this schema: {json.dumps(action)}"
    return EnvSpec(
        id=f"openenv:{url}",
        make=lambda: OpenEnv(url, field),
        summary=str(about.get("description") or about.get("name") or "An OpenEnv environment."),
        tasks=lambda: GeneratedTasks(lambda seed: {"seed": seed % 2**31}),
        instructions="\n\n".join(filter(None, (str(about.get("readme_content") or "")[:4096], wanted))),
        max_turns=100,
        reward_range=(-1e6, 1e6),
        inline=True,
        tags=("openenv",),
    )
