import math
from dataclasses import replace

import pytest

from envhub.eval import pass_at_k, summarise, wilson
from tests.unit.builders import trajectory


def test_success_has_wilsons_interval() -> None:
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.49016, abs=1e-5)
    assert high == pytest.approx(0.94332, abs=1e-5)
    assert all(map(math.isnan, wilson(0, 0)))


def test_a_failed_episode_is_counted_and_never_scored() -> None:
    found = summarise([trajectory("g-0/0.0"), trajectory("g-0/1.0", reward=0.0), trajectory("g-0/2.0", reward=None)], 1.0)
    assert (found.episodes, found.failed, found.success_rate, found.reward_mean) == (2, 1, 0.5, 0.5)


def test_silence_about_success_is_unsolved_only_where_others_speak() -> None:
    silent = replace(trajectory("g-0/0.0"), success=None)
    assert math.isnan(summarise([silent, silent], 1.0).success_rate)
    assert summarise([silent, trajectory("g-0/1.0")], 1.0).success_rate == 0.5


def test_pass_at_k_has_its_worked_values() -> None:
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert pass_at_k(4, 4, 1) == 1.0
    with pytest.raises(ValueError, match="k=5"):
        pass_at_k(4, 1, 5)
