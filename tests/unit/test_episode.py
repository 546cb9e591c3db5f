"""`play` and the driver: whatever an environment does, the record tells the truth."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from envhub.envs import Env, EnvSpec, RewardKind, Task
from envhub.errors import RunFailed
from envhub.policy.scripted_policy import RandomPolicy, ScriptedPolicy
from envhub.rollout.config import RolloutConfig
from envhub.rollout.driver import RolloutDriver
from envhub.rollout.episode import Place, Stage, play
from envhub.rollout.scheduler import Scheduler
from envhub.types import StopReason, Trajectory, TrajectoryGroup

TASK = Task.of({"n": 3})
ANYBODY = RandomPolicy(("a", "b"))
PLACE = Place("train-000000/0.0", "train-000000", 0, 0, 11)


class Countdown(Env):
    """Ends after as many steps as the task says; `trouble` is what it does on the way."""

    closed = 0

    def __init__(self, trouble: Callable[[int], Any] = lambda step: None) -> None:
        self.trouble = trouble

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = (self.task_of(options) or {"n": 3})["n"]
        return f"{self.left} left", {"anchor": str(self.left)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        given = self.trouble(self.left)
        if given is not None:
            return given  # type: ignore[no-any-return]
        done = self.left == 0
        info: dict[str, Any] = {"anchor": str(self.left)}
        return f"{self.left} left", 1.0, done, False, info | ({"success": True} if done else {})

    def close(self) -> None:
        Countdown.closed += 1


def stage(trouble: Callable[[int], Any] = lambda step: None, **changes: Any) -> Stage:
    spec = EnvSpec(id="test/Countdown-v1", make=Countdown, summary="", inline=True)
    made = Stage(spec, "1", lambda: Countdown(trouble), 10)
    return replace(made, **changes)


def played(on: Stage, policy: Any = ANYBODY) -> Trajectory:
    before = Countdown.closed
    result = asyncio.run(play(on, policy, TASK, PLACE))
    assert Countdown.closed == before + 1, "the environment was not closed"
    return result


def test_an_episode_is_recorded_turn_by_turn() -> None:
    found = played(stage(), ScriptedPolicy(("x", "y", "z")))
    assert [t.texts for t in found.turns] == [("3 left", "x"), ("2 left", "y"), ("1 left", "z")]
    assert [t.anchor for t in found.turns] == ["3", "2", "1"]
    assert (found.stop, found.success, found.reward, found.final_observation) == (
        StopReason.TERMINATED,
        True,
        3.0,
        "0 left",
    )


def test_the_turn_limit_truncates_and_does_not_terminate() -> None:
    found = played(stage(max_turns=2))
    assert (found.stop, found.success, found.reward) == (StopReason.TRUNCATED, None, 2.0)


def test_cumulative_rewards_are_taken_apart() -> None:
    on = stage(lambda left: (f"{left}", float(3 - left) * 2, left == 0, False, {}))
    found = played(replace(on, spec=replace(on.spec, reward_kind=RewardKind.CUMULATIVE)))
    assert ([t.reward for t in found.turns], found.reward) == ([2.0, 2.0, 2.0], 6.0)


def raising(left: int) -> None:
    raise ZeroDivisionError("inside the environment")


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        (raising, "ZeroDivisionError: inside the environment"),
        (lambda left: ("x", float("nan"), False, False, {}), "no finite number"),
        (lambda left: ("x", "much", False, False, {}), "no finite number"),
        (lambda left: (b"x", 1.0, False, False, {}), "step gave tuple"),
        (lambda left: "x", "step gave str"),
    ],
)
def test_a_broken_environment_gives_a_failed_episode_without_reward(trouble: Callable[[int], Any], cause: str) -> None:
    found = played(stage(trouble))
    assert found.failed
    assert found.reward is None
    assert cause in str(found.failure)


def test_a_hung_environment_is_given_up_at_its_deadline() -> None:
    with ThreadPoolExecutor(2) as threads:
        on = stage(lambda left: time.sleep(0.3), turn_deadline_s=0.05, threads=threads)
        found = played(replace(on, spec=replace(on.spec, inline=False)))
    assert found.failed
    assert "step took over 0.05 s" in str(found.failure)


def test_a_policy_without_an_answer_fails_the_episode() -> None:
    found = played(stage(), ScriptedPolicy(("x",)))
    assert found.failed
    assert "no more lines" in str(found.failure)


def test_cancelling_closes_the_environment() -> None:
    class Never:
        def seat(self, **_: Any) -> "Never":
            return self

        async def act(self, observation: str) -> None:
            await asyncio.Event().wait()

        def segments(self) -> tuple[()]:
            return ()

        def close(self) -> None:
            pass

    async def cut() -> None:
        async with asyncio.timeout(0.02):
            await play(stage(), Never(), TASK, PLACE)  # type: ignore[arg-type]

    before = Countdown.closed
    with pytest.raises(TimeoutError):
        asyncio.run(cut())
    assert Countdown.closed == before + 1


class Memory:
    """A record that keeps what it is told."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.let_go: list[str] = []

    def append(self, trajectories: Sequence[Trajectory]) -> None:
        self.written += [t.id for t in trajectories]

    def supersede(self, ids: Sequence[str], reason: str) -> None:
        self.let_go += ids


