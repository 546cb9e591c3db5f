"""Values worked by hand: walks, guesses, boxes and squares."""

import random
from collections import deque
from typing import Any, cast

import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from envhub.envs import Env, TaskStream, load_spec, make
from envhub_games.frozen_lake import MOVES, FrozenLake
from envhub_games.guess_number import GuessNumber
from envhub_games.sokoban import Sokoban, solve
from envhub_games.tic_tac_toe import TicTacToe, ended, free, put, value


def game(name: str, **options: Any) -> Env:
    return cast(Env, make(f"game/{name}-v1", **options))


def stream(name: str, split: str = "train", seed: int = 0) -> TaskStream:
    tasks = load_spec(f"game/{name}-v1").tasks
    assert tasks is not None
    return TaskStream(tasks(), split, seed)


def test_frozen_lake_steps_as_gymnasium_does() -> None:
    for place in range(20):
        rows = list(stream("FrozenLake").at(place).data["map"])
        ours = FrozenLake()
        plain = FrozenLakeEnv(desc=rows, is_slippery=True)
        ours = FrozenLake(slippery=True)
        ours.reset(seed=place, options={"task": {"map": rows}})
        plain.reset(seed=place)
        chance = random.Random(place)
        for _ in range(30):
            move = chance.choice(list(MOVES))
            _, reward, done, _, info = ours.step(move)
            state, wanted, ended_, _, _ = plain.step(MOVES[move])  # type: ignore[no-untyped-call]
            assert (info["anchor"], reward, done) == (str(int(state)), wanted, ended_)
            if done:
                break


def test_frozen_lake_maps_can_be_crossed_within_the_quickstarts_limit() -> None:
    crossed = 0
    for place in range(50):
        rows = list(stream("FrozenLake", "test").at(place).data["map"])
        crossed += _shortest(rows) <= 10
    assert crossed == 50


def _shortest(rows: list[str]) -> int:
    queue, seen = deque([((0, 0), 0)]), {(0, 0)}
    while queue:
        (row, column), steps = queue.popleft()
        if rows[row][column] == "G":
            return steps
        for r, c in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if 0 <= r < 4 and 0 <= c < 4 and rows[r][c] != "H" and (r, c) not in seen:
                seen.add((r, c))
                queue.append(((r, c), steps + 1))
    return 99


def test_cells_and_neighbours_are_named_for_small_models() -> None:
    env = FrozenLake(style="cells", legal="safe")
    observation, _ = env.reset(options={"task": {"map": ["SH", "FG"]}})
    assert observation == "0:@ 1:H 2:F 3:G left:W down:F right:H up:W ?"
    assert env.legal_actions() == ("down",)
    observation, *_ = env.step("I think I should go DOWN.")
    assert observation == "0:S 1:H 2:@ 3:G left:W down:W right:G up:S ?"
    _, reward, terminated, _, info = env.step("right")
    assert (reward, terminated, info["success"]) == (1.0, True, True)


def test_every_sokoban_level_is_solved_by_its_solver() -> None:
    for place in range(15):
        rows = list(stream("Sokoban").at(place).data["level"])
        env = Sokoban()
        env.reset(options={"task": {"level": rows}})
        path = solve(rows)
        results = [env.step(move) for move in path]
        assert results[-1][4]["success"] is True
        assert sum(r[1] for r in results) == pytest.approx(1.1 - 0.01 * len(path))
        assert not any(r[2] for r in results[:-1])


def test_a_box_is_paid_once_however_often_it_is_moved() -> None:
    env = Sokoban(size=7, boxes=2)
    env.reset(options={"task": {"level": ["#######", "#@$.  #", "#     #", "# $.  #", "#     #", "#     #", "#######"]}})
    parts = [env.step(move)[4]["reward_parts"]["placed"] for move in ("right", "right")]
    assert parts == pytest.approx([0.1, -0.1])  # onto the goal, and past it
    rest = [env.step(move) for move in ["down", "right", "right", "up", "left", *["down"] * 2]]
    assert rest[4][4]["reward_parts"]["placed"] == pytest.approx(0.1)
    assert sum(result[4]["reward_parts"]["placed"] for result in rest) == pytest.approx(0.1)
    assert not rest[-1][2]


def test_bisection_finds_every_number_in_seven_guesses() -> None:
    env = GuessNumber()
    for number in range(1, 101):
        env.reset(options={"task": {"number": number}})
        for _ in range(7):
            allowed = env.legal_actions()
            _, reward, done, _, _ = env.step(allowed[(len(allowed) - 1) // 2])
            if done:
                break
        assert (reward, done) == (1.0, True), number


def test_a_perfect_player_never_loses_and_a_perfect_opponent_never_does_either() -> None:
    for mistakes in (0.0, 1.0):
        for place in range(20):
            env = TicTacToe(mistakes=mistakes)
            env.reset(options={"task": dict(stream("TicTacToe").at(place).data)})
            done, reward = False, 0.0
            while not done:
                board = env._board
                move = max(free(board), key=lambda p: value(put(board, p, "X"), "O"))
                _, reward, done, _, _ = env.step(str(move + 1))
            assert ended(env._board)
            assert reward >= 0.5
            assert mistakes or reward == 0.5


def test_taxi_reaches_gymnasiums_reward() -> None:
    env = game("Taxi")
    env.reset(options={"task": {"state": 328}})  # row 3, column 1, passenger at yellow, to red
    total = 0.0
    for move in ["north", "west", "south", "south", "pickup", *["north"] * 4, "dropoff"]:
        _, reward, done, _, _ = env.step(move)
        total += float(reward)
    assert (total, done) == (11.0, True)
