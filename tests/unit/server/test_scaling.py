"""The number of workers: between its bounds, enough for the load and a little more, and fewer only after a calm while."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envhub.server.scaling import Scaler


@pytest.mark.parametrize(
    ("load", "workers"), [(0, 1), (8, 1), (9, 1), (10, 2), (18, 2), (19, 3), (90, 10), (91, 10), (1000, 10)]
)
def test_there_are_enough_workers_and_room_for_one_more_caller(load: int, workers: int) -> None:
    assert Scaler(1, 10, 10, calm_s=5).wanted(0.0, load) == workers


def test_workers_go_only_after_a_calm_while_and_as_many_as_were_never_needed_in_it() -> None:
    scaler = Scaler(1, 8, 10, calm_s=5)
    assert scaler.wanted(0.0, 60) == 7
    assert [scaler.wanted(float(t), 0) for t in range(1, 6)] == [7] * 5
    assert scaler.wanted(5.5, 30) == 7
    assert scaler.wanted(6.0, 0) == 4  # 30 were held a moment ago: 33 places
    assert scaler.wanted(7.0, 60) == 7  # more at once
    assert scaler.wanted(8.0, 0) == 7  # and the calm begins anew
    assert scaler.wanted(12.9, 0) == 7
    assert scaler.wanted(13.0, 0) == 1


@given(st.integers(1, 5), st.integers(0, 5), st.integers(1, 20), st.lists(st.tuples(st.floats(0, 3), st.integers(0, 300))))
def test_bounds_hold_and_the_load_finds_its_places(low: int, more: int, places: int, walk: list[tuple[float, int]]) -> None:
    scaler, time = Scaler(low, low + more, places, calm_s=4), 0.0
    for pause, load in walk:
        time += pause
        workers = scaler.wanted(time, load)
        assert low <= workers <= low + more
        assert workers >= min(low + more, math.ceil(load / places))
