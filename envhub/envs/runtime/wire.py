"""Frames between a process and the environment process it started: a length of 4 bytes, then msgpack."""

import struct
from typing import IO, Any

import msgpack

MAX_FRAME = 64 << 20
_LENGTH = struct.Struct("<I")


def write_frame(stream: IO[bytes], message: Any) -> None:
    """Write one message. Raises ValueError if it is too large or not made of plain values."""
    try:
        body = msgpack.packb(message, use_bin_type=True, unicode_errors="surrogatepass")
    except (TypeError, OverflowError) as error:
        raise ValueError(f"cannot be sent: {error}") from error
    if len(body) > MAX_FRAME:
        raise ValueError(f"message of {len(body)} bytes is over {MAX_FRAME}")
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Read one message; None at the end of the stream. Raises ValueError on a torn or oversized frame."""
    head = stream.read(4)
    if not head:
        return None
    length = _LENGTH.unpack(head)[0] if len(head) == 4 else MAX_FRAME + 1
    if length > MAX_FRAME:
        raise ValueError("torn or oversized frame")
    body = stream.read(length)
    if len(body) < length:
        raise ValueError("torn frame")
    try:
        return msgpack.unpackb(body, raw=False, strict_map_key=False, unicode_errors="surrogatepass")
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"no msgpack: {error}") from error
