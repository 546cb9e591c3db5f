"""Reward workers: what they add, what their failures mean, and that others go on meanwhile."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from envhub.envs import Env, EnvSpec, Task
from envhub.envs.rubrics import Graded
from envhub.errors import ConfigError
from envhub.policy.scripted_policy import RandomPolicy, ScriptedPolicy
from envhub.rollout.episode import Place, Stage, play
from envhub.rollout.scoring import Counters, RewardTerms, RewardWorkers
from envhub.types import StopReason, Trajectory
from tests.unit.builders import trajectory

TASK = Task.of({"n": 2})
EXCHANGES = (("see", "go"), ("seen", "stop"))


class Fixed:
    """Gives what it was told to, or what it does."""

    def __init__(self, gives: object, name: str = "own") -> None:
        self.name, self._gives = name, gives
        self.seen: list[Graded] = []

    async def score(self, episode: Graded) -> float | Mapping[str, float]:
        self.seen.append(episode)
        if callable(self._gives):
            self._gives = await self._gives()
        return self._gives  # type: ignore[return-value]


class Slow:
    """Takes a while, and counts how many episodes it holds at once; `full` is set when they are `most_wanted`."""

    name = "slow"

    def __init__(self, seconds: float, most_wanted: int = 1) -> None:
        self._seconds, self._wanted = seconds, most_wanted
        self.now = self.most = 0
        self.full = asyncio.Event()

    async def score(self, episode: Graded) -> float:
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now == self._wanted:
            self.full.set()
        try:
            await asyncio.sleep(self._seconds)
        finally:
            self.now -= 1
        return 1.0


def applied(rewards: RewardWorkers, to: Trajectory | None = None) -> Trajectory:
    return asyncio.run(rewards.apply(to or trajectory(), TASK, EXCHANGES))


def alone(gives: object, *, env_weight: float = 1.0, **terms: Any) -> Trajectory:
    return applied(RewardWorkers([(Fixed(gives), RewardTerms(**terms))], env_weight=env_weight))


# What is added


def test_weighted_scores_are_added_to_the_last_turn_and_to_no_other() -> None:
    before = trajectory(reward=1.0)
    workers = [(Fixed(0.5, "a"), RewardTerms(weight=2.0)), (Fixed(3, "b"), RewardTerms(weight=-0.5))]
    found = applied(RewardWorkers([*workers, (Fixed(9.0, "logged"), RewardTerms(weight=0))]), before)
    assert found.reward == 1.0 + 2.0 * 0.5 - 0.5 * 3
    assert found.turns[0] == before.turns[0]
    assert found.turns[1].reward_parts == {"environment": 1.0, "a": 0.5, "b": 3.0, "logged": 9.0}
    assert found.segments == before.segments
    assert (found.stop, found.success, before.reward) == (StopReason.TERMINATED, True, 1.0)


def test_several_scores_of_one_worker_add_up_and_keep_their_names() -> None:
    found = alone({"style": 0.25, "proof": 0.5}, weight=4.0)
    assert found.reward == 1.0 + 4.0 * 0.75
    assert found.turns[-1].reward_parts == {"environment": 1.0, "own/style": 0.25, "own/proof": 0.5}


def test_the_environments_own_rewards_are_weighed_turn_by_turn() -> None:
    before = trajectory()
    before = replace(
        before, turns=tuple(replace(turn, reward=reward) for turn, reward in zip(before.turns, (2.0, 4.0), strict=True))
    )
    half = applied(RewardWorkers([(Fixed(10.0), RewardTerms())], env_weight=0.5), before)
    assert [turn.reward for turn in half.turns] == [1.0, 12.0]
    none = applied(RewardWorkers([(Fixed(10.0), RewardTerms())], env_weight=0.0), before)
    assert [turn.reward for turn in none.turns] == [0.0, 10.0]
    assert none.turns[-1].reward_parts["environment"] == 6.0


def test_parts_of_the_environment_stay_and_are_not_written_over() -> None:
    before = trajectory()
    before = replace(before, turns=(before.turns[0], replace(before.turns[1], reward_parts={"answer": 1.0})))
    assert alone_on(before, "own").turns[-1].reward_parts == {"answer": 1.0, "environment": 1.0, "own": 2.0}
    assert "both name a part 'answer'" in str(alone_on(before, "answer").failure)


def alone_on(before: Trajectory, name: str) -> Trajectory:
    return applied(RewardWorkers([(Fixed(2.0, name), RewardTerms())]), before)


@pytest.mark.parametrize(("score", "success"), [(0.5, True), (0.0, False), (-1.0, False)])
def test_a_worker_may_decide_success(score: float, success: bool) -> None:
    before = replace(trajectory(), success=not success)
    rewards = RewardWorkers([(Fixed(score), RewardTerms(weight=0, decides_success=True)), (Fixed(1.0, "b"), RewardTerms())])
    assert applied(rewards, before).success is success
    assert alone(score).success is True


def test_what_a_scorer_sees_is_the_whole_episode() -> None:
    scorer = Fixed(1.0)
    applied(RewardWorkers([(scorer, RewardTerms())]), replace(trajectory(reward=0.25), final_observation="the end"))
    assert scorer.seen == [Graded({"n": 2}, EXCHANGES, "stop", TASK.id, "the end", 0.25, True)]


def test_failed_episodes_and_those_without_turns_are_not_scored() -> None:
    scorer = Fixed(1.0)
    rewards = RewardWorkers([(scorer, RewardTerms())])
    failed, empty = trajectory(reward=None), replace(trajectory(), turns=())
    assert applied(rewards, failed) is failed
    assert applied(rewards, empty) is empty
    assert scorer.seen == []


# What fails


def raising(error: BaseException) -> Callable[[], Awaitable[object]]:
    async def run() -> object:
        raise error

    return run


@pytest.mark.parametrize(
    ("gives", "cause"),
    [
        (raising(ValueError("no luck")), "reward worker own raised ValueError: no luck"),
        (raising(TimeoutError("its own")), "reward worker own raised TimeoutError: its own"),
        (math.nan, "reward worker own gave nan, no finite number"),
        (-math.inf, "reward worker own gave -inf, no finite number"),
        ("0.5", "reward worker own gave '0.5', no finite number"),
        (None, "reward worker own gave None, no finite number"),
        (10**400, "no finite number"),
        ({}, "reward worker own gave {}, no finite number"),
        ({"a": 1.0, "b": math.nan}, "reward worker own gave {'a': 1.0, 'b': nan}, no finite number"),
        (lambda: asyncio.sleep(3600), "reward worker own took over 0.05 s"),
    ],
)
def test_a_missing_score_fails_the_episode_or_keeps_its_own_reward(gives: object, cause: str) -> None:
    failed = alone(gives, deadline_s=0.05, decides_success=True)
    assert (failed.stop, failed.reward, failed.success) == (StopReason.FAILED, None, None)
    assert cause in str(failed.failure)
    kept = alone(gives, deadline_s=0.05, on_failure="keep", decides_success=True)
    assert (kept.stop, kept.reward, kept.success, kept.failure) == (StopReason.TERMINATED, 1.0, True, None)
    assert kept.turns[-1].reward_parts == {"environment": 1.0, "own/failed": 1.0}


def test_what_is_kept_leaves_the_others_scores_in_place() -> None:
    rewards = RewardWorkers(
        [(Fixed(raising(OSError())), RewardTerms(on_failure="keep")), (Fixed(3.0, "b"), RewardTerms(weight=0.5))],
        env_weight=2.0,
    )
    found = applied(rewards)
    assert (found.reward, found.turns[-1].reward_parts) == (3.5, {"environment": 1.0, "own/failed": 1.0, "b": 3.0})
    counts = rewards.counters
    assert (counts["own"].scored, counts["own"].failed, counts["b"].scored, counts["b"].failed) == (0, 1, 1, 0)


def test_rewards_that_overflow_together_fail_the_episode() -> None:
    assert "add up to inf" in str(alone(1e308, weight=1e308).failure)


def test_cancelling_cancels_the_scorers_and_gives_their_places_back() -> None:
    slow = Slow(3600)
    rewards = RewardWorkers([(slow, RewardTerms(concurrency=1))])

    async def run() -> tuple[Counters, Counters]:
        async with asyncio.TaskGroup() as group:
            scoring = [group.create_task(rewards.apply(trajectory(), TASK, EXCHANGES)) for _ in range(3)]
            await slow.full.wait()
            during = rewards.counters["slow"]
            for task in scoring:
                task.cancel()
        assert all(task.cancelled() for task in scoring)
        return during, rewards.counters["slow"]

    during, after = asyncio.run(run())
    assert (during.running, during.waiting, slow.now) == (1, 2, 0)
    assert (after.running, after.waiting, after.scored, after.failed) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("workers", "env_weight", "why"),
    [
        ([], 1.0, "different names"),
        ([(Fixed(1), RewardTerms()), (Fixed(2), RewardTerms())], 1.0, "different names"),
        ([(Fixed(1, "environment"), RewardTerms())], 1.0, "different names"),
        ([(Fixed(1, name), RewardTerms(decides_success=True)) for name in "ab"], 1.0, "decide success"),
        ([(Fixed(1), RewardTerms(on_failure="keep"))], 0.0, "without weight"),
        ([(Fixed(1), RewardTerms())], math.nan, "weighs nan"),
    ],
)
def test_workers_that_make_no_sense_are_refused(workers: list[Any], env_weight: float, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RewardWorkers(workers, env_weight=env_weight)


# While others go on


class Count(Env):
    """Two steps, a reward each; keeps count of the environments that are open."""

    open = most = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 2
        Count.open += 1
        return "2 left", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return f"{self.left} left", 1.0, self.left == 0, False, {}

    def close(self) -> None:
        Count.open -= 1


SPEC = EnvSpec(id="test/Count-v1", make=Count, inline=True)


def stage(rewards: RewardWorkers) -> Stage:
    return Stage(SPEC, "1", Count, 5, rewards=rewards)


def place(member: int) -> Place:
    return Place(f"train-000000/{member}.0", "train-000000", member, 0, member)


def test_play_scores_what_was_said_after_it_closed_the_environment() -> None:
    opened: list[int] = []

    async def look() -> float:
        opened.append(Count.open)
        return 0.5

    scorer = Fixed(look)
    on = stage(RewardWorkers([(scorer, RewardTerms())]))
    found = asyncio.run(play(on, ScriptedPolicy(("x", "y")), TASK, place(0)))
    assert (found.reward, [turn.reward for turn in found.turns], opened) == (2.5, [1.0, 1.5], [0])
    (seen,) = scorer.seen
    assert (seen.turns, seen.answer, seen.final_observation) == ((("2 left", "x"), ("1 left", "y")), "y", "0 left")
    assert found.turns[-1].texts == ("1 left", "y")


@pytest.mark.parametrize(("concurrency", "least_s", "most_s"), [(8, 0.2, 0.6), (2, 0.8, 1.6)])
def test_episodes_are_scored_at_once_up_to_the_limit_while_others_play(concurrency: int, least_s: float, most_s: float) -> None:
    slow = Slow(0.2, concurrency)
    rewards = RewardWorkers([(slow, RewardTerms(concurrency=concurrency))])
    on, policy = stage(rewards), RandomPolicy(("a",))
    played: list[float] = []

    async def one(member: int) -> Trajectory:
        return await play(on, policy, TASK, place(member))

    async def run() -> list[Trajectory]:
        async with asyncio.TaskGroup() as group:
            scored = [group.create_task(one(member)) for member in range(8)]
            await slow.full.wait()
            unscored = replace(on, rewards=None)  # what generates goes on while all of them are scored
            for member in range(20):
                await play(unscored, policy, TASK, place(member))
            played.append(time.monotonic() - began)
            assert slow.now == concurrency
        return [task.result() for task in scored]

    began = time.monotonic()
    found = asyncio.run(run())
    assert least_s <= time.monotonic() - began < most_s
    assert played[0] < 0.2
    assert [t.reward for t in found] == [3.0] * 8
    assert slow.most == concurrency
    counts = rewards.counters["slow"]
    assert (counts.scored, counts.waiting, counts.running) == (8, 0, 0)
    assert 1.6 <= counts.seconds < 3.2
    assert rewards.metrics()["rewards/slow/scored"] == 8.0


def test_in_a_game_only_the_policys_own_seat_is_scored() -> None:
    class Duel(Count):
        def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
            self.left -= 1
            return f"{self.left} left", 0.0, self.left == 0, False, {"player": 1, "rewards": [1.0, -1.0]}

    scorer = Fixed(5.0)
    on = replace(stage(RewardWorkers([(scorer, RewardTerms())])), spec=replace(SPEC, players=2), make_env=Duel, seat=1)
    on = replace(on, opponents=(ScriptedPolicy(("first",)),))
    found = asyncio.run(play(on, ScriptedPolicy(("mine",)), TASK, place(0)))
    assert (found.id, found.group, found.reward) == ("train-000000/0.0", "train-000000", -2.0 + 5.0)
    assert [seen.turns for seen in scorer.seen] == [(("1 left", "mine"),)]
