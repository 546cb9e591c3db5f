"""One law of the scheduler at a time, on cases that can be followed by hand."""

import pickle
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from envhub.rollout.budget import FailureBudget
from envhub.rollout.config import RolloutConfig
from envhub.rollout.leases import Cancel, Command, Drop, Lease, Outcome, PutOff, Start, Stop
from envhub.rollout.scheduler import Scheduler


def started(commands: Iterable[Command]) -> list[Lease]:
    return [c.lease for c in commands if isinstance(c, Start)]


def stopped(commands: Iterable[Command]) -> bool:
    return any(isinstance(c, Stop) for c in commands)


def ended(reward: float | None, version: int = 0) -> Outcome:
    return Outcome(reward, None if reward is None else version, 1, 1, "broken")


def play_updates(config: RolloutConfig, *, updates: int, outcomes: int, order: int) -> list[tuple[set[int], set[str]]]:
    """Each update's groups and all drops before it; rewards by `outcomes`, order of arrival by `order`."""
    scheduler, chance, story = Scheduler(config, seed=1), random.Random(order), []
    flying, dropped = started(scheduler.begin(0.0)), set[str]()
    for version in range(updates):
        while flying:
            lease = flying.pop(chance.randrange(len(flying)))
            luck = random.Random(f"{outcomes}/{lease.id}").random()
            commands = scheduler.finished(lease.id, ended(None if luck < 0.2 else float(luck < 0.5), version), 1.0)
            flying += started(commands)
            dropped |= {f"{c.index}: {c.reason}" for c in commands if isinstance(c, Drop)}
        story.append(({group.index for group in scheduler.take(1.0).groups}, set(dropped)))
        flying = started(scheduler.published(version + 1, 1.0))
    return story


@given(
    outcomes=st.integers(0, 10_000),
    orders=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)),
    resampled=st.integers(0, 3),
    policy=st.sampled_from(["shrink", "drop"]),
    at_once=st.none() | st.integers(1, 4),
)
@hypothesis_settings(max_examples=200, deadline=None)
def test_synchronous_groups_depend_on_outcomes_and_never_on_speed(
    outcomes: int, orders: tuple[int, int], resampled: int, policy: str, at_once: int | None
) -> None:
    common = {"group_size": 3, "groups_per_update": 3, "max_attempts": 2, "max_failed_share": 1.0}
    config = RolloutConfig.model_validate({**common, "max_resampled_groups": resampled, "on_failure": policy})
    narrow = config.model_copy(update={"max_in_flight": at_once})
    one = play_updates(config, updates=3, outcomes=outcomes, order=orders[0])
    assert all(len(groups) == 3 for groups, _ in one)
    assert play_updates(narrow, updates=3, outcomes=outcomes, order=orders[1]) == one


def test_of_two_constant_groups_the_first_is_replaced_even_if_it_ends_last() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=2, max_resampled_groups=1)
    scheduler = Scheduler(config, seed=1)
    first, second = (leases := started(scheduler.begin(0.0)))[:2], leases[2:]
    replacement = [s for lease in second for s in started(scheduler.finished(lease.id, ended(1.0), 1.0))]
    assert [lease.index for lease in replacement] == [2, 2]  # admitted at once; who makes room is not known yet
    commands = [c for lease in first for c in scheduler.finished(lease.id, ended(1.0), 2.0)]
    assert commands == [Drop("train-000000", 0, "constant", tuple(lease.id for lease in first))]
    for lease in replacement:
        scheduler.finished(lease.id, ended(float(lease.member)), 3.0)
    assert [group.index for group in scheduler.take(3.0).groups] == [1, 2]
    assert scheduler.stats().constant_kept == 1


def test_an_asynchronous_update_does_not_wait_for_a_straggler_to_replace_a_constant_group() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, max_staleness=1, max_resampled_groups=1)
    scheduler = Scheduler(config, seed=1)
    straggler, *others = started(scheduler.begin(0.0))
    rewards = {1: (1.0, 1.0), 2: (0.0, 1.0)}  # group 1 is constant; group 2, admitted in its place, is not
    flying = [lease for lease in others if lease.index == 1]
    while flying:
        lease = flying.pop(0)
        flying += started(scheduler.finished(lease.id, ended(rewards[lease.index][lease.member]), 1.0))
    assert straggler.index == 0
    taken = scheduler.take(1.0)
    assert [group.index for group in taken.groups] == [2]
    assert [(c.index, c.reason) for c in taken.commands if isinstance(c, Drop)] == [(1, "constant")]


