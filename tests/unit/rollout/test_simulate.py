import math
from typing import Literal

import pytest
from pydantic import ValidationError

from envhub.errors import RunFailed
from envhub.rollout.config import RolloutConfig
from envhub.rollout.simulate import Simulation, simulate
from envhub.rollout.workload import Workload


def run(staleness: int, *, updates: int = 60, stale: Literal["mask", "drop"] = "mask", **workload: object) -> Simulation:
    """64 episodes an update, on 64 slots, by default."""
    config = RolloutConfig(group_size=8, groups_per_update=8, max_staleness=staleness, stale=stale)
    return simulate(config, Workload.model_validate({"updates": updates, **workload}))


def test_equal_episodes_make_a_synchronous_run_that_can_be_worked_out_by_hand() -> None:
    found = run(0, updates=5, sigma=0, mean_s=2, train_s=3)
    assert found.seconds_per_update == pytest.approx(5)  # 2 s of playing, then 3 s of training
    assert found.slots_idle == pytest.approx(3 / 5)
    assert found.trainer_idle == pytest.approx(2 / 5)
    assert (found.trained, found.dropped, found.staleness_max) == (5 * 64, 0, 0)


def test_half_the_slots_play_in_two_waves() -> None:
    found = run(0, updates=5, sigma=0, mean_s=2, train_s=3, slots=32)
    assert found.seconds_per_update == pytest.approx(7)
    assert found.slots_idle == pytest.approx(3 / 7)


def test_overlap_hides_the_shorter_of_playing_and_training() -> None:
    found = run(2, updates=5, sigma=0, mean_s=2, train_s=3)
    assert found.seconds_per_update == pytest.approx((2 + 5 * 3) / 5)  # the trainer waits for the first update only


def test_a_synchronous_update_waits_for_the_slowest_of_its_episodes() -> None:
    found = run(0, updates=400)
    assert found.seconds_per_update == pytest.approx(7.08 + 1, rel=0.05)  # E[max of 64] at sigma 1, specified mean 1
    assert found.duration_bias == pytest.approx(1)  # nothing is lost


def test_two_updates_of_staleness_are_three_times_faster_under_a_heavy_tail() -> None:
    assert run(0).seconds_per_update > 3 * run(2).seconds_per_update


@pytest.mark.parametrize("staleness", [0, 1, 2, 4])
@pytest.mark.parametrize("sigma", [0.5, 1.5])
def test_no_token_is_older_than_the_bound_when_it_is_trained_on(staleness: int, sigma: float) -> None:
    found = run(staleness, sigma=sigma)
    assert found.staleness_max == staleness
    assert found.trained == 60 * 64


def test_the_price_of_a_hard_bound_is_paid_by_long_episodes_and_reported() -> None:
    found = run(2, stale="drop")
    assert found.dropped > 0
    assert found.tokens_masked == 0
    assert found.trained_mean_s < found.issued_mean_s < found.dropped_mean_s
    assert found.duration_bias == found.trained_mean_s / found.issued_mean_s


def test_masked_tokens_are_the_price_of_losing_no_episode() -> None:
    found = run(2, updates=200)
    assert found.dropped == 0
    assert 0 < found.tokens_masked < 0.3
    assert found.tokens_above == 0
    assert found.duration_bias == pytest.approx(1, abs=0.02)


def test_twins_make_up_for_episodes_that_never_end() -> None:
    config = RolloutConfig(group_size=8, groups_per_update=8, episode_deadline_s=30, group_deadline_s=90)
    work = Workload(updates=60, sigma=0.3, fail_stop=0.03)
    alone = simulate(config, work)
    twins = simulate(config.model_copy(update={"hedge_after": 1.0}), work)
    assert alone.seconds_per_update > 20  # nearly every update waits for a deadline
    assert twins.seconds_per_update < 5
    assert twins.hedged > 60
    assert twins.trained == 60 * 64


def test_long_rounds_are_faster_and_lose_nothing() -> None:
    config = RolloutConfig(group_size=8, groups_per_update=32)
    work = Workload(updates=120, slots=512, sigma=1.0, shared=0.5)
    whole, rounds = simulate(config, work), simulate(config.model_copy(update={"extra_groups": 16}), work)
    assert whole.steady_s > 2 * rounds.steady_s
    assert rounds.staleness_max == 0
    assert rounds.trained_mean_s == pytest.approx(whole.trained_mean_s)  # the very same episodes
    assert (rounds.trained, rounds.dropped) == (120 * 256, 0)
    assert rounds.slots_wasted > 0.05  # what it costs


def test_the_same_arguments_give_the_same_run_and_another_seed_another() -> None:
    assert run(2) == run(2)
    assert run(2, seed=1) != run(2)


def test_an_episode_that_hangs_costs_its_deadline_and_no_more() -> None:
    config = RolloutConfig(group_size=4, groups_per_update=4, episode_deadline_s=5, group_deadline_s=20)
    found = simulate(config, Workload(updates=20, slots=16, sigma=0, fail_stop=0.25, train_s=0))
    assert found.trained_mean_s == 1.0
    assert 1 <= found.seconds_per_update <= 21  # at worst a group is closed at its deadline and another one is played
    assert found.trained <= 20 * 16


def test_durations_that_were_measured_are_drawn_from() -> None:
    found = run(0, recorded_s=(2.0, 4.0))
    assert found.issued_mean_s == pytest.approx(3.0, abs=0.1)
    assert found.seconds_per_update == pytest.approx(5.0)  # one of 64 takes 4 s, and training 1 s
    assert math.isnan(found.dropped_mean_s)


def test_a_duration_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValidationError, match="not positive"):
        Workload(recorded_s=(1.0, 0.0))


def test_a_run_that_fails_too_often_fails_in_simulation() -> None:
    with pytest.raises(RunFailed, match="episodes failed"):
        run(0, failing=0.9)


def test_some_failures_are_played_again() -> None:
    found = run(0, failing=0.1)
    assert found.trained > 0.99 * 60 * 64  # three attempts: one in a thousand is lost for good
