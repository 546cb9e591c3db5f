"""Values worked by hand: the reckoning behind the solvers."""

from typing import cast

import pytest

from envhub.envs import Env, make
from envhub_games import lights_out, mastermind, minesweeper, nim, tic_tac_toe, tower_of_hanoi, twenty_forty_eight
from envhub_games.frozen_lake import policy


def test_mastermind_answers_as_the_rules_say() -> None:
    assert mastermind.pegs("1122", "1122") == (4, 0)
    assert mastermind.pegs("1122", "2211") == (0, 4)
    assert mastermind.pegs("1123", "1456") == (1, 0)
    assert mastermind.pegs("1234", "1143") == (1, 2)
    after = mastermind.consistent((("1122", (0, 0)),), 4, 6)
    assert len(after) == 4**4
    assert after[0] == "3333"
    env = cast(Env, make("game/Mastermind-v1"))
    env.reset(options={"task": {"code": "1234"}})
    assert env.step("I guess 1 1 4 3, no: 1143.")[0] == "1143: 1 right, 2 elsewhere"


def test_a_press_turns_five_lamps_and_gauss_finds_the_fewest() -> None:
    assert lights_out.turned(0, 3) == {0, 1, 3}
    assert lights_out.turned(4, 3) == {1, 3, 4, 5, 7}
    lit = lights_out.turned(0, 5) ^ lights_out.turned(12, 5)
    assert lights_out.presses(lit, 5) == [0, 12]  # 5 by 5 has a kernel of four: the fewest of them is taken
    env = cast(Env, make("game/LightsOut-v1", size=3))
    env.reset(options={"task": {"lit": [0, 1, 3]}})
    assert env.step("press a1")[1:3] == (1.0, True)


@pytest.mark.parametrize(("pegs", "moves"), [("AAA", 7), ("CCA", 7), ("BCC", 1), ("AAAAA", 31), ("BBBA", 8)])
def test_the_tower_is_moved_in_the_fewest_moves(pegs: str, moves: int) -> None:
    state, count = pegs, 0
    while set(state) != {"C"}:
        count += 1
        source, target = tower_of_hanoi.best_move(state)
        disc = state.index(source)
        assert target not in state[:disc]
        state = state[:disc] + target + state[disc + 1 :]
    assert count == moves


def test_nim_is_won_by_its_sum() -> None:
    assert nim.best((3, 4, 5)) == (0, 2)  # leaves 1, 4, 5
    assert nim.best((1, 4, 5)) == (2, 1)  # lost: one of the largest
    assert nim.take((1, 4, 5), 2, 3) == (1, 4, 2)


def test_mines_are_counted_exactly() -> None:
    odds = minesweeper.chances({0: 1}, 4, 1)
    assert {place: odds[place] for place in (1, 4, 5)} == {
        1: pytest.approx(1 / 3),
        4: pytest.approx(1 / 3),
        5: pytest.approx(1 / 3),
    }
    assert odds[15] == 0.0
    one = minesweeper.chances({0: 0, 1: 1, 4: 0, 5: 1, 8: 1, 9: 2, 2: 1}, 4, 2)
    assert all(0 <= chance <= 1 for chance in one.values())
    assert sum(one.values()) == pytest.approx(2.0)


@pytest.mark.parametrize(("size", "mines"), [(4, 1), (5, 4), (8, 12)])
def test_no_field_is_won_before_the_first_move(size: int, mines: int) -> None:
    for seed in range(60):
        env = minesweeper.Minesweeper(size=size, mines=mines)
        env.reset(options={"task": dict(minesweeper.field(seed, size, mines))})
        assert env.legal_actions()


def test_an_opponent_that_errs_is_reckoned_with() -> None:
    board = "XOXXOO.X."  # O must stop 1-4-7; then the board fills to a draw
    assert tic_tac_toe.expected(board, 0.0) == 0.5
    assert tic_tac_toe.expected(board, 1.0) == 0.75
    assert tic_tac_toe.expected(board, 0.5) == 0.625


def test_numbers_with_a_sign_are_no_move_of_nim() -> None:
    env = cast(Env, make("game/Nim-v1"))
    env.reset(options={"task": {"heaps": [3, 4, 5], "opponent": 0}})
    assert env.step("-1 -1")[4]["illegal"]
    assert "illegal" not in env.step("Heap 9 is not there, so 3 1.")[4]


def test_tiles_join_once_a_move() -> None:
    assert twenty_forty_eight.slide((2, 2, 2, 2)) == (4, 4, 0, 0)
    assert twenty_forty_eight.slide((4, 2, 2, 0)) == (4, 4, 0, 0)
    assert twenty_forty_eight.slide((0, 2, 0, 2)) == (4, 0, 0, 0)
    board = ((2, 0, 0, 0), (2, 0, 0, 0), (0, 0, 0, 0), (4, 0, 0, 0))
    assert twenty_forty_eight.push(board, "up")[0][0] == 4
    assert twenty_forty_eight.push(board, "down") == ((0, 0, 0, 0), (0, 0, 0, 0), (4, 0, 0, 0), (4, 0, 0, 0))
    assert twenty_forty_eight.push(board, "right")[0] == (0, 0, 0, 2)


def test_the_lakes_policy_walks_round_holes() -> None:
    best = policy(("SHF", "FHF", "FFG"), False)
    assert [best[place] for place in (0, 3, 6, 7)] == ["down", "down", "right", "right"]
    slippery = policy(("SF", "FG"), True)
    assert slippery[0] in ("down", "right")
