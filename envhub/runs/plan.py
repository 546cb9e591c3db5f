"""What a config amounts to, and what it would cost: counted from its sizes, or simulated with the run's own scheduler."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from envhub.errors import ConfigError, RunFailed
from envhub.journal.store import Journal
from envhub.rollout.config import RolloutConfig
from envhub.rollout.simulate import Simulation, simulate
from envhub.rollout.workload import Draws, Workload
from envhub.runs.config import TrainConfig
from envhub.runs.folder import RunFolder
from envhub.settings import checked
from envhub.telemetry import read_metrics

COMPARED = (0, 1, 2, 4)  # bounds of staleness that a plan shows beside the config's own
FOREVER_S = 1e9  # a deadline that no assumed duration reaches


def describe(config: TrainConfig) -> dict[str, object]:
    """What the config amounts to: episodes, tokens and optimiser steps, before anything is loaded."""
    per_update = config.rollout.group_size * config.rollout.groups_per_update
    replayed = 0 if config.rollout.replay is None else config.rollout.replay.groups
    kept = config.algorithm.keep_per_group or config.rollout.group_size
    return {
        "updates": config.run.updates,
        "episodes_per_update": per_update,
        "episodes": per_update * config.run.updates,
        "trained_trajectories_per_update_at_most": kept * (config.rollout.groups_per_update + replayed),
        "tokens_at_most": per_update * config.run.updates * config.sampler.max_context_tokens,
        "staleness_at_most": config.rollout.max_staleness,
        "checkpoints": -(-config.run.updates // config.checkpoint.every),
        "evaluation_episodes": 2 * config.eval.episodes,
    }


@dataclass(frozen=True, slots=True)
class Recording:
    """What a run's journal and metrics tell of durations: by place and member, and of an update with its publish."""

    seconds: Mapping[tuple[int, int], float]
    rewards: Mapping[tuple[int, int], float]
    failing: float
    turns: int
    train_s: float


class Replayed(Draws):
    """The durations and rewards that were recorded, each at its own place; beyond them, drawn from all of them."""

    def __init__(self, workload: Workload, recording: Recording) -> None:
        """Replay `recording`; faults and failures are still drawn as `workload` says."""
        super().__init__(workload)
        self._recording = recording

    def seconds(self, index: int, member: int) -> float:
        """See `Draws.seconds`."""
        known = self._recording.seconds.get((index, member))
        return super().seconds(index, member) if known is None else known

    def reward(self, index: int, member: int, name: str) -> float | None:
        """See `Draws.reward`."""
        drawn = super().reward(index, member, name)
        return None if drawn is None else self._recording.rewards.get((index, member), drawn)


def read_recording(root: Path) -> Recording:
    """What a run recorded so far. Raises ConfigError if the folder holds no run, or no episode or update yet."""
    folder = RunFolder(root)
    if not folder.journal.exists():
        raise ConfigError(f"{root} holds no run", mend="give a run's folder, as in runs/NAME")
    seconds: dict[tuple[int, int], float] = {}
    rewards: dict[tuple[int, int], float] = {}
    turns: list[int] = []
    played = 0
    with Journal.read(folder.journal) as journal:
        for trajectory in journal.trajectories():
            stream, _, place = trajectory.group.rpartition("-")
            if stream != "train" or not place.isdecimal():
                continue
            played += 1
            if trajectory.reward is not None:
                key = (int(place), trajectory.member)
                seconds[key], rewards[key] = max(trajectory.seconds, 1e-6), trajectory.reward
                turns.append(len(trajectory.turns))
    updates = [row["time/train_s"] + row["time/publish_s"] for row in read_metrics(folder.metrics) if "time/train_s" in row]
    if not (seconds and updates):
        raise ConfigError(f"{root} holds no finished episode or no update", mend="record a run of a few updates first")
    return Recording(seconds, rewards, 1 - len(seconds) / played, max(1, round(fmean(turns))), median(updates))