async def drive(on: Stage, config: RolloutConfig, updates: int, record: Memory) -> list[tuple[TrajectoryGroup, ...]]:
    scheduler = Scheduler(config, seed=3, total_groups_wanted=updates * config.groups_per_update)
    driver = RolloutDriver(scheduler, partial(play, on, RandomPolicy(("a", "b"))), lambda index: TASK, record)
    found = []
    async with asyncio.timeout(20), driver.running():
        for update in range(updates):
            found.append(await driver.next_groups())
            driver.published(update + 1)
    return found


@pytest.mark.parametrize("staleness", [0, 2])
def test_the_driver_hands_over_whole_groups_that_were_written_down_before(staleness: int) -> None:
    record = Memory()
    config = RolloutConfig(group_size=3, groups_per_update=2, max_staleness=staleness)
    found = asyncio.run(drive(stage(), config, 4, record))
    names = [t.id for groups in found for group in groups for t in group.trajectories]
    assert len(set(names)) == 24
    assert set(names) <= set(record.written)
    assert [group.index for groups in found for group in groups] == list(range(8))


def test_the_driver_retries_what_fails_and_keeps_failures_out_of_groups() -> None:
    starts = iter(range(1000))
    record = Memory()
    on = stage()
    on = replace(on, make_env=lambda: Countdown(raising if next(starts) % 3 == 0 else lambda left: None))
    found = asyncio.run(drive(on, RolloutConfig(group_size=3, groups_per_update=2), 2, record))
    kept = [t for groups in found for group in groups for t in group.trajectories]
    assert len(kept) == 12
    assert not any(t.failed for t in kept)
    assert len(record.written) > 12


@pytest.mark.timeout(30)
def test_the_driver_puts_groups_off_and_lets_twins_go() -> None:
    """Groups that are too slow for their round are let go, and come again; every group is trained on once."""
    chance = random.Random(1)
    record = Memory()
    on = replace(stage(), make_env=lambda: Countdown(lambda left: time.sleep(chance.choice((0.0, 0.0, 0.02)))))
    config = RolloutConfig(group_size=3, groups_per_update=2, extra_groups=2, hedge_after=1.0, max_in_flight=4)
    found = asyncio.run(drive(on, config, 6, record))
    names = [t.id for groups in found for group in groups for t in group.trajectories]
    assert sorted(group.index for groups in found for group in groups) == list(range(12))
    assert len(set(names)) == 36
    assert set(names) <= set(record.written)
    assert set(names).isdisjoint(record.let_go)


def test_a_run_whose_environment_always_fails_stops_with_the_cause() -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(drive(stage(raising), RolloutConfig(group_size=4, groups_per_update=8), 1, Memory()))
    assert caught.group_contains(RunFailed, match="ZeroDivisionError")
