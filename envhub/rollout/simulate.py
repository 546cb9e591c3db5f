"""What a rollout would cost: the real scheduler on a virtual clock, with drawn durations instead of episodes.

Nothing is played or trained, so a plan can be judged in a second, before any device is taken.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan
from typing import Protocol

from envhub.errors import RunFailed
from envhub.policy.throttle import LOOK_S
from envhub.rollout.bias import TRAINED, BiasReport, Facts, Ledger
from envhub.rollout.config import RolloutConfig
from envhub.rollout.engines import Engines
from envhub.rollout.leases import TWIN, Cancel, Command, Drop, Lease, Outcome, PutOff, ReadyGroup, Start, Stop, Taken
from envhub.rollout.scheduler import Scheduler
from envhub.rollout.workload import Draws, Workload


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulated run did. Durations and times are in seconds; a mean over nothing is NaN.

    Tokens are spread evenly over an episode's duration, each of the version that was newest when it was sampled.

    Attributes:
        seconds: of the whole run.
        seconds_per_update: whole time, the first filling included, over updates.
        steady_s: the same without the first and the last fifth of the updates.
        slots_idle: share of slot time in which no episode was played.
        slots_wasted: share of slot time that was spent on what was not trained on: cancelled, failed, dropped, put off.
        trainer_idle: share of time in which nothing was trained.
        staleness_mean: updates by which a trained token lagged; `staleness_max` is the most.
        tokens_masked: share of the trained episodes' tokens that were too old to be trained on.
        tokens_above: share of the trained tokens that lag more than the bound.
        trained: trajectories that were trained on.
        dropped: trajectories that were played to their end and let go.
        hedged, put_off: twins of slow episodes; groups that were put off to another round.
        issued_mean_s: mean drawn duration of all members that were started, each once.
        trained_mean_s: the same of trained trajectories.
        dropped_mean_s: the same of dropped ones.
        busy_s: slot time in which something was played.
        interrupted_s: slot time behind the turns that a publish met in their middle; it would be lost if they were begun anew.
        events: that the scheduler was told of.
        in_flight: episodes that might be in flight at the end.
        sampled_per_s: tokens that the modelled engines sampled in a second, together; NaN without engines.
        evicted: of the prompt tokens they computed, the share that stood in a cache before and had been driven out of it.
        standing: share of engine time in which new weights were taken.
        bias: issued against trained episodes, over the newest groups.
    """

    seconds: float
    seconds_per_update: float
    steady_s: float
    slots_idle: float
    slots_wasted: float
    trainer_idle: float
    staleness_mean: float
    staleness_max: int
    tokens_masked: float
    tokens_above: float
    trained: int
    dropped: int
    hedged: int
    put_off: int
    issued_mean_s: float
    trained_mean_s: float
    dropped_mean_s: float
    busy_s: float
    interrupted_s: float
    events: int
    in_flight: int
    sampled_per_s: float
    evicted: float
    standing: float
    bias: BiasReport

    @property
    def duration_bias(self) -> float:
        """Mean duration of what was trained on over that of what was issued; below 1, long episodes are lost."""
        return self.trained_mean_s / self.issued_mean_s


class Schedules(Protocol):
    """What is simulated: the scheduler, or another one for comparison."""

    def begin(self, now: float) -> list[Command]: ...

    def finished(self, lease_id: str, outcome: Outcome, now: float) -> list[Command]: ...

    def published(self, version: int, now: float) -> list[Command]: ...

    def tick(self, now: float) -> list[Command]: ...

    def take(self, now: float) -> Taken: ...

    def resize(self, max_in_flight: int | None, now: float) -> list[Command]: ...

    def next_deadline(self) -> float | None: ...


def simulate(
    config: RolloutConfig,
    workload: Workload,
    make: Callable[[RolloutConfig], Schedules] | None = None,
    *,
    draws: Draws | None = None,
) -> Simulation:
    """Run `workload.updates` updates. The same arguments give the same result.

    `workload.slots` stands in for a `config.max_in_flight` that is not adapted, and bounds one that is. `make` may give another
    scheduler, `draws` other durations.

    Raises:
        RunFailed: the scheduler stopped the run.
    """
    if config.max_in_flight != "auto" or workload.engines is None:
        config = config.model_copy(update={"max_in_flight": workload.slots})
    wanted = workload.updates * config.groups_per_update
    scheduler = Scheduler(config, seed=workload.seed, total_groups_wanted=wanted) if make is None else make(config)
    return World(config, workload, scheduler, draws or Draws(workload)).run()


