import pytest

from envhub.rollout.config import RolloutConfig
from envhub.rollout.leases import Cancel, Command, Drop, Lease, Outcome, Start, Stop
from envhub.rollout.scheduler import Scheduler


def started(commands: list[Command] | tuple[Command, ...]) -> list[Lease]:
    return [c.lease for c in commands if isinstance(c, Start)]


def won(version: int = 0, reward: float = 1.0) -> Outcome:
    return Outcome(reward, version, 3, 2)


FAILED = Outcome(None, None, 0, 0, "broken")


def test_synchronous_training_plays_one_update_at_a_time() -> None:
    scheduler = Scheduler(RolloutConfig(group_size=2, groups_per_update=2), seed=1)
    leases = started(scheduler.begin(0.0))
    assert [lease.id for lease in leases] == [f"train-00000{g}/{m}.0" for g in (0, 1) for m in (0, 1)]
    for lease in reversed(leases):
        assert scheduler.finished(lease.id, won(), 1.0) == []
    taken = scheduler.take(1.0)
    assert [g.index for g in taken.groups] == [0, 1]
    assert taken.commands == ()
    assert [lease.index for lease in started(scheduler.published(1, 2.0))] == [2, 2, 3, 3]


def test_a_retry_has_the_same_seed_and_a_new_id() -> None:
    scheduler = Scheduler(RolloutConfig(group_size=2, groups_per_update=1, max_attempts=2), seed=1)
    first = started(scheduler.begin(0.0))[0]
    (again,) = started(scheduler.finished(first.id, FAILED, 1.0))
    assert (again.id, again.seed) == ("train-000000/0.1", first.seed)


def test_ids_go_on_after_a_restart() -> None:
    scheduler = Scheduler(RolloutConfig(group_size=2, groups_per_update=1), seed=1, attempts={("train-000000", 1): 3})
    assert [lease.id for lease in started(scheduler.begin(0.0))] == ["train-000000/0.0", "train-000000/1.3"]


def test_a_group_that_lost_a_member_for_good_goes_on_without_it() -> None:
    config = RolloutConfig(group_size=3, groups_per_update=1, max_attempts=1)
    scheduler = Scheduler(config, seed=1)
    one, two, three = started(scheduler.begin(0.0))
    scheduler.finished(one.id, FAILED, 1.0)
    scheduler.finished(two.id, won(), 1.0)
    scheduler.finished(three.id, won(reward=0.0), 1.0)
    (group,) = scheduler.take(1.0).groups
    assert group.trajectories == (two.id, three.id)


def test_a_group_too_small_is_dropped_and_replaced() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, max_attempts=1)
    scheduler = Scheduler(config, seed=1)
    one, two = started(scheduler.begin(0.0))
    scheduler.finished(one.id, won(), 1.0)
    commands = scheduler.finished(two.id, FAILED, 1.0)
    assert commands[0] == Drop("train-000000", 0, "failed", (one.id,))
    assert [lease.index for lease in started(commands)] == [1, 1]


def test_constant_groups_are_resampled_up_to_the_limit() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, max_resampled_groups=1)
    scheduler = Scheduler(config, seed=1)
    for index in (0, 1):
        leases = list(scheduler._leases.values()) or started(scheduler.begin(0.0))
        for lease in leases:
            scheduler.finished(lease.id, won(), 1.0)
        assert scheduler.stats().dropped_constant == 1, index
    assert [g.index for g in scheduler.take(1.0).groups] == [1]


def test_stale_groups_are_dropped_when_they_would_be_trained_on() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, max_staleness=1)
    scheduler = Scheduler(config, seed=1)
    for lease in started(scheduler.begin(0.0)):
        scheduler.finished(lease.id, won(version=0), 1.0)
    told = scheduler.published(2, 2.0)
    assert scheduler.take(2.0).groups == ()
    assert [c.index for c in told if isinstance(c, Drop)] == [0, 1]
    assert {lease.index for lease in started(told)} == {2, 3}


def test_an_overdue_episode_is_taken_away_and_given_out_again() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, episode_deadline_s=10, group_deadline_s=100)
    scheduler = Scheduler(config, seed=1)
    one, two = started(scheduler.begin(0.0))
    scheduler.finished(two.id, won(), 1.0)
    assert scheduler.next_deadline() == 10.0
    assert scheduler.tick(9.9) == []
    cancel, again = scheduler.tick(10.0)
    assert cancel == Cancel(one.id, "deadline")
    assert isinstance(again, Start)
    assert again.lease.id == "train-000000/0.1"
    assert scheduler.finished(one.id, won(), 10.5) == []  # it ended while it was being taken away


def test_an_overdue_group_is_closed_with_what_it_has() -> None:
    config = RolloutConfig(group_size=3, groups_per_update=1, episode_deadline_s=50, group_deadline_s=50)
    scheduler = Scheduler(config, seed=1)
    one, two, _ = started(scheduler.begin(0.0))
    scheduler.finished(one.id, won(), 1.0)
    scheduler.finished(two.id, won(), 1.0)
    scheduler.tick(50.0)
    assert scheduler.take(50.0).groups[0].trajectories == (one.id, two.id)


def test_too_many_failures_stop_the_run_with_their_cause() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=20, max_attempts=1)
    scheduler = Scheduler(config, seed=1)
    commands = [c for lease in started(scheduler.begin(0.0)) for c in scheduler.finished(lease.id, FAILED, 1.0)]
    stop = next(c for c in commands if isinstance(c, Stop))
    assert "broken" in stop.reason


def test_nothing_is_played_after_the_last_update() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=2, max_staleness=3)
    scheduler = Scheduler(config, seed=1, total_groups_wanted=2)
    assert len(started(scheduler.begin(0.0))) == 4


def test_an_unknown_lease_is_a_bug() -> None:
    with pytest.raises(ValueError, match="not in flight"):
        Scheduler(RolloutConfig(), seed=1).finished("train-000000/0.0", won(), 0.0)
