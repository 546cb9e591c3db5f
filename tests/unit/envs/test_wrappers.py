"""Lenses: each changes one thing, the same for both kinds of environment; mixtures draw in shares of their weights."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from envhub.envs.core import Env, Info, StateLevel
from envhub.envs.mixture import mixture
from envhub.envs.registry import load_spec
from envhub.envs.wrappers import (
    ActionRetry,
    FormatReward,
    HistoryWindow,
    Lens,
    ObservationBudget,
    TimeLimit,
    build_lenses,
    wrap,
    wrapped_spec,
)
from envhub.errors import ConfigError


class Echo(Env):
    """Says what it hears; "end" ends, "no" is illegal."""

    state_level = StateLevel.STATE

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        return "hello", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        return f"you: {action}", 0.25, action == "end", False, {"illegal": True} if action == "no" else {}


class AsyncEcho:
    """The same, with async verbs."""

    def __init__(self) -> None:
        self._env = Echo()

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        return self._env.reset(seed=seed, options=options)

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        return self._env.step(action)

    async def close(self) -> None: ...


def play(lenses: list[Lens], actions: list[str]) -> list[tuple[str, float, bool, bool, Info]]:
    """The answers to some actions, twice over, by both kinds of environment, which must agree."""
    env = wrap(Echo(), lenses)
    assert isinstance(env, Env)
    env.reset()
    env.step("left over from before")
    first = env.reset(seed=1)
    seen = [(*first[:1], 0.0, False, False, first[1]), *(env.step(a) for a in actions)]

    async def again() -> list[Any]:
        twin = wrap(AsyncEcho(), lenses)
        begun = await twin.reset(seed=1)  # type: ignore[misc]
        return [(*begun[:1], 0.0, False, False, begun[1])] + [await twin.step(a) for a in actions]  # type: ignore[misc]

    assert asyncio.run(again()) == seen
    return seen  # type: ignore[return-value]


def test_a_time_limit_truncates_and_never_hides_an_ending() -> None:
    assert [s[2:4] for s in play([TimeLimit(2)], ["a", "b"])] == [(False, False), (False, False), (False, True)]
    assert play([TimeLimit(2)], ["a", "end"])[-1][2:4] == (True, False)


def test_a_format_reward_is_a_part_of_its_own() -> None:
    lenses: list[Lens] = [FormatReward(r"<a>.*</a>", 0.5)]
    seen = play(lenses, ["<a>x\ny</a>", "x<a>y</a>"])
    assert (seen[1][1], seen[1][4]["reward_parts"]) == (0.75, {"task": 0.25, "format": 0.5})
    assert (seen[2][1], seen[2][4]["reward_parts"]["format"]) == (0.25, 0.0)


def test_a_window_shows_the_last_exchanges_only() -> None:
    seen = play([HistoryWindow(2)], ["a", "b", "c"])
    assert seen[1][0] == "hello\n> a\nyou: a"
    assert seen[3][0] == "you: a\n> b\nyou: b\n> c\nyou: c"


def test_retries_are_counted_in_a_row() -> None:
    seen = play([ActionRetry(1, penalty=-1.0)], ["no", "a", "no", "no"])
    assert [s[3] for s in seen] == [False, False, False, False, True]
    assert seen[-1][1] == -0.75


@pytest.mark.parametrize("length", [10, 100, 5000, 100_000])
def test_a_budget_holds_and_says_what_was_cut(length: int) -> None:
    text = "".join(chr(97 + i % 26) for i in range(length))
    cut = play([ObservationBudget(30, count=len)], [text])[1][0]
    whole = f"you: {text}"
    if len(whole) <= 30:
        assert cut == whole
    else:
        kept = cut.split("\n[")
        ends = len(kept[0])
        assert cut == f"{whole[:ends]}\n[{len(whole) - 2 * ends} characters left out]\n{whole[len(whole) - ends :]}"
        assert len(cut) <= 30 or ends == 0
    assert play([ObservationBudget(30)], ["é" * 40])[1][0].startswith("you: éé")


def test_lenses_nest_and_forward_what_they_do_not_change() -> None:
    spec = wrapped_spec(load_spec("game/FrozenLake-v1"), lambda: [HistoryWindow(1), TimeLimit(5)])
    env = spec.make(size=4)
    assert isinstance(env, Env)
    env.reset(seed=1)
    assert env.legal_actions() == ("left", "down", "right", "up")
    check_env(env, skip_render_check=True)


def test_a_fork_of_a_wrapped_environment_has_a_future_of_its_own() -> None:
    env = wrap(Echo(), [TimeLimit(3)])
    assert isinstance(env, Env)
    env.reset(seed=0)
    env.step("a")
    twin = env.fork()
    assert [twin.step("b")[3], twin.step("c")[3]] == [False, True]
    assert env.step("b")[3] is False


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"name": "time_limt"}, "no wrapper"),
        ({"name": "time_limit"}, "max_turns"),
        ({"name": "time_limit", "max_turns": 0}, "max_turns=0"),
        ({"name": "format_reward", "pattern": "(", "bonus": 1}, "regular expression"),
        ({"name": "action_retry", "retries": 1, "penalty": 2}, "penalty"),
        ({"name": "observation_budget", "max_tokens": 2}, "16 tokens"),
    ],
)
def test_a_wrapper_that_makes_no_sense_is_refused(entry: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build_lenses([entry])
    assert part in str(caught.value)


def test_lenses_are_built_from_a_config() -> None:
    lenses = build_lenses([{"name": "time_limit", "max_turns": 3}, {"name": "history_window", "turns": 2}])
    assert list(map(type, lenses)) == [TimeLimit, HistoryWindow]


def test_a_mixture_draws_in_shares_of_its_weights_and_plays_every_member() -> None:
    small = {"id": "game/FrozenLake-v1", "options": {"size": 3}, "weight": 1}
    spec = mixture("mix/Two-v1", {"game/GuessNumber-v1": 3.0, "small": small})
    assert spec.tasks is not None
    tasks = spec.tasks()
    drawn = [tasks.get("train", i) for i in range(400)]
    assert drawn == [tasks.get("train", i) for i in range(400)]
    shares = Counter(task.data["member"] for task in drawn)
    assert 270 < shares["game/GuessNumber-v1"] < 330
    assert not {t.id for t in drawn} & {tasks.get("test", i).id for i in range(100)}
    env = spec.make()
    assert isinstance(env, Env)
    check_env(env, skip_render_check=True)
    for task in drawn[:20]:
        observation, info = env.reset(seed=5, options={"task": dict(task.data)})
        assert info["member"] == task.data["member"]
        instructions = load_spec("game/FrozenLake-v1" if info["member"] == "small" else "game/GuessNumber-v1").instructions
        assert observation.startswith(instructions)
        if info["member"] == "small":
            assert len(observation.split("\n\n")[1].splitlines()) == 3
    env.close()


@pytest.mark.parametrize("weights", [{}, {"game/GuessNumber-v1": 0.0}, {"game/GuessNumber-v1": -1}, {"no/Such-v1": 1}])
def test_a_mixture_that_makes_no_sense_is_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        mixture("mix/Bad-v1", weights)
