"""The bias report: right numbers by hand, no false alarms, and an alarm where long episodes are dropped."""

import math

import numpy as np
import pytest

from envhub.rollout.bias import Facts, Ledger, compare, design_effect, kolmogorov
from envhub.rollout.config import RolloutConfig
from envhub.rollout.simulate import simulate
from envhub.rollout.workload import Workload


def facts(seconds: float) -> Facts:
    return Facts(turns=None, tokens=None, seconds=seconds, success=1.0)


def test_a_distance_is_that_of_the_two_distribution_functions() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 9.0])
    found = compare(values, np.array([True, True, True, True, False]), np.arange(5))
    assert (found.issued_mean, found.trained_mean) == (3.8, 2.5)
    assert found.distance == pytest.approx(0.2)  # at 4: 4/5 of all against all of the trained


@pytest.mark.parametrize(("x", "p"), [(0.1, 1.0), (1.0, 0.26999967), (1.3581, 0.05), (1.6276, 0.01), (5.0, 0.0)])
def test_kolmogorovs_distribution_has_its_tabled_values(x: float, p: float) -> None:
    assert kolmogorov(x) == pytest.approx(p, abs=2e-5)


def test_values_of_one_task_that_are_alike_count_once() -> None:
    tasks = np.repeat(np.arange(50), 4)
    assert design_effect(np.repeat(np.random.default_rng(0).random(50), 4), tasks) == pytest.approx(4.0)
    assert design_effect(np.random.default_rng(1).random(200), tasks) == pytest.approx(1.0, abs=0.25)


def test_alike_groups_give_no_false_alarm() -> None:
    """Of 400 comparisons of groups dropped at random, about one in a hundred has p below 0.01."""
    alarms = 0
    for seed in range(400):
        chance = np.random.default_rng(seed)
        tasks = np.repeat(np.arange(200), 8)
        values = np.repeat(chance.normal(size=200), 8) + chance.normal(size=1600)
        alarms += compare(values, np.repeat(chance.random(200) < 0.7, 8), tasks).p < 0.01
    assert alarms <= 10


def test_what_is_not_resolved_is_judged_on_neither_side() -> None:
    ledger = Ledger()
    for index in range(4):
        for member in range(2):
            ledger.ended(index, member, facts(1.0 + index))
    ledger.resolved(0, {0, 1})
    ledger.resolved(1, (), "stale")
    ledger.resolved(3, {0})
    report = ledger.report(first_outstanding=2)
    assert report.episodes == 4
    assert report.left_out == {"stale": 2}
    assert report.measures["seconds"].issued_mean == 1.5
    assert report.measures["seconds"].trained_mean == 1.0
    assert "turns" not in report.measures  # nothing is known of them
    ledger.resolved(2, {0, 1})
    assert ledger.report(math.inf).left_out == {"stale": 2, "failed, or slower than its group": 1}


def test_a_group_that_is_put_off_counts_as_it_ends_at_last() -> None:
    ledger = Ledger()
    ledger.ended(0, 0, facts(9.0))
    ledger.put_off(0)
    ledger.ended(0, 0, facts(2.0))
    ledger.resolved(0, {0})
    assert ledger.report(1).measures["seconds"].issued_mean == 2.0


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("kept", [{"max_staleness": 0}, {"max_staleness": 2}, {"extra_groups": 8}])
def test_what_the_scheduler_does_by_itself_shows_no_bias(sigma: float, kept: dict[str, int]) -> None:
    report = simulate(rollout(**kept), Workload(slots=64, sigma=sigma, shared=0.5, updates=60)).bias
    assert report.episodes >= 3000
    assert report.measures["seconds"].p > 0.01
    assert report.measures["success"].p > 0.01


@pytest.mark.parametrize("dropped", [{"max_staleness": 2, "stale": "drop"}, {"extra_members": 1}])
def test_dropping_shows(dropped: dict[str, int | str]) -> None:
    found = simulate(rollout(**dropped), Workload(slots=64, sigma=1.0, shared=0.5, updates=60)).bias.measures["seconds"]
    assert found.p < 1e-6
    assert found.trained_mean < 0.95 * found.issued_mean


def rollout(**values: object) -> RolloutConfig:
    limits = {"episode_deadline_s": 1e9, "group_deadline_s": 1e9}
    return RolloutConfig.model_validate({"group_size": 4, "groups_per_update": 16, **limits, **values})
