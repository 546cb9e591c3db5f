"""HTTP connections that are cut when their client is too slow: in saying what it wants, or in taking its answer.

Uvicorn itself waits for ever for the end of a head or a body, and for a client to read. WebSockets have pings for that.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def patient(patience_s: float) -> type[HttpToolsProtocol]:
    """Uvicorn's protocol, with a limit on how long a request may take to arrive, and how long an answer may find no taker."""

    class Patient(HttpToolsProtocol):
        _asking: asyncio.TimerHandle | None = None
        _taking: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._asking = self.loop.call_later(patience_s, transport.abort)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._asking is None:
                self._asking = self.loop.call_later(patience_s, self.transport.abort)

        def on_message_complete(self) -> None:
            super().on_message_complete()
            _cancel(self._asking)
            self._asking = None

        def handle_websocket_upgrade(self) -> None:
            _cancel(self._asking)
            self._asking = None
            super().handle_websocket_upgrade()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._taking = self._taking or self.loop.call_later(patience_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(self._taking)
            self._taking = None

        def connection_lost(self, exc: Exception | None) -> None:
            _cancel(self._asking)
            _cancel(self._taking)
            super().connection_lost(exc)

    return Patient


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
