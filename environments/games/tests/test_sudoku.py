"""Sudoku: puzzles with one solution, digits that are refused and digits that are taken back."""

import itertools

import pytest

from envhub_games.sudoku import Sudoku, candidates, peers, put, puzzle, solution, solve

FULL = "1234341221434321"
PUZZLE = "12343412214.43.."


def solutions(grid: str, size: int) -> int:
    """Counted by plain trial in every empty cell, in order."""
    if "." not in grid:
        return 1
    place = grid.index(".")
    return sum(solutions(put(grid, place, digit), size) for digit in candidates(grid, place, size))


def test_cells_see_their_row_column_and_box() -> None:
    assert set(peers(0, 4)) == {1, 2, 3, 4, 8, 12, 5}
    assert len(peers(40, 9)) == 20
    assert candidates(PUZZLE, 11, 4) == "3"
    assert candidates("." * 16, 0, 4) == "1234"


@pytest.mark.parametrize(("size", "blanks"), [(4, 9), (9, 30), (9, 45)])
def test_every_puzzle_has_one_solution_and_as_many_blanks_as_wanted(size: int, blanks: int) -> None:
    for seed in range(5):
        grid = puzzle(seed, size, blanks)
        assert grid.count(".") == blanks
        assert solutions(grid, size) == 1
        full = solution(grid, size)
        assert full is not None
        for place in range(size * size):
            assert full[place] not in {full[p] for p in peers(place, size)}


def test_a_grid_that_contradicts_itself_has_no_solution() -> None:
    assert solution(PUZZLE, 4) == FULL
    assert solution("123....4........", 4) is None  # 4 fits nowhere in the first row


def test_digits_are_written_refused_and_taken_back() -> None:
    env = Sudoku(size=4, blanks=3)
    shown, _ = env.reset(options={"task": {"puzzle": PUZZLE}})
    assert shown == "   c1 c2 c3 c4\nr1  1  2  3  4\nr2  3  4  1  2\nr3  2  1  4  .\nr4  4  3  .  ."
    for refused in ("r1c1=2", "r1c1=1", "r1c1=0", "r3c4=4", "r3c4=0", "r5c1=1", "r3c4=5", "r4c3", "r3c44=3"):
        assert env.step(refused)[4]["illegal"], refused
        assert env.grid == PUZZLE
    env.step("Not r4c4=3 but R4C3 = 2.")
    assert env.grid == "12343412214.432."
    env.step("r4c3=0")
    assert env.grid == PUZZLE
    results = [env.step(move) for move in ("r4c3=2", "r4c4=1", "r3c4=3")]
    assert [(result[1], result[2]) for result in results] == [(0.0, False), (0.0, False), (1.0, True)]
    assert results[-1][4]["success"] is True
    assert env.step("r3c4=0")[1:3] == (0.0, True)


def test_a_digit_may_be_written_over_another() -> None:
    env = Sudoku(size=4, blanks=9)
    env.reset(options={"task": {"puzzle": "." * 16}})
    env.step("r1c1=1")
    env.step("r1c1=2")
    assert env.grid == "2" + "." * 15


def test_the_solver_mends_what_is_wrong() -> None:
    for seed, size in itertools.product(range(5), (4, 9)):
        env = Sudoku(size=size, blanks=9)
        env.reset(seed=seed)
        full = solution(env.given, size)
        wrong = [move for move in env.legal_actions() if full and full[(int(move[1]) - 1) * size + int(move[3]) - 1] != move[5]]
        if wrong:
            env.step(wrong[0])
        done, moves = False, 0
        while not done:
            _, reward, done, _, info = env.step(solve(env))
            assert "illegal" not in info
            moves += 1
        assert (reward, env.grid, moves) == (1.0, full, 9 + bool(wrong))
