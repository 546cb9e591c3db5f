"""The scheduler's laws under random events: nothing lost, nothing twice, nothing waited for in vain."""

import os
import random
from collections.abc import Iterable

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from envhub.rollout.config import RolloutConfig
from envhub.rollout.leases import Cancel, Command, Drop, Lease, Outcome, PutOff, Start, Stop, Taken
from envhub.rollout.scheduler import Scheduler

SOAK = os.environ.get("ENVHUB_SOAK") == "1"


def started(commands: Iterable[Command]) -> list[Lease]:
    return [c.lease for c in commands if isinstance(c, Start)]


def ended(reward: float | None, version: int = 0, newest: int | None = None) -> Outcome:
    return Outcome(reward, None if reward is None else version, 1, 1, "broken", newest)


class Laws(RuleBasedStateMachine):
    """A caller that obeys every command, and counts."""

    @initialize(
        staleness=st.integers(0, 3),
        size=st.integers(2, 4),
        smallest=st.integers(2, 4),
        groups=st.integers(1, 3),
        resampled=st.integers(0, 2),
        attempts=st.integers(1, 3),
        at_once=st.none() | st.integers(1, 5),
        policy=st.sampled_from(["shrink", "drop"]),
        updates=st.none() | st.integers(1, 4),
        ending=st.tuples(st.integers(0, 999), st.sampled_from([0.0, 0.4, 1.0])),
        extra=st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()),
        hedge=st.none() | st.sampled_from([1.0, 2.0]),
        stale=st.sampled_from(["mask", "drop"]),
    )
    def begin(
        self,
        staleness: int,
        size: int,
        smallest: int,
        groups: int,
        resampled: int,
        attempts: int,
        at_once: int | None,
        policy: str,
        updates: int | None,
        ending: tuple[int, float],
        extra: tuple[int, int, bool],
        hedge: float | None,
        stale: str,
    ) -> None:
        values = {"group_size": size, "min_group_size": min(size, smallest), "groups_per_update": groups}
        values |= {"max_staleness": staleness, "max_resampled_groups": resampled, "max_attempts": attempts}
        limits = {"max_in_flight": at_once, "episode_deadline_s": 5, "group_deadline_s": 12, "max_failed_share": 1.0}
        more = {"extra_groups": 0 if staleness else extra[0], "extra_members": extra[1], "hedge_after": hedge, "stale": stale}
        more["over_issue"] = extra[2] and resampled > 0
        self.config = RolloutConfig.model_validate({**values, **limits, **more, "on_failure": policy})
        self.given = self.config
        self.wanted = None if updates is None else updates * groups
        self.ending = ending
        self.now, self.version, self.stop, self.training = 0.0, 0, False, False
        self.flying: dict[str, tuple[Lease, int]] = {}
        self.cancelled: set[str] = set()
        self.over: set[str] = set()  # ended, and told
        self.member_of: dict[str, int] = {}
        self.good: dict[str, int] = {}  # id of a finished episode -> its group's index
        self.gone: dict[str, int] = {}  # taken or dropped
        self.anew: set[str] = set()  # of groups that were put off
        self.versions: dict[str, tuple[int, int]] = {}  # oldest and newest of every finished episode
        self.taken_groups, self.starts, self.ends = 0, 0, 0
        self.most = at_once or 10**9
        self.history: list[tuple[str, tuple[object, ...], object]] = []
        self.scheduler = Scheduler(self.config, seed=7, total_groups_wanted=self.wanted)
        self.call("begin", self.now)

    def call(self, event: str, *arguments: object) -> object:
        """Send an event, remember it, and do what it asks for."""
        result = getattr(self.scheduler, event)(*arguments)
        self.history.append((event, arguments, result))
        for command in result.commands if isinstance(result, Taken) else result:
            self.obey(command)
        return result

    def obey(self, command: Command) -> None:
        match command:
            case Start(lease):
                names = {*self.flying, *self.cancelled, *self.over}
                assert lease.id not in names, "an id was given out twice"
                assert lease.seed == seed_of(7, lease), "a seed depends on more than run, task and member"
                self.starts += 1
                self.flying[lease.id] = (lease, self.version)
                self.member_of[lease.id] = lease.member
            case Cancel(name, _):
                self.flying.pop(name)
                self.cancelled.add(name)
                self.ends += 1
            case Drop(_, index, _, names):
                self.leave(index, names)
            case PutOff(_, index, names):
                assert self.config.max_staleness == 0
                assert all(lease.index != index for lease, _ in self.flying.values()), "played on though put off"
                assert all(self.good[name] == index for name in names)
                self.anew.update(names)
            case Stop():
                self.stop = True

    def leave(self, index: int, names: Iterable[str]) -> None:
        for name in names:
            assert self.good[name] == index, "a failed, unknown or foreign episode is in a group"
            assert name not in self.gone, "an episode left twice"
            assert name not in self.anew, "an episode of a group that was put off came back"
            self.gone[name] = index

    def end_one(self, name: str, reward: float | None) -> None:
        lease, version = self.flying.pop(name)
        self.over.add(name)
        self.ends += 1
        if reward is not None:
            self.good[name] = lease.index
        self.versions[name] = (version, self.version)
        self.call("finished", name, ended(reward, version, self.version), self.now)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), reward=st.sampled_from([0.0, 1.0, None]))
    def an_episode_ends(self, data: st.DataObject, reward: float | None) -> None:
        self.end_one(data.draw(st.sampled_from(sorted(self.flying))), reward)

    @precondition(lambda self: self.cancelled)
    @rule(data=st.data())
    def a_cancelled_episode_ends_late(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.cancelled)))
        self.cancelled.remove(name)
        self.over.add(name)
        assert self.call("finished", name, ended(1.0), self.now) == []

    @precondition(lambda self: self.over)
    @rule(data=st.data())
    def an_episode_that_ended_before_is_a_bug(self, data: st.DataObject) -> None:
        with pytest.raises(ValueError, match="not in flight"):
            self.scheduler.finished(data.draw(st.sampled_from(sorted(self.over))), ended(1.0), self.now)

    @rule(seconds=st.floats(0.0, 6.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.call("tick", self.now)
        assert all(lease.deadline_s > self.now for lease, _ in self.flying.values())
        due = self.scheduler.next_deadline()
        assert due is None if not self.flying else due is not None and due > self.now

    @precondition(lambda self: not self.training)
    @rule()
    def the_trainer_asks(self) -> None:
        self.take()

    @precondition(lambda self: self.training)
    @rule()
    def new_weights_are_there(self) -> None:
        self.publish()

    @rule(at_once=st.none() | st.integers(1, 6))
    def another_number_may_be_in_flight(self, at_once: int | None) -> None:
        self.config = self.config.model_copy(update={"max_in_flight": at_once})
        self.most = max(len(self.flying), at_once or 10**9)
        self.call("resize", at_once, self.now)

    def publish(self) -> None:
        self.version += 1
        self.training = False
        self.call("published", self.version, self.now)

    def take(self) -> bool:
        taken = self.call("take", self.now)
        assert isinstance(taken, Taken)
        if not taken.groups:
            return False
        assert len(taken.groups) == self.config.groups_per_update
        self.taken_groups += len(taken.groups)
        indices = [group.index for group in taken.groups]
        assert indices == sorted(indices)
        for group in taken.groups:
            told = group.oldest_version if self.config.stale == "drop" else group.newest_version
            assert told >= self.version - self.config.max_staleness
            assert group.oldest_version == min(self.versions[name][0] for name in group.trajectories)
            assert group.newest_version == max(self.versions[name][1] for name in group.trajectories)
            assert self.config.min_group_size <= len(group.trajectories) <= self.config.group_size
            assert self.config.on_failure == "shrink" or len(group.trajectories) == self.config.group_size
            members = [self.member_of[name] for name in group.trajectories]
            assert members == sorted(members), "trajectories are not in order of member"
            self.leave(group.index, group.trajectories)
        held = [index for name, index in self.good.items() if name not in self.gone and name not in self.anew]
        whole = {index for index in held if held.count(index) == self.config.group_size}
        assert all(index > indices[-1] for index in whole), "an older whole group was passed over"
        self.training = True
        return True

    @invariant()
    def counts_agree_and_are_bounded(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        stats, config = self.scheduler.stats(), self.config
        assert (stats.started, stats.finished, stats.in_flight) == (self.starts, self.ends, len(self.flying))
        assert len(self.flying) <= self.most
        limit = config.max_in_flight
        self.most = min(self.most, max(len(self.flying), limit if isinstance(limit, int) else 10**9))
        _, outstanding = self.scheduler.frontier()
        bound = (config.max_staleness + 1) * config.groups_per_update
        beside = config.max_resampled_groups + config.extra_groups
        if config.max_staleness == 0 and beside:  # put off, and not yet come again
            beside += config.groups_per_update + beside
        elif self.wanted is not None:
            bound = min(bound, self.wanted - self.taken_groups)
        assert len(outstanding) <= bound + beside
        members = [(lease.index, lease.member) for lease, _ in self.flying.values()]
        assert all(members.count(member) <= (1 if config.hedge_after is None else 4) for member in members)
        assert config.stale == "drop" or stats.dropped_stale == 0, "a group had no token left to train on"
        assert stats.dropped_constant <= config.max_resampled_groups * (self.version + 1)

    @invariant()
    def every_finished_episode_is_held_or_gone(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        outstanding = set(self.scheduler.frontier()[1])
        held = {index for name, index in self.good.items() if name not in self.gone and name not in self.anew}
        assert held <= outstanding
        assert outstanding.isdisjoint(self.gone.values())

    def teardown(self) -> None:
        """From any state an update or a Stop is reached if episodes go on ending; and the same events do the same."""
        if not hasattr(self, "scheduler"):
            return
        seed, failing = self.ending
        chance = random.Random(seed)
        self.stop = False
        while self.wanted is None or self.taken_groups < self.wanted:
            if self.training:
                self.publish()
            if self.take() or self.stop:
                break
            assert self.flying, "nothing is in flight and no update can be made"
            assert self.starts < 3000, "episodes go on ending, and nothing comes of it"
            reward = None if chance.random() < failing else float(chance.random() < 0.5)
            self.end_one(chance.choice(sorted(self.flying)), reward)
        else:
            assert not self.flying, "something is played for nothing"
            assert self.scheduler.frontier()[1] == (), "something was put off for good"
        twin = Scheduler(self.given, seed=7, total_groups_wanted=self.wanted)
        for event, arguments, result in self.history:
            assert getattr(twin, event)(*arguments) == result


def seed_of(seed: int, lease: Lease) -> int:
    """What a fresh scheduler gives to the same place, whatever happened in this one."""
    fresh = Scheduler(RolloutConfig(group_size=8, groups_per_update=1), seed=seed, next_index=lease.index)
    return started(fresh.begin(0.0))[lease.member].seed


TestLaws = Laws.TestCase
TestLaws.settings = hypothesis_settings(
    max_examples=5000 if SOAK else 300, stateful_step_count=60 if SOAK else 40, deadline=None
)
