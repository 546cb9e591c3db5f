"""Trajectories as bytes: one schema version, a checksum, and every field checked on the way back."""

import struct
import zlib
from dataclasses import fields
from typing import Any

import msgpack
import numpy as np

from envhub.errors import JournalError
from envhub.types import FinishReason, Segment, StopReason, Trajectory, Turn

VERSION = 1
_HEAD = struct.Struct("<BI")
_DTYPES = {"token_ids": "<i4", "mask": "|b1", "logprobs": "<f4", "versions": "<i4"}
_PLAIN = [f.name for f in fields(Trajectory) if f.name not in ("stop", "turns", "segments")]


def encode(trajectory: Trajectory) -> bytes:
    """A trajectory's bytes: version, CRC-32, then msgpack with arrays as little-endian bytes."""
    body: bytes = msgpack.packb(
        {
            **{name: getattr(trajectory, name) for name in _PLAIN},
            "stop": trajectory.stop.value,
            "turns": [
                [t.segment, t.observation, t.reply, t.reward, t.finish.value, t.anchor, dict(t.reward_parts), t.texts]
                for t in trajectory.turns
            ],
            "segments": [[getattr(s, n).astype(d).tobytes() for n, d in _DTYPES.items()] for s in trajectory.segments],
        },
        unicode_errors="surrogatepass",
    )
    return _HEAD.pack(VERSION, zlib.crc32(body)) + body


def decode(data: bytes) -> Trajectory:
    """The trajectory of `encode`'s bytes.

    Raises:
        JournalError: the bytes are damaged, of another schema version, or contradict themselves.
    """
    try:
        version, checksum = _HEAD.unpack_from(data)
        body = data[_HEAD.size :]
        if version != VERSION or zlib.crc32(body) != checksum:
            raise ValueError(f"schema version {version} or checksum is wrong")
        return _checked(msgpack.unpackb(body, unicode_errors="surrogatepass", strict_map_key=True))
    except (ValueError, TypeError, KeyError, IndexError, struct.error, msgpack.UnpackException) as error:
        raise JournalError(f"a record is damaged: {error}", mend="it is set aside; the run goes on") from error


def _checked(raw: dict[str, Any]) -> Trajectory:
    segments = tuple(_segment(columns) for columns in raw.pop("segments"))
    turns = tuple(_turn(values, segments) for values in raw.pop("turns"))
    return Trajectory(stop=StopReason(raw.pop("stop")), turns=turns, segments=segments, **raw)


def _segment(columns: list[bytes]) -> Segment:
    arrays = [np.frombuffer(c, dtype=d) for c, d in zip(columns, _DTYPES.values(), strict=True)]
    segment = Segment(*arrays)
    if len({len(a) for a in arrays}) != 1:
        raise ValueError("columns of a segment differ in length")
    if not np.isfinite(segment.logprobs).all() or (segment.versions[segment.mask] < 0).any():
        raise ValueError("a log-probability is not finite, or a sampled token has no version")
    return segment


def _turn(values: list[Any], segments: tuple[Segment, ...]) -> Turn:
    segment, observation, reply, reward, finish, anchor, parts, texts = values
    if segment >= 0 and not 0 <= observation[0] <= observation[1] <= reply[0] <= reply[1] <= len(segments[segment]):
        raise ValueError("a turn's span lies outside its segment")
    if not np.isfinite(reward):
        raise ValueError("a reward is not finite")
    return Turn(
        segment,
        tuple(observation),
        tuple(reply),
        float(reward),
        FinishReason(finish),
        anchor,
        parts,
        None if texts is None else tuple(texts),
    )
