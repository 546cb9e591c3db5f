"""Frames between a process and the environment processes it started: a length of 4 bytes, then msgpack."""

import struct
from typing import IO, Any

import msgpack

from envhub.envs.runtime.arrays import checked_array, pack_array, unpack_array

MAX_FRAME = 64 << 20
LENGTH = struct.Struct("<I")


def pack_frame(message: Any) -> bytes:
    """One message as a frame. Raises ValueError if it is too large or not made of plain values."""
    try:
        body: bytes = msgpack.packb(message, use_bin_type=True, unicode_errors="surrogatepass", default=pack_array)
    except (TypeError, OverflowError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be sent: {error}") from error
    if len(body) > MAX_FRAME:
        raise ValueError(f"message of {len(body)} bytes is over {MAX_FRAME}")
    return LENGTH.pack(len(body)) + body


def unpack_body(body: bytes, *, arrays: bool = True) -> Any:
    """A frame's message; without `arrays` those stay packed, to be passed on. Raises ValueError if it is none."""
    hook = unpack_array if arrays else checked_array
    try:
        return msgpack.unpackb(body, raw=False, strict_map_key=False, unicode_errors="surrogatepass", ext_hook=hook)
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"no msgpack: {error}") from error


def read_frame(stream: IO[bytes]) -> Any:
    """Read one message; None at the end of the stream. Raises ValueError on a torn or oversized frame."""
    head = stream.read(4)
    if not head:
        return None
    length = LENGTH.unpack(head)[0] if len(head) == 4 else MAX_FRAME + 1
    if length > MAX_FRAME:
        raise ValueError("torn or oversized frame")
    body = stream.read(length)
    if len(body) < length:
        raise ValueError("torn frame")
    return unpack_body(body)
