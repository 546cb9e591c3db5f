"""One HTTP connection spoken by hand: cheap enough to have hundreds of, and plain enough to break on purpose."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

PATIENCE_S = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


def head(url: str, method: str, path: str, length: int, token: str = "") -> bytes:
    """The head of a request with a body of `length` bytes."""
    lines = [f"{method} {path} HTTP/1.1", f"host: {urlsplit(url).netloc}", f"content-length: {length}"]
    lines += ["content-type: application/json", *([f"authorization: Bearer {token}"] if token else [])]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


class Line:
    """A connection that is kept. Use it in `async with Line(url) as line`."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url, self._token = url, token

    async def __aenter__(self) -> "Line":
        parts = urlsplit(self._url)
        self.reader, self.writer = await asyncio.open_connection(parts.hostname, parts.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.transport.abort()

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request and wait for its answer."""
        data = b"" if body is None else json.dumps(body).encode()
        self.writer.write(head(self._url, method, path, len(data), self._token) + data)
        async with asyncio.timeout(PATIENCE_S):
            return await self.answer()

    async def answer(self) -> Answer:
        """The next answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Answer(int(first.split()[1]), headers, body)
