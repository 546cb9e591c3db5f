import pytest
from pydantic import ValidationError

from envhub.rollout.config import RolloutConfig
from envhub.rollout.replay import ReplayBuffer, ReplayConfig
from envhub.types import TrajectoryGroup
from tests.unit.builders import trajectory


def group(index: int, *, version: int = 0, rewards: tuple[float, ...] = (0.0, 1.0)) -> TrajectoryGroup:
    name = f"train-{index:06d}"
    members = tuple(trajectory(f"{name}/{i}.0", reward=r, version=version) for i, r in enumerate(rewards))
    return TrajectoryGroup(name, index, "t", members)


def picked(buffer: ReplayBuffer, version: int) -> list[int]:
    return [each.index for each in buffer.pick(version)]


def test_the_least_used_and_then_the_newest_come_again_until_their_uses_are_spent() -> None:
    buffer = ReplayBuffer(ReplayConfig(groups=2, uses=3), max_staleness=9)
    assert picked(buffer, 0) == []
    old, new, last = group(0, version=0), group(1, version=1), group(2, version=1)
    buffer.used([old, new])
    assert picked(buffer, 1) == [1, 0]
    buffer.used([last, new, old])
    assert picked(buffer, 2) == [2, 1]
    buffer.used([last, new])
    assert new not in buffer
    assert picked(buffer, 3) == [2, 0]


def test_what_is_too_old_or_teaches_nothing_is_not_used_again() -> None:
    buffer = ReplayBuffer(ReplayConfig(groups=9), max_staleness=2)
    buffer.used([group(0, version=3), group(1, version=4), group(2, version=4, rewards=(1.0, 1.0))])
    assert picked(buffer, 5) == [1, 0]
    assert picked(buffer, 6) == [1]
    assert picked(buffer, 7) == []
    assert len(buffer) == 0


def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    buffer = ReplayBuffer(None, max_staleness=2)
    buffer.used([group(0)])
    assert (picked(buffer, 0), len(buffer)) == ([], 0)


def test_on_policy_training_cannot_replay() -> None:
    with pytest.raises(ValidationError, match="max_staleness to 1 or more"):
        RolloutConfig(replay=ReplayConfig(groups=1))
