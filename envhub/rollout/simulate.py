"""What a rollout would cost: the real scheduler on a virtual clock, with drawn durations instead of episodes.

Nothing is played or trained, so a plan can be judged in a second, before any device is taken.
"""

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass
from math import log, nan
from statistics import fmean
from typing import Self

from pydantic import Field, model_validator

from envhub.errors import RunFailed
from envhub.rollout.config import RolloutConfig
from envhub.rollout.leases import Cancel, Command, Drop, Lease, Outcome, ReadyGroup, Start, Stop
from envhub.rollout.scheduler import Scheduler
from envhub.settings import Settings


class Workload(Settings):
    """How long things take, and how episodes end."""

    slots: int = Field(default=64, ge=1)
    """Episodes that are played at once."""
    updates: int = Field(default=50, ge=1)
    mean_s: float = Field(default=1.0, gt=0)
    """Mean duration of an episode."""
    sigma: float = Field(default=1.0, ge=0)
    """Spread of the logarithm of an episode's duration (lognormal); 0 makes all equal."""
    recorded_s: tuple[float, ...] = ()
    """Measured durations to draw from in place of `mean_s` and `sigma`."""
    train_s: float = Field(default=1.0, ge=0)
    """Duration of an update with its publish."""
    failing: float = Field(default=0.0, ge=0, le=1)
    """Chance that an episode fails, at the end of its duration."""
    solved: float = Field(default=0.5, ge=0, le=1)
    """Chance that an episode earns reward 1 and not 0."""
    seed: int = 0

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if any(seconds <= 0 for seconds in self.recorded_s):
            raise ValueError("recorded_s holds a duration that is not positive")
        return self


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulated run did. Durations and times are in seconds; a mean over nothing is NaN.

    Attributes:
        seconds_per_update: whole time, the first filling included, over updates.
        slots_idle: share of slot time in which no episode was played.
        trainer_idle: share of time in which nothing was trained.
        staleness_mean: updates by which a trained trajectory's oldest token lagged; `staleness_max` is the most.
        trained: trajectories that were trained on.
        dropped: trajectories that were played to their end and let go.
        issued_mean_s: mean drawn duration of all started episodes.
        trained_mean_s: the same of trained trajectories.
        dropped_mean_s: the same of dropped ones.
    """

    seconds_per_update: float
    slots_idle: float
    trainer_idle: float
    staleness_mean: float
    staleness_max: int
    trained: int
    dropped: int
    issued_mean_s: float
    trained_mean_s: float
    dropped_mean_s: float

    @property
    def duration_bias(self) -> float:
        """Mean duration of what was trained on over that of what was issued; below 1, long episodes are lost."""
        return self.trained_mean_s / self.issued_mean_s


def simulate(config: RolloutConfig, workload: Workload) -> Simulation:
    """Run `workload.updates` updates. The same arguments give the same result.

    `workload.slots` stands in for `config.max_in_flight`. An episode's oldest token is of the version under which it
    started, which is the worst case for staleness.

    Raises:
        RunFailed: the scheduler stopped the run.
    """
    return _World(config, workload).run()


@dataclass(frozen=True, slots=True)
class _Episode:
    """One started episode: its drawn duration, its version, and how it will end."""

    lease: Lease
    seconds: float
    outcome: Outcome


class _World:
    """Virtual time, the episodes in it, and one trainer."""

    def __init__(self, config: RolloutConfig, workload: Workload) -> None:
        self._workload = workload
        self._scheduler = Scheduler(
            config.model_copy(update={"max_in_flight": workload.slots}),
            seed=workload.seed,
            total_groups_wanted=workload.updates * config.groups_per_update,
        )
        self._now, self._version, self._training = 0.0, 0, False
        self._events: list[tuple[float, int, str | None]] = []  # when, order, lease that ends; None ends the update
        self._order = 0
        self._flying: dict[str, _Episode] = {}
        self._ended: dict[str, _Episode] = {}  # held by the scheduler until taken or dropped
        self._issued: list[float] = []
        self._trained: list[float] = []
        self._dropped: list[float] = []
        self._lags: list[int] = []
        self._busy_s = 0.0

    def run(self) -> Simulation:
        """Play and train to the last update."""
        self._obey(self._scheduler.begin(self._now))
        while self._version < self._workload.updates:
            due = self._scheduler.next_deadline()
            if due is not None and (not self._events or due < self._events[0][0]):
                self._now = due
                self._obey(self._scheduler.tick(due))
            else:
                assert self._events, "an update waits for something that cannot happen"
                self._now, _, name = heapq.heappop(self._events)
                self._publish() if name is None else self._end(name)
            self._train()
        return self._report()

    def _end(self, name: str) -> None:
        episode = self._flying.pop(name, None)
        if episode is None:
            return  # it was cancelled before
        self._busy_s += self._now - episode.lease.started_s
        if episode.outcome.reward is not None:
            self._ended[name] = episode
        self._obey(self._scheduler.finished(name, episode.outcome, self._now))

    def _train(self) -> None:
        if self._training:
            return
        taken = self._scheduler.take(self._now)
        self._obey(taken.commands)
        if taken.groups:
            self._training = True
            self._learn(taken.groups)
            self._at(self._now + self._workload.train_s, None)

    def _learn(self, groups: Iterable[ReadyGroup]) -> None:
        for episode in self._release(name for group in groups for name in group.trajectories):
            self._trained.append(episode.seconds)
            self._lags.append(self._version - (episode.outcome.oldest_version or 0))

    def _publish(self) -> None:
        self._training = False
        self._version += 1
        self._obey(self._scheduler.published(self._version, self._now))

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Start(lease):
                    self._start(lease)
                case Cancel(name, _):
                    self._busy_s += self._now - self._flying.pop(name).lease.started_s
                case Drop(_, _, _, names):
                    self._dropped += [episode.seconds for episode in self._release(names)]
                case Stop(reason):
                    raise RunFailed(f"the simulated run stopped: {reason}", mend="fewer failures or longer deadlines")

    def _start(self, lease: Lease) -> None:
        work, chance = self._workload, random.Random(f"{self._workload.seed}/{lease.id}")
        if work.recorded_s:
            seconds = chance.choice(work.recorded_s)
        else:
            seconds = chance.lognormvariate(log(work.mean_s) - work.sigma**2 / 2, work.sigma)
        reward = None if chance.random() < work.failing else float(chance.random() < work.solved)
        self._issued.append(seconds)
        self._flying[lease.id] = _Episode(lease, seconds, Outcome(reward, self._version, 0, 0, "simulated failure"))
        self._at(self._now + seconds, lease.id)

    def _release(self, names: Iterable[str]) -> list[_Episode]:
        return [self._ended.pop(name) for name in names]

    def _at(self, when: float, name: str | None) -> None:
        self._order += 1
        heapq.heappush(self._events, (when, self._order, name))

    def _report(self) -> Simulation:
        busy_s = self._busy_s + sum(self._now - episode.lease.started_s for episode in self._flying.values())
        return Simulation(
            seconds_per_update=self._now / self._workload.updates,
            slots_idle=1 - busy_s / (self._workload.slots * self._now),
            trainer_idle=1 - self._workload.train_s * self._workload.updates / self._now,
            staleness_mean=fmean(self._lags),
            staleness_max=max(self._lags),
            trained=len(self._trained),
            dropped=len(self._dropped),
            issued_mean_s=fmean(self._issued),
            trained_mean_s=fmean(self._trained),
            dropped_mean_s=fmean(self._dropped) if self._dropped else nan,
        )