@dataclass(frozen=True, slots=True)
class Planned:
    """One way of scheduling, and what came of it; `problem` tells why it could not run."""

    name: str
    simulation: Simulation | None
    problem: str = ""


def plan(
    config: TrainConfig, *, assumed: Mapping[str, Any], recording: Recording | None = None
) -> tuple[Workload, list[Planned]]:
    """Simulate the config's schedule, and others beside it.

    Args:
        config: its rollout is simulated; nothing of it is loaded.
        assumed: fields of `Workload`, by name; they win over what was recorded.
        recording: durations to replay.

    Returns:
        What was assumed, and the config's own schedule first.

    Raises:
        ConfigError: `assumed` names what is none, or values out of range.
    """
    limit = config.rollout.max_in_flight
    known: dict[str, Any] = {
        "slots": limit if isinstance(limit, int) else config.sampler.max_rows,
        "updates": 120,
        "shared": 0.5,
    }
    if recording is not None:
        known |= {
            "recorded_s": tuple(recording.seconds.values()),
            "train_s": recording.train_s,
            "turns": recording.turns,
            "failing": recording.failing,
        }
    workload = checked(Workload, {**known, "seed": config.run.seed, **assumed}, source="--assume")
    replay = recording if recording is not None and not {"mean_s", "sigma", "recorded_s"} & assumed.keys() else None
    if replay is None and "recorded_s" not in assumed:
        workload = workload.model_copy(update={"recorded_s": ()})
    rollout = config.rollout
    if recording is None:  # what is only assumed is not held against deadlines in seconds
        forever = {f"{what}_deadline_s": FOREVER_S for what in ("turn", "episode", "group")}
        rollout = rollout.model_copy(update=forever)
    found = [_planned("this config", rollout, workload, replay)]
    for staleness in COMPARED:
        other = rollout.model_copy(update={"max_staleness": staleness, "extra_groups": 0})
        if other != rollout:
            found.append(_planned(f"staleness {staleness}", other, workload, replay))
    return workload, found


def _planned(name: str, config: RolloutConfig, workload: Workload, recording: Recording | None) -> Planned:
    draws = None if recording is None else Replayed(workload, recording)
    try:
        return Planned(name, simulate(config, workload, draws=draws))
    except RunFailed as error:
        return Planned(name, None, error.what)


COLUMNS = ("", "s/update", "trainer idle", "slots idle", "wasted", "lag mean/most", "masked", "length bias", "p")


def table(planned: list[Planned]) -> list[tuple[str, ...]]:
    """Rows for people, with the columns of `COLUMNS`."""
    return [_row(each) for each in planned]


def _row(each: Planned) -> tuple[str, ...]:
    run = each.simulation
    if run is None:
        return (each.name, each.problem.splitlines()[0], *itertools.repeat("", len(COLUMNS) - 2))
    seconds = run.bias.measures.get("seconds")
    p = math.nan if seconds is None else seconds.p
    return (
        each.name,
        f"{run.steady_s:.2f}",
        f"{run.trainer_idle:.0%}",
        f"{run.slots_idle:.0%}",
        f"{max(0.0, run.slots_wasted):.0%}",
        f"{run.staleness_mean:.2f} / {run.staleness_max}",
        f"{run.tokens_masked:.1%}",
        f"{run.duration_bias:.3f}",
        f"{p:.2g}",
    )


def as_json(planned: list[Planned]) -> list[dict[str, object]]:
    """The same for programs."""
    found: list[dict[str, object]] = []
    for each in planned:
        run = each.simulation
        row: dict[str, object] = {"schedule": each.name, "problem": each.problem or None}
        if run is not None:
            names = [name for name in run.__dataclass_fields__ if name != "bias"]
            row |= {name: getattr(run, name) for name in names} | {"bias": run.bias.metrics()}
        found.append(row)
    return found