def test_a_closed_group_leaves_nothing_waiting() -> None:
    config = RolloutConfig.model_validate(
        {"group_size": 4, "groups_per_update": 1, "max_in_flight": 2, "episode_deadline_s": 9, "group_deadline_s": 9}
    )
    scheduler = Scheduler(config, seed=1)
    assert len(started(scheduler.begin(0.0))) == 2
    replacement = started(scheduler.tick(9.0))
    assert [lease.index for lease in replacement] == [1, 1]
    assert scheduler.stats().waiting == 2  # of group 1; nobody is left of group 0


def test_a_group_that_waits_for_a_slot_does_not_age() -> None:
    limits = {"max_in_flight": 2, "episode_deadline_s": 10, "group_deadline_s": 10}
    config = RolloutConfig.model_validate({"group_size": 2, "groups_per_update": 2, **limits})
    scheduler = Scheduler(config, seed=1)
    leases = started(scheduler.begin(0.0))
    later = [s for lease in leases for s in started(scheduler.finished(lease.id, ended(float(lease.member)), 8.0))]
    assert [lease.index for lease in later] == [1, 1]
    assert scheduler.tick(10.0) == []
    assert scheduler.next_deadline() == 18.0


def test_attempts_of_an_earlier_process_name_the_lease_but_do_not_use_up_its_retries() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, max_attempts=2)
    scheduler = Scheduler(config, seed=1, attempts={("train-000000", 0): 5})
    lease = started(scheduler.begin(0.0))[0]
    assert lease.id == "train-000000/0.5"
    assert [again.id for again in started(scheduler.finished(lease.id, ended(None), 1.0))] == ["train-000000/0.6"]


def test_a_member_that_always_fails_stops_a_run_that_may_not_shrink() -> None:
    config = RolloutConfig(group_size=8, groups_per_update=1, on_failure="drop", max_attempts=1)
    scheduler = Scheduler(config, seed=1)
    flying, played, stop = started(scheduler.begin(0.0)), 0, False
    while flying and not stop and played < 1000:
        lease = flying.pop()
        commands = scheduler.finished(lease.id, ended(None if lease.member == 3 else 1.0), 1.0)
        played, stop, flying = played + 1, stopped(commands), flying + started(commands)
    assert stop
    assert played == 20 * 8  # an eighth of them failed, so the failed share alone would never stop it


def test_a_completed_group_starts_the_count_of_dropped_ones_anew() -> None:
    budget = FailureBudget(1.0, 1)
    for _ in range(3):
        assert [budget.group(completed=False) for _ in range(19)] == [[]] * 19
        assert budget.group(completed=True) == []
    assert [len(budget.group(completed=False)) for _ in range(20)] == [0] * 19 + [1]


def test_the_failed_share_counts_from_twenty_episodes_on() -> None:
    scheduler = Scheduler(RolloutConfig(group_size=4, groups_per_update=8, max_attempts=1), seed=1)
    leases = started(scheduler.begin(0.0))
    stops = [stopped(scheduler.finished(lease.id, ended(None), 1.0)) for lease in leases[:20]]
    assert stops == [False] * 19 + [True]


def test_a_total_that_leaves_the_last_update_waiting_is_refused() -> None:
    with pytest.raises(ValueError, match="no multiple"):
        Scheduler(RolloutConfig(group_size=2, groups_per_update=2), seed=1, total_groups_wanted=3)


def test_ten_thousand_updates_with_lost_episodes_take_no_more_memory_than_five_thousand() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, episode_deadline_s=1, group_deadline_s=9)
    scheduler, sizes = Scheduler(config, seed=1), []
    leases = started(scheduler.begin(0.0))
    for version in range(10_000):
        lost, good = leases
        scheduler.finished(good.id, ended(0.0, version), 2.0 * version)
        (again,) = started(scheduler.tick(2.0 * version + 1))  # `lost` is cancelled and never heard of again
        assert again.id == lost.id[:-1] + "1"
        scheduler.finished(again.id, ended(1.0, version), 2.0 * version + 1)
        assert len(scheduler.take(2.0 * version + 1).groups) == 1
        leases = started(scheduler.published(version + 1, 2.0 * version + 2))
        if version in (4_999, 9_999):
            sizes.append(len(pickle.dumps(scheduler)))
    assert sizes[1] < 1.02 * sizes[0]


def cancelled(commands: Iterable[Command]) -> list[str]:
    return [c.lease_id for c in commands if isinstance(c, Cancel)]


