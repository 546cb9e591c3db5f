"""What every request passes before anything reads it: host, origin, token, size. Pure ASGI, so that WebSockets pass it too."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from envhub.server.auth import Tenants
from envhub.server.config import ServeConfig
from envhub.server.problems import Problem

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "testserver")
OPEN_PATHS = ("/health", "/ready", "/ui")  # the page itself knows nothing; what it asks for needs the token
MAX_PATH = 4096
MAX_HEADERS = 100


class Guard:
    """Refuses what may not enter, and writes the tenant into `scope["tenant"]`."""

    def __init__(self, app: App, config: ServeConfig, tenants: Tenants) -> None:
        """Stand before `app`."""
        self._app, self._tenants, self._max_body = app, tenants, config.max_body_bytes
        self._hosts = None if "*" in config.allowed_hosts else {*LOOPBACK, config.host, *config.allowed_hosts}
        self._origins = config.allowed_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        try:
            headers = self._headers(scope)
            self._check_host(headers)
            self._check_origin(headers)
            open_path = scope["type"] == "http" and scope["path"] in OPEN_PATHS
            scope["tenant"] = "" if open_path else self._tenants.who(headers.get("authorization", ""))
            length = headers.get("content-length", "0")
            if not length.isascii() or not length.isdigit() or int(length[:19]) > self._max_body:
                raise self._too_large()
        except Problem as problem:
            await refuse(scope, receive, send, problem)
            return
        if scope["type"] == "http":
            await self._limited(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _headers(self, scope: Scope) -> dict[str, str]:
        given = scope["headers"]
        if len(given) > MAX_HEADERS or len(scope.get("raw_path") or b"") > MAX_PATH:
            raise Problem(431 if len(given) > MAX_HEADERS else 414, "too_long", "Too many headers, or too long a path.")
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in given}

    def _check_host(self, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        name = host if host.endswith("]") else host.rsplit(":", 1)[0] if host.count(":") == 1 or "]" in host else host
        if self._hosts is not None and name.lower().rstrip(".") not in self._hosts:
            raise Problem(403, "host_forbidden", "This host name is not served.", "Name it in `allowed_hosts`.")

    def _check_origin(self, headers: dict[str, str]) -> None:
        origin = headers.get("origin")
        own = {f"http://{headers.get('host', '')}", f"https://{headers.get('host', '')}"}
        if origin is not None and origin not in own and origin not in self._origins and "*" not in self._origins:
            raise Problem(403, "origin_forbidden", "Browsers may not call from this origin.", "Name it in `allowed_origins`.")

    def _too_large(self) -> Problem:
        return Problem(413, "too_large", f"A body may hold {self._max_body} bytes.")

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request with a body that is cut off at the limit, whatever its headers said."""
        seen, started = 0, False

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_body:
                raise self._too_large()
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except Problem as problem:
            if started:
                raise
            await refuse(scope, receive, send, problem)


async def refuse(scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
    """Answer with a problem: as JSON, or as the refusal of a WebSocket's upgrade."""
    body = json.dumps(problem.body()).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    if problem.retry_after_s is not None:
        headers.append((b"retry-after", str(max(1, round(problem.retry_after_s))).encode()))
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
