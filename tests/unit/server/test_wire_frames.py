"""Frames of answers: none lost, none over a mebibyte unless one answer is."""

from typing import Any

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from envhub.server.wire import MAX_SENT, _frames


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 100, 300_000, 600_000, 1_500_000]), min_size=1, max_size=12))
def test_answers_come_whole_and_in_order_in_frames_that_fit(sizes: list[int]) -> None:
    answers: list[Any] = [[number, True, "x" * size] for number, size in enumerate(sizes)]
    frames = list(_frames(answers))
    found = [msgpack.unpackb(frame) for frame in frames]
    assert [answer for frame in found for answer in frame] == answers
    assert all(len(raw) <= MAX_SENT + 5 or len(frame) == 1 for raw, frame in zip(frames, found, strict=True))