def test_a_slow_episode_gets_a_twin_and_the_first_to_end_counts() -> None:
    limits = {"episode_deadline_s": 1000, "group_deadline_s": 1000, "max_failed_share": 1.0}
    config = RolloutConfig.model_validate({"group_size": 2, "groups_per_update": 20, "hedge_after": 2.0, **limits})
    scheduler = Scheduler(config, seed=1)
    slow, *others = started(scheduler.begin(0.0))
    for lease in others[:32]:
        scheduler.finished(lease.id, ended(0.0), 1.0)  # the 95th percentile is 1 s from here on
    assert scheduler.next_deadline() == 2.0
    assert started(scheduler.tick(1.9)) == []
    twins = started(scheduler.tick(2.0))
    assert [(twin.id, twin.seed) for twin in twins if twin.group == slow.group] == [("train-000000/0.1", slow.seed)]
    assert len(twins) == 40 - 32  # of every one that is as old
    (second,) = [lease for lease in started(scheduler.tick(4.0)) if lease.group == slow.group]
    assert second.id == "train-000000/0.2"  # the twin is slow itself
    last = next(twin for twin in twins if twin.group != slow.group)
    assert scheduler.finished(last.id, ended(None), 4.5) == []  # a twin that fails is not missed
    commands = scheduler.finished("train-000000/0.1", ended(1.0), 5.0)
    assert sorted(cancelled(commands)) == ["train-000000/0.0", "train-000000/0.2"]
    assert scheduler.finished(slow.id, ended(1.0), 6.0) == []  # late, and too late


def test_a_round_ends_with_the_first_and_the_slow_come_again_in_one_of_their_own() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=2, extra_groups=1)
    scheduler = Scheduler(config, seed=1, total_groups_wanted=8)
    rounds, flying = [], started(scheduler.begin(0.0))
    for version in range(4):
        slowest = {0: 1, 1: 3, 2: 99, 3: 99}[version]
        for lease in [lease for lease in flying if lease.index != slowest]:
            scheduler.finished(lease.id, ended(float(lease.member), version), 1.0)
        taken = scheduler.take(1.0)
        rounds.append([group.index for group in taken.groups])
        assert [c.index for c in taken.commands if isinstance(c, PutOff)] == ([slowest] if slowest < 99 else [])
        assert len(cancelled(taken.commands)) == (2 if slowest < 99 else 0)
        flying = started(scheduler.published(version + 1, 1.0))
    assert rounds == [[0, 2], [4, 5], [1, 3], [6, 7]]
    assert scheduler.stats().put_off == 2
    assert scheduler.frontier() == (8, ())


def test_extra_members_are_let_go_once_a_group_is_whole() -> None:
    scheduler = Scheduler(RolloutConfig(group_size=2, groups_per_update=1, extra_members=1), seed=1)
    one, two, three = started(scheduler.begin(0.0))
    scheduler.finished(three.id, ended(1.0), 1.0)
    assert cancelled(scheduler.finished(one.id, ended(0.0), 1.0)) == [two.id]
    assert [group.trajectories for group in scheduler.take(1.0).groups] == [(one.id, three.id)]


def test_replacements_that_will_be_needed_are_played_from_the_start() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=4, max_resampled_groups=4, over_issue=True)
    scheduler = Scheduler(config, seed=1)
    flying = started(scheduler.begin(0.0))
    assert len(flying) == 8
    while flying:  # half of the groups are constant
        lease = flying.pop()
        flying += started(scheduler.finished(lease.id, ended(float(lease.member * (lease.index % 2))), 1.0))
    assert [group.index for group in scheduler.take(1.0).groups] == [1, 3, 5, 7]
    assert len({lease.index for lease in started(scheduler.published(1, 2.0))}) == 4 + 4


def test_what_waits_for_the_trainer_is_bounded_by_its_tokens() -> None:
    config = RolloutConfig(group_size=2, groups_per_update=1, max_staleness=9, max_ready_tokens=100)
    scheduler = Scheduler(config, seed=1)
    first = started(scheduler.begin(0.0))
    assert len(first) == 20
    more = [s for lease in first for s in started(scheduler.finished(lease.id, Outcome(1.0, 0, 6, 1), 1.0))]
    assert more == []
    taken = scheduler.take(1.0)  # nine groups of 12 tokens still wait: more than 100
    assert started(taken.commands) == []
    scheduler.published(1, 1.0)
    assert {lease.index for lease in started(scheduler.take(1.0).commands)} == {10}
    assert scheduler.stats().ready == 8


def test_a_stop_tells_the_failures_by_cause() -> None:
    scheduler = Scheduler(RolloutConfig(group_size=4, groups_per_update=8, max_attempts=1), seed=1)
    causes = ["engine died", "timeout", "timeout"] * 7
    told = [
        c.reason
        for lease, cause in zip(started(scheduler.begin(0.0)), causes, strict=False)
        for c in scheduler.finished(lease.id, Outcome(None, None, 0, 0, cause), 1.0)
        if isinstance(c, Stop)
    ]
    assert "13 x timeout" in told[0]
    assert "7 x engine died" in told[0]
    assert scheduler.stats().causes == {"timeout": 14, "engine died": 7}