@dataclass(frozen=True, slots=True)
class _Episode:
    """One started episode: the duration that its member draws, and when and under which version it began and ended."""

    index: int
    member: int
    began: float
    seconds: float
    oldest: int
    ended: float = nan


class World:
    """Virtual time, the episodes in it, and one trainer."""

    def __init__(self, config: RolloutConfig, workload: Workload, scheduler: Schedules, draws: Draws) -> None:
        """Let `scheduler` play the workload."""
        self._config, self._workload, self._scheduler = config, workload, scheduler
        self._now, self._version, self._training = 0.0, 0, False
        self._published = [0.0]  # when each version was
        self._events: list[tuple[float, int, str | None]] = []  # when, order, lease that ends; None ends the update
        self._order = self._told = 0
        self._flying: dict[str, _Episode] = {}
        self._ended: dict[str, _Episode] = {}  # held by the scheduler until taken or let go
        self._issued: dict[tuple[int, int], float] = {}  # by member; those that are resolved are summed up
        self._draw = draws
        self._sums = {"issued": [0, 0.0], "trained": [0, 0.0], "dropped": [0, 0.0]}
        self._busy_s = self._useful_s = 0.0
        self._tokens = self._masked = self._above = self._lag = 0.0
        self._interrupted_s = 0.0
        self._most, self._put_off = 0, 0
        self._ledger = Ledger()
        self._open: set[int] = set()  # places that are not resolved
        adapts = config.max_in_flight == "auto" and workload.engines is not None
        self._engines = None if workload.engines is None else Engines(workload.engines, workload.turns, adapts=adapts)
        self._usual_s = draws.usual_s
        self._look, self._at_most = 0.0 if adapts else inf, workload.slots

    def run(self) -> Simulation:
        """Play and train to the last update."""
        self._obey(self._scheduler.begin(self._now))
        while self._version < self._workload.updates:
            due = self._scheduler.next_deadline()
            first = self._events[0][0] if self._events else inf
            engines = inf if self._engines is None else self._engines.next()
            if due is not None and due < min(first, engines, self._look):
                self._now = max(self._now, due)
                self._obey(self._scheduler.tick(self._now))
                self._told += 1
            elif self._look <= min(first, engines):
                self._adapt()
            elif self._engines is not None and engines <= first:
                self._now = engines
                name = self._engines.happen()
                if name is None:
                    continue
                self._end(name)
            else:
                assert self._events, "an update waits for something that cannot happen"
                self._now, _, name = heapq.heappop(self._events)
                self._publish() if name is None else self._end(name)
            if not self._training:
                self._train()
        return self._report()

    def _end(self, name: str) -> None:
        episode = self._flying.pop(name, None)
        if episode is None:
            return  # it was cancelled before
        self._busy_s += self._now - episode.began
        reward = self._draw.reward(episode.index, episode.member, name)
        self._ledger.ended(episode.index, episode.member, Facts(None, None, self._now - episode.began, reward))
        if reward is not None:
            self._ended[name] = _Episode(
                episode.index, episode.member, episode.began, episode.seconds, episode.oldest, self._now
            )
        outcome = Outcome(reward, episode.oldest, 1, 1, "simulated failure", self._version)
        self._told += 1
        self._obey(self._scheduler.finished(name, outcome, self._now))

    def _train(self) -> None:
        taken = self._scheduler.take(self._now)
        self._obey(taken.commands)
        if taken.groups:
            self._training = True
            for group in taken.groups:
                self._learn(group)
            self._at(self._now + self._workload.train_s, None)

    def _learn(self, group: ReadyGroup) -> None:
        floor = max(0, self._version - self._config.max_staleness)
        played = self._release(group.trajectories)
        self._resolved(group.index, played, TRAINED)
        for episode in played:
            _count(self._sums["trained"], episode.seconds)
            lasted = episode.ended - episode.began
            self._useful_s += lasted
            for version, share in self._versions(episode):
                lag = self._version - version
                if version < floor and self._config.stale == "mask":
                    self._masked += share
                    continue
                self._tokens += share
                self._lag += lag * share
                self._above += share if version < floor else 0.0
                self._most = max(self._most, lag)

    def _versions(self, episode: _Episode) -> list[tuple[int, float]]:
        """The shares of an episode's tokens by version."""
        last = len(self._published) - 1
        newest = episode.oldest
        while newest < last and self._published[newest + 1] < episode.ended:
            newest += 1
        lasted = episode.ended - episode.began
        if newest == episode.oldest or lasted <= 0:
            return [(episode.oldest, 1.0)]
        marks = [episode.began, *self._published[episode.oldest + 1 : newest + 1], episode.ended]
        return [(episode.oldest + place, (b - a) / lasted) for place, (a, b) in enumerate(pairwise(marks))]

    def _publish(self) -> None:
        self._training = False
        self._version += 1
        self._published.append(self._now)
        turn = self._workload.turns
        self._interrupted_s += sum((self._now - e.began) % (e.seconds / turn) for e in self._flying.values())
        self._told += 1
        if self._engines is not None:
            self._engines.publish(self._now)
        self._obey(self._scheduler.published(self._version, self._now))

    def _adapt(self) -> None:
        assert self._engines is not None
        self._now, self._look = self._look, self._look + LOOK_S
        self._at_most = min(self._workload.slots, self._engines.adapt(self._now))
        self._obey(self._scheduler.resize(self._at_most, self._now))

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Start(lease):
                    self._start(lease)
                case Cancel(name, why):
                    episode = self._flying.pop(name)
                    self._busy_s += self._now - episode.began
                    if self._engines is not None:
                        self._engines.stop(name, self._now)
                    if why != TWIN:
                        age = Facts(None, None, self._now - episode.began, None)
                        self._ledger.ended(episode.index, episode.member, age)
                case Drop(_, index, reason, names):
                    self._resolved(index, (), reason)
                    for episode in self._release(names):
                        _count(self._sums["dropped"], episode.seconds)
                case PutOff(_, index, names):
                    self._put_off += 1
                    self._ledger.put_off(index)
                    self._release(names)
                case Stop(reason):
                    raise RunFailed(f"the simulated run stopped: {reason}", mend="fewer failures or longer deadlines")

    def _start(self, lease: Lease) -> None:
        seconds = self._draw.seconds(lease.index, lease.member)
        member = (lease.index, lease.member)
        self._open.add(lease.index)
        if member not in self._issued:
            self._issued[member] = seconds
            _count(self._sums["issued"], seconds)
        lasts = self._draw.with_faults(seconds, lease)
        self._flying[lease.id] = _Episode(lease.index, lease.member, self._now, seconds, self._version)
        if lasts is None:
            return
        if self._engines is not None:
            self._engines.start(lease.id, lasts / self._usual_s, self._now)
        else:
            self._at(self._now + lasts, lease.id)

    def _resolved(self, index: int, played: Iterable[_Episode], reason: str) -> None:
        self._ledger.resolved(index, {episode.member for episode in played}, reason)
        self._open.discard(index)

    def _release(self, names: Iterable[str]) -> list[_Episode]:
        return [self._ended.pop(name) for name in names]

    def _at(self, when: float, name: str | None) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, name))

    def _report(self) -> Simulation:
        busy_s = self._busy_s + sum(self._now - episode.began for episode in self._flying.values())
        useful = self._useful_s + sum(e.ended - e.began for e in self._ended.values())
        useful += sum(self._now - episode.began for episode in self._flying.values())
        updates, slot_s = self._workload.updates, self._workload.slots * self._now
        early, late = updates // 5, updates - updates // 5
        stats = self._scheduler.stats() if isinstance(self._scheduler, Scheduler) else None
        return Simulation(
            seconds=self._now,
            seconds_per_update=self._now / updates,
            steady_s=(self._published[late] - self._published[early]) / (late - early),
            slots_idle=1 - busy_s / slot_s,
            slots_wasted=(busy_s - useful) / slot_s,
            trainer_idle=1 - self._workload.train_s * updates / self._now,
            staleness_mean=self._lag / self._tokens,
            staleness_max=self._most,
            tokens_masked=self._masked / (self._tokens + self._masked),
            tokens_above=self._above / self._tokens,
            trained=int(self._sums["trained"][0]),
            dropped=int(self._sums["dropped"][0]),
            hedged=0 if stats is None else stats.hedged,
            put_off=self._put_off,
            issued_mean_s=_mean(self._sums["issued"]),
            trained_mean_s=_mean(self._sums["trained"]),
            dropped_mean_s=_mean(self._sums["dropped"]),
            busy_s=busy_s,
            interrupted_s=self._interrupted_s,
            events=self._told,
            in_flight=self._at_most,
            sampled_per_s=nan if self._engines is None else self._engines.sampled / self._now,
            evicted=0.0 if self._engines is None else self._engines.evicted_share,
            standing=0.0 if self._engines is None else self._engines.standing_s / self._now,
            bias=self._ledger.report(min(self._open, default=inf)),
        )


def _count(sums: list[float], seconds: float) -> None:
    sums[0] += 1
    sums[1] += seconds


def _mean(sums: list[float]) -> float:
    return sums[1] / sums[0] if sums[0] else nan
