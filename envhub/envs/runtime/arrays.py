"""Arrays in msgpack: extension type 1 holds [dtype, shape] and the bytes. Images are arrays [height, width, channels] of uint8.

What only passes messages on need not read them: an unread array is a `msgpack.ExtType`, which packs as it came.
"""

import base64
import math
from typing import Any

import msgpack
import numpy as np

CODE = 1
DTYPES = frozenset(np.dtype(kind).str for kind in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))
MOST_DIMENSIONS = 16


def pack_array(value: Any) -> Any:
    """What msgpack cannot pack itself: numpy's arrays and scalars. Raises TypeError for anything else."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.newbyteorder("<").str not in DTYPES or value.ndim > MOST_DIMENSIONS:
        raise TypeError(f"{type(value).__name__} is no plain value")
    plain = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    return msgpack.ExtType(CODE, msgpack.packb([plain.dtype.str, list(value.shape)]) + plain.tobytes())


def unpack_array(code: int, data: bytes) -> Any:
    """The array of an extension, which cannot be written to. Raises ValueError if it is none."""
    if code != CODE:
        raise ValueError(f"extension type {code} is unknown")
    head = msgpack.Unpacker(max_buffer_size=len(data), max_array_len=MOST_DIMENSIONS, max_str_len=8)
    head.feed(data)
    try:
        dtype, shape = head.unpack()
    except (msgpack.UnpackException, ValueError, TypeError) as error:
        raise ValueError("an array without dtype and shape") from error
    if dtype not in DTYPES or not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**40 for n in shape):
        raise ValueError(f"an array of {dtype!r:.20} and {shape!r:.80}")
    body = memoryview(data)[head.tell() :]
    if math.prod(shape) * np.dtype(dtype).itemsize != len(body):
        raise ValueError(f"{len(body)} bytes are no array of {dtype} and {shape}")
    return np.frombuffer(body, dtype).reshape(shape)


def checked_array(code: int, data: bytes) -> msgpack.ExtType:
    """An extension as it came, once it is sure that it holds an array. Raises ValueError if it does not."""
    unpack_array(code, data)
    return msgpack.ExtType(code, data)


def in_json(value: Any) -> Any:
    """Plain values as JSON can hold them: arrays as {"dtype", "shape", "base64"}, bytes as {"base64"}, the rest as it was."""
    match value:
        case msgpack.ExtType():
            return in_json(unpack_array(value.code, value.data))
        case dict():
            return {key if isinstance(key, str) else str(key): in_json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [in_json(inner) for inner in value]
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case np.ndarray():
            return {"dtype": value.dtype.str, "shape": list(value.shape), "base64": base64.b64encode(value.tobytes()).decode()}
    return value
