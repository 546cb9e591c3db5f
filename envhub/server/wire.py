"""EnvHub's own wire: one WebSocket, many sessions, msgpack frames of many requests each.

A frame from the client is a list of requests [id, verb, session, argument, request id, sequence number], of which the last two
may be left out; one to it is a list of answers [id, True, value] or [id, False, problem], which come in any order.

    open      argument {"env": id, "wait_s": seconds}     -> {"session", "lease_s", "facts"}
    attach    session                                     -> {"steps", "over"}: go on after a dropped socket
    reset     argument [seed, options]                    -> [observation, info]
    step      argument action                             -> [observation, reward, terminated, truncated, info]
    snapshot, restore, fork, legal_actions, close
    describe, tasks, task                                    argument {"env": id, ...}: no session is needed
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack

from envhub.envs.runtime.arrays import checked_array
from envhub.server.guard import Message, Receive, Scope, Send
from envhub.server.problems import Problem
from envhub.server.service import Service

PROTOCOL = "envhub.1"
MAX_REQUESTS = 4096
MAX_UNSENT = 65_536
MAX_SENT = 1 << 20  # bytes
PACKER = msgpack.Packer()
SMALL: dict[str, Any] = {
    "ext_hook": checked_array,
    "max_str_len": 16 << 20,
    "max_bin_len": 16 << 20,
    "max_array_len": 1 << 20,
    "max_map_len": 1 << 16,
    "max_ext_len": 16 << 20,
}


class Wire:
    """The endpoint."""

    def __init__(self, service: Service) -> None:
        """Serve `service`."""
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one socket until it ends."""
        await receive()
        if PROTOCOL not in scope.get("subprotocols", []):
            await send({"type": "websocket.close", "code": 1002, "reason": f"speak {PROTOCOL}"})
            return
        await send({"type": "websocket.accept", "subprotocol": PROTOCOL})
        await _Socket(self._service, scope["tenant"]).serve(receive, send)


class _Socket:
    """One socket of a tenant."""

    def __init__(self, service: Service, tenant: str) -> None:
        self._service, self._tenant = service, tenant
        self._outbox: list[Any] = []
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._group: asyncio.TaskGroup | None = None

    async def serve(self, receive: Receive, send: Send) -> None:
        """Read until the client goes; its sessions stay, for it may come back."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.TaskGroup() as group:
                self._group = group
                writer = group.create_task(self._write(send))
                helpers: set[asyncio.Task[None]] = set()
                while (message := await receive())["type"] == "websocket.receive":
                    if not self._take(message, helpers):
                        await send({"type": "websocket.close", "code": 1002, "reason": "no frame of requests"})
                        break
                    await self._room.wait()
                for task in (writer, *helpers):
                    task.cancel()

    def _take(self, message: Message, helpers: set[asyncio.Task[None]]) -> bool:
        """Start the requests of a frame; False if it is none."""
        data = message.get("bytes")
        try:
            frame = msgpack.unpackb(data, raw=False, unicode_errors="surrogatepass", **SMALL) if data else None
        except (ValueError, msgpack.UnpackException):
            return False
        if not isinstance(frame, list) or len(frame) > MAX_REQUESTS:
            return False
        for request in frame:
            if not isinstance(request, list) or not 4 <= len(request) <= 6:
                return False
            if not isinstance(request[0], int) or not isinstance(request[1], str):
                return False
            try:
                self._start(request, helpers)
            except Problem as problem:
                self._answer(request[0], None, problem)
        return True

    def _start(self, request: list[Any], helpers: set[asyncio.Task[None]]) -> None:
        number, verb, token, argument, *rest = request
        if verb in SLOW:
            assert self._group is not None
            task = self._group.create_task(self._slow(number, verb, token, argument))
            helpers.add(task)
            task.add_done_callback(helpers.discard)
            return
        request_id = rest[0] if rest and isinstance(rest[0], str) else ""
        session = self._service.sessions.find(token, self._tenant, request_id)
        seq = rest[1] if len(rest) > 1 and isinstance(rest[1], int) else None
        problem = _wrong(verb, argument)
        if problem is not None:
            raise problem

        def done(value: Any, failed: Problem | None) -> None:
            self._answer(number, value, failed)

        self._service.start(session, verb, argument, done, request=request_id, seq=seq)

    async def _slow(self, number: int, verb: str, token: Any, argument: Any) -> None:
        try:
            self._answer(number, await SLOW[verb](self._service, self._tenant, token, argument), None)
        except Problem as problem:
            self._answer(number, None, problem)

    def _answer(self, number: int, value: Any, failed: Problem | None) -> None:
        self._outbox.append((number, True, value) if failed is None else (number, False, failed.body()))
        self._news.set()
        if len(self._outbox) > MAX_UNSENT:
            self._room.clear()  # a client that does not read is not read from

    async def _write(self, send: Send) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            batch, self._outbox = self._outbox, []
            for frame in _frames(batch):  # `send` waits for a client that does not read
                await send({"type": "websocket.send", "bytes": frame})
            self._room.set()


def _frames(answers: Sequence[Any]) -> Iterator[bytes]:
    """Answers in as few frames as hold a mebibyte each; a larger answer has a frame of its own."""
    parts: list[bytes] = []
    size = 0
    for answer in answers:
        part = msgpack.packb(answer, unicode_errors="surrogatepass")
        if parts and size + len(part) > MAX_SENT:
            yield PACKER.pack_array_header(len(parts)) + b"".join(parts)
            parts, size = [], 0
        parts.append(part)
        size += len(part)
    yield PACKER.pack_array_header(len(parts)) + b"".join(parts)


def _wrong(verb: Any, argument: Any) -> Problem | None:
    """What is wrong with a verb's argument."""
    if verb == "step" and not isinstance(argument, str):
        return Problem(422, "action_invalid", "An action is text.")
    if verb == "reset":
        match argument:
            case [None | int() as seed, None | dict()] if seed is None or (not isinstance(seed, bool) and 0 <= seed < 2**63):
                return None
        return Problem(422, "reset_invalid", "A reset takes a seed from 0 to 2**63 - 1 or null, and options or null.")
    return None


async def _open(service: Service, tenant: str, token: Any, argument: Any) -> Any:
    facts = argument if isinstance(argument, dict) else {}
    env_id = str(facts.get("env", ""))
    session = await service.open(tenant, env_id, facts.get("options"), wait_s=facts.get("wait_s", 0.0))
    fleet = service.fleets[env_id]
    return {"session": session.token, "lease_s": fleet.config.lease_s, "facts": fleet.facts}


async def _attach(service: Service, tenant: str, token: Any, argument: Any) -> Any:
    session = service.sessions.find(token, tenant)
    return {"steps": session.steps, "over": session.over}


async def _fork(service: Service, tenant: str, token: Any, argument: Any) -> Any:
    twin = await service.fork(service.sessions.find(token, tenant))
    return {"session": twin.token}


async def _close(service: Service, tenant: str, token: Any, argument: Any) -> Any:
    await service.close(service.sessions.find(token, tenant))


async def _about(verb: str, service: Service, argument: Any) -> Any:
    facts = argument if isinstance(argument, dict) else {}
    return await service.about(str(facts.get("env", "")), verb, facts)


SLOW: dict[str, Any] = {
    "open": _open,
    "attach": _attach,
    "fork": _fork,
    "close": _close,
    "describe": lambda service, tenant, token, argument: _about("describe", service, argument),
    "tasks": lambda service, tenant, token, argument: _about("tasks", service, argument),
    "task": lambda service, tenant, token, argument: _about("task", service, argument),
}
