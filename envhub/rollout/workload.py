"""What is played in a simulation: how long episodes last, how they end, and what breaks; all of it decided by a seed."""

from math import exp, log
from statistics import NormalDist, fmean
from typing import Self

from pydantic import Field, model_validator

from envhub.rollout.engines import EngineModel
from envhub.rollout.leases import Lease
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
    turns: int = Field(default=1, ge=1)
    """Turns of an episode, all equally long: what is interrupted when new weights arrive."""
    shared: float = Field(default=0.0, ge=0, le=1)
    """Share of the logarithm's variance that belongs to the task: with 1, all episodes of a group last equally long."""
    recorded_s: tuple[float, ...] = ()
    """Measured durations to draw from in place of `mean_s` and `sigma`."""
    train_s: float = Field(default=1.0, ge=0)
    """Duration of an update with its publish."""
    failing: float = Field(default=0.0, ge=0, le=1)
    """Chance that an episode fails, at the end of its duration."""
    fail_stop: float = Field(default=0.0, ge=0, le=1)
    """Chance that an episode never ends. Faults are drawn anew for every attempt, durations are not."""
    fail_slow: float = Field(default=0.0, ge=0, le=1)
    """Chance that an episode takes `slow_factor` times as long."""
    slow_factor: float = Field(default=10.0, ge=1)
    solved: float = Field(default=0.5, ge=0, le=1)
    """Chance that an episode earns reward 1 and not 0."""
    engines: EngineModel | None = None
    """With a model of engines turns are played on them; the durations drawn only tell how long an episode is beside others."""
    seed: int = 0

    @model_validator(mode="after")
    def _time_passes(self) -> Self:
        if any(seconds <= 0 for seconds in self.recorded_s):
            raise ValueError("recorded_s holds a duration that is not positive")
        return self


class Draws:
    """Everything that chance decides, as a function of seed, place, member and attempt: equal for every scheduler."""

    def __init__(self, workload: Workload) -> None:
        self._work = workload
        self._base = log(workload.mean_s) - workload.sigma**2 / 2
        self._own, self._common = (workload.sigma * (1 - workload.shared) ** 0.5, workload.sigma * workload.shared**0.5)
        self.usual_s = fmean(workload.recorded_s or (workload.mean_s,))
        self._faulty = bool(workload.fail_stop or workload.fail_slow)

    def seconds(self, index: int, member: int) -> float:
        """How long this member's episode lasts without faults."""
        work = self._work
        if work.recorded_s:
            return work.recorded_s[int(_uniform(work.seed, index, member, 1) * len(work.recorded_s))]
        found = self._base
        if self._own:
            found += self._own * _NORMAL(_uniform(work.seed, index, member, 1))
        if self._common:
            found += self._common * _NORMAL(_uniform(work.seed, index, 0, 2))
        return exp(found)

    def with_faults(self, seconds: float, lease: Lease) -> float | None:
        """How long an attempt lasts; None if it never ends."""
        if not self._faulty:
            return seconds
        chance = _uniform(self._work.seed, lease.index, lease.member, 16 + lease.attempt)
        if chance < self._work.fail_stop:
            return None
        return seconds * self._work.slow_factor if chance < self._work.fail_stop + self._work.fail_slow else seconds

    def reward(self, index: int, member: int, name: str) -> float | None:
        """What an episode earns; None if it fails."""
        work = self._work
        if work.failing and _uniform(work.seed, index, member, 1016 + int(name.rpartition(".")[2])) < work.failing:
            return None
        return float(_uniform(work.seed, index, member, 3) < work.solved)


_NORMAL = NormalDist().inv_cdf
_MASK = 2**64 - 1


def _uniform(seed: int, index: int, member: int, salt: int) -> float:
    """A number above 0 and below 1 that depends on its arguments only (splitmix64's finaliser)."""
    x = (
        seed * 0x9E3779B97F4A7C15 + index * 0xD1B54A32D192ED03 + member * 0x8CB92BA72F3D8DD7 + salt * 0xABC98388FB8FAC03
    ) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (((x ^ (x >> 31)) >> 12) + 0.5) * 2.0**-52
