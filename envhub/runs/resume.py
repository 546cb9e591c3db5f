"""Where a run stopped, and what is left of it to do: read from its newest checkpoint and its journal."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from envhub.errors import ConfigError
from envhub.journal.store import Journal
from envhub.runs.config import TrainConfig
from envhub.runs.folder import RunFolder
from envhub.settings import redacted
from envhub.trainer.checkpoint import Checkpoint, newest_checkpoint
from envhub.types import TrajectoryGroup

MAY_CHANGE = ("run.updates", "run.dir", "eval", "checkpoint", "rollout.max_in_flight", "trainer.threads")

Claims = tuple[tuple[int, tuple[TrajectoryGroup, ...]], ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, beside the weights; plain JSON in a checkpoint."""

    update: int = 0
    bad_updates: int = 0
    before: Mapping[str, Any] | None = None
    stopped_early: bool = False
    curriculum: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Frontier:
    """Where a run goes on.

    Attributes:
        progress: as of the checkpoint.
        next_index: place in the task stream of the first new group.
        backlog: places before it whose groups were neither trained on nor dropped.
        claims: what was claimed after the checkpoint, to be trained on again.
        checkpoint: None to start from the beginning.
        notes: sentences for people.
    """

    progress: Progress = Progress()
    next_index: int = 0
    backlog: tuple[int, ...] = ()
    claims: Claims = ()
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = ()


def find_frontier(folder: RunFolder, journal: Journal) -> Frontier:
    """The frontier of a run that stopped; episodes that no update claimed are superseded and played anew."""
    checkpoint, problems = newest_checkpoint(folder.checkpoints)
    start = Frontier(notes=(*problems, "no checkpoint: starting over"))
    if checkpoint is not None:
        state = checkpoint.state
        start = Frontier(
            progress=Progress(**state["progress"]),
            next_index=int(state["next_index"]),
            backlog=tuple(state["backlog"]),
            checkpoint=checkpoint,
            notes=(*problems, f"resumed from update {checkpoint.update}"),
        )
    journal.supersede([t.id for t in journal.unclaimed()], "the run stopped before they were trained on")
    claims = journal.claims(after=start.progress.update)
    claimed = {group.index for _, groups in claims for group in groups}
    next_index = max([start.next_index, *(index + 1 for index in claimed)])
    left = {*start.backlog, *range(start.next_index, next_index)} - claimed
    return replace(start, next_index=next_index, backlog=tuple(sorted(left)), claims=claims)


def refuse_changes(folder: RunFolder, config: TrainConfig) -> None:
    """Compare a config with the one that the run was started with.

    Raises:
        ConfigError: something that decides what is learned has changed.
    """
    stored = _flat(yaml.safe_load(folder.config.read_text(encoding="utf-8")))
    given = _flat(redacted(config).model_dump(mode="json"))
    changed = [
        f"{key} was {stored.get(key)!r} and is {given.get(key)!r}"
        for key in sorted(stored.keys() | given.keys())
        if stored.get(key) != given.get(key) and not key.startswith(MAY_CHANGE)
    ]
    if changed:
        raise ConfigError(
            f"the run in {folder.root} was started otherwise: {'; '.join(changed)}",
            mend="resume with the run's own config, or choose another run.name",
        )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found
