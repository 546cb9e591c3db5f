"""What every game keeps: the rules of the kit, its declared baselines and bounds, and its calm when replies are hostile."""

import math
import random
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from envhub.envs import Env, TaskStream, load_spec, make
from envhub.envs.check import check
from envhub.envs.listing import installed

GAMES = [listed.id for listed in installed() if listed.package == "envhub-games" and listed.id.startswith("game/")]
HOSTILE = {
    "nothing": "",
    "nul": "\0",
    "long": "a" * 1_000_000,
    "surrogate": "\ud800",
    "control": "\x1b[2J",
    "special token": "<|im_end|>",
    "wide digits": "\uff19 \uff11\uff11\uff12\uff12 r\uff11c\uff11=\uff11",
    "negative": "-1 -1",
    "many digits": "1" * 5000,
    "a word within a word": "up" * 100_000,
    "letters that fold to s and i": "\u017fouth \u017ftick r\u0131ght R\u0130GHT h\u0131t",
    "far away": "z99 r0c0=0 999 999 Q Z",
    "a peg and space": "A" + " " * 4000,
    "a cell and space": "r1c1" + " " * 4000,
    "digits and space": "0 " * 1000 + " " * 2000,
    "an early move": "left 5 a1 r1c1=1 hit south " + "." * 5000,
}
Chooser = Callable[[Any, random.Random], str]


def anything(env: Env, chance: random.Random) -> str:
    return chance.choice(env.legal_actions())


def played(name: str, choose: Chooser, count: int) -> tuple[float, list[float]]:
    """Mean success over tasks of the test split, and each episode's total reward."""
    spec = load_spec(name)
    assert spec.tasks is not None
    stream, env, solved, totals = TaskStream(spec.tasks(), "test", 0), cast(Env, make(name)), 0, []
    for place in range(count):
        env.reset(seed=place, options={"task": dict(stream.at(place).data)})
        chance, total, info = random.Random(place), 0.0, dict[str, Any]()
        for _ in range(spec.max_turns):
            _, reward, terminated, _, info = env.step(choose(env, chance))
            total += float(reward)
            if terminated:
                break
        solved += info.get("success", spec.success_reward is not None and total >= spec.success_reward)
        totals.append(total)
    return solved / count, totals


def margin(wanted: float, count: int) -> float:
    """Over three standard errors, and the rounding of what was declared."""
    return 0.0 if wanted == 1.0 else 3.3 * math.sqrt(wanted * (1 - wanted) / count) + 1 / count + 0.005


def test_there_are_fourteen_games_and_each_is_described() -> None:
    assert len(GAMES) == 14
    for name in GAMES:
        spec = load_spec(name)
        assert spec.summary
        assert "game" in spec.tags
        assert set(spec.baselines) == {"random", "solver"}


@pytest.mark.parametrize("name", [*GAMES, "duel/TicTacToe-v1", "duel/KuhnPoker-v1"])
def test_a_game_keeps_every_rule(name: str) -> None:
    found = {f.rule: (f.verdict, f.detail) for f in check(load_spec(name), {})}
    assert {rule: detail for rule, (verdict, detail) in found.items() if verdict == "failed"} == {}
    assert found["state"][0] == "passed"
    if name in GAMES:
        assert found["gold"][0] == "passed"


@pytest.mark.parametrize("name", GAMES)
def test_a_solver_reaches_its_declared_success_within_the_bounds(name: str) -> None:
    spec, count = load_spec(name), 40
    solver = spec.solver
    assert solver is not None
    success, totals = played(name, lambda env, _: solver(env), count)
    assert abs(success - spec.baselines["solver"]) <= margin(spec.baselines["solver"], count)
    assert spec.reward_range[0] <= min(totals) <= max(totals) <= spec.reward_range[1]


@pytest.mark.parametrize("name", GAMES)
def test_a_random_player_stays_near_its_declared_success_within_the_bounds(name: str) -> None:
    spec, count = load_spec(name), 200
    success, totals = played(name, anything, count)
    assert abs(success - spec.baselines["random"]) <= margin(spec.baselines["random"], count)
    assert spec.reward_range[0] <= min(totals) <= max(totals) <= spec.reward_range[1]


@pytest.mark.parametrize("name", GAMES)
def test_who_never_makes_a_move_solves_nothing_and_earns_less_than_the_solver(name: str) -> None:
    spec = load_spec(name)
    solver = spec.solver
    assert solver is not None
    success, idle = played(name, lambda env, _: "", 2)
    assert success == 0.0
    assert spec.reward_range[0] <= min(idle) <= max(idle) <= spec.reward_range[1]
    _, totals = played(name, lambda env, _: solver(env), 40)
    assert max(idle) < sum(totals) / len(totals)


@pytest.mark.parametrize("action", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", GAMES)
def test_a_reply_without_a_move_is_answered_in_words_and_changes_nothing(name: str, action: str) -> None:
    env = cast(Env, make(name))
    shown, told = env.reset(seed=1)
    legal = env.legal_actions()
    took = []
    for _ in range(3):
        begun = time.process_time()
        observation, reward, terminated, truncated, info = env.step(action)
        took.append(time.process_time() - begun)
        assert (info["illegal"], terminated, truncated) == (True, False, False)
        assert observation.startswith(shown)
        assert len(observation) < 2000
        assert float(reward) <= 0
        assert (env.legal_actions(), info["anchor"]) == (legal, told["anchor"])
    assert min(took) < 0.02


@pytest.mark.parametrize("name", GAMES)
def test_a_legal_action_is_never_refused(name: str) -> None:
    env = cast(Env, make(name))
    for seed in range(20):
        env.reset(seed=seed)
        chance, terminated = random.Random(seed), False
        for _ in range(60):
            if terminated:
                break
            _, _, terminated, _, info = env.step(f"I think that {anything(env, chance)}")
            assert "illegal" not in info


@pytest.mark.parametrize("name", GAMES)
def test_nothing_happens_after_the_end(name: str) -> None:
    spec, env = load_spec(name), cast(Env, make(name))
    solver = spec.solver
    assert solver is not None
    env.reset(seed=5)
    terminated, actions = False, list[str]()
    while not terminated:
        actions.append(solver(env))
        _, _, terminated, _, told = env.step(actions[-1])
    for action in {*actions[:20], actions[-1], ""}:
        _, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (0.0, True, False)
        assert (info["illegal"], info["anchor"]) == (True, told["anchor"])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("2048", {"goal": 300}),
        ("2048", {"goal": 1024}),
        ("CliffWalking", {"slippery": "false"}),
        ("FrozenLake", {"size": 1}),
        ("FrozenLake", {"slippery": "false"}),
        ("GuessNumber", {"high": 1}),
        ("LightsOut", {"size": 8}),
        ("Mastermind", {"colours": 10}),
        ("Minesweeper", {"mines": 0}),
        ("Nim", {"mistakes": 2.0}),
        ("Sokoban", {"boxes": 9}),
        ("Sudoku", {"size": 6}),
        ("Sudoku", {"size": 4}),
        ("TicTacToe", {"mistakes": -0.1}),
        ("TowerOfHanoi", {"discs": 6}),
    ],
)
def test_options_that_make_no_game_are_refused(name: str, options: dict[str, Any]) -> None:
    spec = load_spec(f"game/{name}-v1")
    assert spec.tasks is not None
    for build in (spec.make, spec.tasks):
        with pytest.raises(ValueError, match=next(iter(options))):
            build(**options)
