from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from envhub.errors import ConfigError
from envhub.policy.scripted_policy import ScriptedPolicy
from envhub.rollout.abort import Abort, AbortConfig, Exchange
from envhub.types import StopReason, Trajectory
from tests.unit.test_episode import Countdown, played, stage


def stuck(left: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
    return "no", 0.25 if left == 2 else 0.0, False, False, {"success": False}


def ended(trouble: Any, **rule: Any) -> tuple[Trajectory, Abort]:
    abort = Abort.of(AbortConfig(**rule))
    return played(stage(trouble, abort=abort), ScriptedPolicy(("a",) * 10)), abort


def test_the_same_reply_to_the_same_sight_over_and_over_ends_an_episode_as_lost() -> None:
    found, abort = ended(stuck, same_replies=3)
    assert len(found.turns) == 4  # the first sight was another one
    assert (found.stop, found.success, found.failure, found.reward) == (StopReason.TRUNCATED, False, None, 0.25)
    assert abort.counts == {"same_replies": 1}


def test_too_little_reward_by_a_turn_ends_an_episode() -> None:
    assert len(ended(stuck, turns=5, reward=0.3)[0].turns) == 5
    assert len(ended(stuck, turns=5, reward=0.25)[0].turns) == 10


def test_what_goes_well_is_played_to_its_end() -> None:
    found, abort = ended(lambda left: None, turns=1, reward=0.5, same_replies=2)
    assert (found.stop, found.success, len(found.turns)) == (StopReason.TERMINATED, True, 3)
    assert not abort.counts


def hopeless(exchanges: Sequence[Exchange], reward: float) -> object:
    return {1: None, 2: "two turns"}.get(len(exchanges)) if exchanges[0] == ("3 left", "a") and reward == 0.0 else 7


def test_a_rule_of_ones_own_decides_and_is_checked() -> None:
    here = f"{__name__}:hopeless"
    found, abort = ended(lambda left: ("x", 0.0, False, False, {}), function=here)
    assert (len(found.turns), abort.counts["two turns"]) == (2, 1)
    broken, _ = ended(lambda left: None, function=here)  # one reward too many: gives 7
    assert broken.stop is StopReason.FAILED
    assert broken.failure is not None
    assert "gave 7" in broken.failure
    raising, _ = ended(lambda left: None, function="math:sqrt")
    assert raising.failure is not None
    assert "raised TypeError" in raising.failure
    assert Countdown.closed


@pytest.mark.parametrize("rule", [{}, {"turns": 3}, {"reward": 1.0}, {"same_replies": 1}, {"function": "no colon"}])
def test_a_rule_that_says_nothing_is_refused(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AbortConfig(**rule)


def test_a_function_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"abort rule .* does not import"):
        Abort.of(AbortConfig(function="envhub.nowhere:f"))
