import pytest
from hypothesis import given
from hypothesis import strategies as st

from envhub.policy.affinity import pick
from envhub.policy.core import Load
from envhub.policy.throttle import Gate, Throttle

CALM, QUEUED, EVICTING = Load(10, 2, 1000, 50), Load(10, 3, 1000, 0), Load(10, 0, 1000, 51)


def test_it_doubles_until_it_is_pressed_and_then_creeps() -> None:
    throttle = Throttle(8)
    assert [throttle.observe(CALM, 1000) for _ in range(4)] == [16, 32, 64, 128]
    assert throttle.observe(QUEUED, 1000) == 102
    assert throttle.observe(QUEUED, 1000) == 102  # the cut has not shown yet
    assert throttle.observe(EVICTING, 1000) == 81
    throttle.observe(CALM, 1000)
    assert [throttle.observe(CALM, 1000) for _ in range(3)] == [83, 85, 87]


def test_it_grows_only_when_the_limit_is_what_holds_episodes_back() -> None:
    assert Throttle(8).observe(CALM, 7) == 8


def test_it_cuts_what_is_served_and_never_to_nothing() -> None:
    assert Throttle(64).observe(QUEUED, 20) == 16
    assert Throttle(1).observe(QUEUED, 1) == 1


def test_an_idle_engine_is_not_pressed() -> None:
    assert Throttle(8).observe(Load(), 8) == 16


def test_only_the_oldest_take_turns() -> None:
    gate: Gate[str] = Gate(2)
    for age in (5, 3, 9):
        gate.enter(age)
    assert gate.ask(9, "nine") is False
    assert gate.ask(5, "five") is True
    assert gate.leave(3) == ["nine"]
    assert (len(gate), gate.parked) == (2, 0)


def test_a_lower_limit_acts_at_once_and_a_higher_one_lets_go() -> None:
    gate: Gate[str] = Gate(3)
    for age in (1, 2, 3):
        gate.enter(age)
    assert gate.resize(1) == []
    assert gate.ask(3, "three") is False
    assert gate.ask(2, "two") is False
    assert gate.resize(2) == ["two"]
    assert gate.leave(3) == []
    assert gate.parked == 0  # its turn is forgotten


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=40))
def test_everybody_gets_their_turn_in_the_end(limit: int, moves: list[tuple[int, bool]]) -> None:
    gate: Gate[int] = Gate(limit)
    inside: set[int] = set()
    waiting: set[int] = set()
    for age, goes in moves:
        if age not in inside:
            gate.enter(age)
            inside.add(age)
        elif goes:
            inside.discard(age)
            waiting.discard(age)
            freed = gate.leave(age)
            assert set(freed) <= waiting
            waiting -= set(freed)
        elif age not in waiting and not gate.ask(age, age):
            waiting.add(age)
        assert gate.parked == len(waiting)
        assert waiting <= set(sorted(inside)[limit:])
    for age in sorted(inside):
        assert age not in waiting
        waiting -= set(gate.leave(age))


@pytest.mark.parametrize(
    ("loads", "home", "goes"),
    [
        ([3, 1, 1], None, 1),
        ([5, 1, 1], 0, 0),
        ([6, 1, 1], 0, 1),
        ([129, 100], 0, 0),
        ([130, 100], 0, 1),
        ([0, 0], 1, 1),
    ],
)
def test_an_episode_leaves_an_engine_that_falls_behind(loads: list[int], home: int | None, goes: int) -> None:
    assert pick(loads, home) == goes
