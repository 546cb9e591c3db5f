"""One socket to a server for all sessions of an event loop: frames of many requests, answers in any order, and a second try.

A dropped socket is picked up again: unanswered requests are sent once more under their ids, and the server runs none twice.
There are no tasks in the background: the socket is an `asyncio.Protocol`, and reconnecting is done by whoever waits.
"""

import asyncio
import contextlib
import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgpack
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from envhub.envs.runtime.arrays import pack_array, unpack_array
from envhub.errors import EnvError
from envhub.server.wire import PROTOCOL

RECONNECT_S = 30.0
CALL_S = 600.0
MAX_FRAME = 64 << 20


class Refused(EnvError):
    """The server answered with a problem; `status` and `code` are its own."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(str(body.get("detail", "refused")), mend=str(body.get("hint") or "see the server's answer"))
        self.status, self.code = body.get("status", 0), str(body.get("code", ""))


PLAIN: dict[str, Any] = {"raw": False, "strict_map_key": False, "unicode_errors": "surrogatepass", "ext_hook": unpack_array}


class Dropped(Exception):
    """The socket ended before the answer came."""


class Connection(asyncio.Protocol):
    """One socket to a server; it connects when first used and closes when its last session has ended."""

    def __init__(self, base: str, token: str) -> None:
        """Speak to the server at `base` ("http://host:port")."""
        self._base, self._token = base, token
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._protocol: ClientProtocol | None = None
        self._opening: asyncio.Future[None] | None = None
        self._connecting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._outbox: list[Sequence[Any]] = []
        self._parts: list[bytes] = []
        self._leases: dict[str, float] = {}
        self._renewal: asyncio.TimerHandle | None = None

    async def call(
        self,
        verb: str,
        session: str | None,
        argument: Any,
        *,
        request: str = "",
        seq: int | None = None,
        deadline_s: float = CALL_S,
    ) -> Any:
        """Ask and wait. Raises Refused for a problem, EnvError if no answer can be had in time."""
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    if not self.connected:
                        await self._connect()
                    try:
                        return await self.send(verb, session, argument, request, seq)
                    except Dropped:
                        if not request and verb not in ("attach", "describe", "tasks", "task", "legal_actions"):
                            raise EnvError(f"{self._base}: the connection was lost", mend="see the server's log") from None
        except TimeoutError as error:
            raise EnvError(f"{self._base}: {verb} took over {deadline_s:g} s", mend="see the server's /ready") from error

    @property
    def connected(self) -> bool:
        """Whether a request could be sent at once."""
        return self._protocol is not None and self._protocol.state is State.OPEN

    def send(
        self, verb: str, session: str | None, argument: Any, request: str = "", seq: int | None = None
    ) -> asyncio.Future[Any]:
        """Send one request of a connected socket; its answer to come. Fails with Dropped if the socket ends first."""
        number = next(self._numbers)
        answer = self._waiting[number] = self._loop.create_future()
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append((number, verb, session, argument, request, seq))
        return answer

    def hold(self, session: str, lease_s: float) -> None:
        """Keep a session's lease while nothing is asked of it."""
        self._leases[session] = lease_s
        if self._renewal is None:
            self._renewal = self._loop.call_later(lease_s / 3, self._renew)

    def drop(self, session: str) -> None:
        """A session has ended; the socket closes with the last one."""
        self._leases.pop(session, None)
        if not self._leases and self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        if not self._leases and self._transport is not None and not self._waiting:
            self._transport.close()

    async def _connect(self) -> None:
        async with self._connecting:
            if self.connected:
                return
            until, pause = self._loop.time() + RECONNECT_S, 0.05
            while True:
                try:
                    await self._connect_once()
                    return
                except (OSError, Dropped, WebSocketException) as error:
                    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403, 404):
                        problem = f"{self._base} refused: {error.response.status_code}"
                        raise EnvError(problem, mend="give a valid token; is this an EnvHub server?") from error
                    if self._loop.time() > until:
                        raise EnvError(f"cannot connect to {self._base}: {error}", mend="is the server running?") from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, 2.0)

    async def _connect_once(self) -> None:
        parts = urlsplit(self._base)
        secure = parts.scheme == "https"
        uri = parse_uri(f"{'wss' if secure else 'ws'}://{parts.netloc}{parts.path.rstrip('/')}/wire")
        self._protocol = ClientProtocol(uri, subprotocols=[Subprotocol(PROTOCOL)], max_size=MAX_FRAME)
        self._opening = self._loop.create_future()
        transport, _ = await self._loop.create_connection(lambda: self, uri.host, uri.port, ssl=secure or None)
        self._transport = transport
        request = self._protocol.connect()
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        self._protocol.send_request(request)
        self._write_out()
        await self._opening

    def _flush(self) -> None:
        batch, self._outbox = self._outbox, []
        if self._protocol is None or self._protocol.state is not State.OPEN:
            self._fail([request[0] for request in batch])
            return
        try:
            frame = msgpack.packb(batch, unicode_errors="surrogatepass", default=pack_array)
        except (TypeError, ValueError, OverflowError) as error:
            for request in batch:
                answer = self._waiting.pop(request[0], None)
                if answer is not None and not answer.done():
                    answer.set_exception(EnvError(f"cannot be sent: {error}", mend="send plain values"))
            return
        self._protocol.send_binary(frame)
        self._write_out()

    def _write_out(self) -> None:
        assert self._protocol is not None
        assert self._transport is not None
        for data in self._protocol.data_to_send():
            if data:
                self._transport.write(data)
            elif self._transport.can_write_eof():
                self._transport.write_eof()

    def _renew(self) -> None:
        self._renewal = None
        if not self._leases:
            return
        if self.connected:
            for session in self._leases:
                self.send("attach", session, None).add_done_callback(_looked_at)
        self._renewal = self._loop.call_later(min(self._leases.values()) / 3, self._renew)

    # What the event loop tells

    def data_received(self, data: bytes) -> None:
        """Frames arrive."""
        assert self._protocol is not None
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif self._opening is not None and not self._opening.done():
                failed = self._protocol.handshake_exc
                self._opening.set_result(None) if failed is None else self._opening.set_exception(failed)
        if self._transport is not None and not self._transport.is_closing():
            self._write_out()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket has ended."""
        self._protocol, self._transport = None, None
        self._parts.clear()
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(Dropped(str(error or "closed")))
        self._fail(list(self._waiting))

    def _fail(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            answer = self._waiting.pop(number, None)
            if answer is not None and not answer.done():
                answer.set_exception(Dropped())

    def _frame(self, frame: Frame) -> None:
        if frame.opcode in (Opcode.BINARY, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if frame.fin:
                body, self._parts = b"".join(self._parts), []
                with contextlib.suppress(ValueError, TypeError, msgpack.UnpackException):
                    self._answers(msgpack.unpackb(body, **PLAIN))

    def _answers(self, answers: Sequence[Any]) -> None:
        for number, good, value in answers:
            answer = self._waiting.pop(number, None)
            if answer is not None and not answer.done():
                answer.set_result(value) if good else answer.set_exception(Refused(value))


def _looked_at(answer: asyncio.Future[Any]) -> None:
    """A lease that could not be renewed is told by the session's next verb."""
    if not answer.cancelled():
        answer.exception()


_connections: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str], Connection]]" = (
    weakref.WeakKeyDictionary()
)


def connection(base: str, token: str) -> Connection:
    """The running loop's connection to a server."""
    mine = _connections.setdefault(asyncio.get_running_loop(), {})
    if (base, token) not in mine:
        mine[base, token] = Connection(base, token)
    return mine[base, token]
