from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envhub.algo.advantages import Floats, Scale, group_advantages, is_constant, max_variance_subset

EIGHT = np.array([1.0, 0, 0, 1, 1, 0, 0, 0])
REWARDS = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=2, max_size=12).map(np.array)


@pytest.mark.parametrize(
    ("scale", "ddof", "eps", "won", "lost"),
    [
        ("std", 1, 1e-6, 1.207612396, -0.724567437),
        ("std", 1, 1e-4, 1.207381441, -0.724428864),
        ("std", 0, 1e-6, 1.290991782, -0.774595069),
        ("none", 1, 1e-6, 0.625, -0.375),
        ("loo", 1, 1e-6, 0.7142857143, -0.4285714286),
        ("mean", 1, 1e-6, 1.6666666667, -1.0),
    ],
)
def test_a_group_of_eight_has_the_worked_advantages(scale: Scale, ddof: int, eps: float, won: float, lost: float) -> None:
    found = group_advantages(EIGHT, scale=scale, ddof=ddof, eps=eps)
    np.testing.assert_allclose(found, np.where(EIGHT == 1, won, lost), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("count", "value"), [(7, 0.1), (6, 0.3), (63, 2.3), (1, 3.0)])
def test_equal_rewards_have_an_advantage_of_exactly_zero(count: int, value: float) -> None:
    rewards = np.full(count, value, dtype=np.float32).astype(np.float64)
    assert (group_advantages(rewards, scale="std", eps=1e-9) == 0.0).all()


@pytest.mark.parametrize("rewards", [[], [1.0, np.nan], [np.inf, 0.0]])
def test_rewards_that_are_not_finite_are_refused(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages(np.array(rewards), scale="std")


@given(REWARDS, st.sampled_from(["std", "none", "loo"]))
def test_advantages_of_a_group_sum_to_zero(rewards: Floats, scale: Scale) -> None:
    assert abs(group_advantages(rewards, scale=scale).sum()) < 1e-6 * max(1.0, np.abs(rewards).max())


@given(REWARDS, st.randoms())
def test_advantages_do_not_depend_on_the_order(rewards: Floats, chance: Random) -> None:
    order = list(range(len(rewards)))
    chance.shuffle(order)
    straight = group_advantages(rewards, scale="std")[order]
    np.testing.assert_allclose(group_advantages(rewards[order], scale="std"), straight, rtol=1e-6, atol=1e-9)


def test_the_kept_subset_holds_the_best_and_the_worst() -> None:
    kept = max_variance_subset(np.array([0.5, 0.0, 1.0, 0.4, 0.9, 0.1]), 4, np.random.default_rng(0))
    assert kept.tolist() == [1, 2, 4, 5]


def test_ties_are_broken_by_chance_and_nothing_is_kept_twice() -> None:
    found = {tuple(max_variance_subset(np.zeros(6), 2, np.random.default_rng(seed))) for seed in range(50)}
    assert len(found) > 5
    assert all(len(set(kept)) == 2 for kept in found)


def test_rounding_alone_does_not_make_a_group_vary() -> None:
    assert is_constant(np.array([0.1, 0.1 + 1e-9]))
    assert not is_constant(np.array([0.1, 0.1001]))
