"""Groups that are trained on more than once, within a declared number of uses and the bound on staleness."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from envhub.settings import Settings
from envhub.types import TrajectoryGroup


class ReplayConfig(Settings):
    """How much of earlier updates is trained on again."""

    groups: int = Field(ge=1)
    """Earlier groups that an update trains on beside its own `groups_per_update`, if there are so many."""
    uses: int = Field(default=2, ge=2)
    """Updates that may train on one group, the first included."""


@dataclass(slots=True)
class _Kept:
    group: TrajectoryGroup
    newest: int
    uses: int


class ReplayBuffer:
    """What may be trained on again. A function of what updates trained on, so a resumed run has the same one."""

    def __init__(self, config: ReplayConfig | None, *, max_staleness: int) -> None:
        """Without a config nothing is kept."""
        self._config, self._max_staleness = config, max_staleness
        self._kept: dict[str, _Kept] = {}

    def __contains__(self, group: TrajectoryGroup) -> bool:
        """Whether the group is kept, and may be used again."""
        return group.id in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def pick(self, version: int) -> tuple[TrajectoryGroup, ...]:
        """The groups that the update on top of weights `version` trains on again: those used least, then those sampled last.

        Groups whose every token lags more than the bound are let go.
        """
        if self._config is None:
            return ()
        floor = version - self._max_staleness
        self._kept = {name: kept for name, kept in self._kept.items() if kept.newest >= floor}
        order = sorted(self._kept.values(), key=lambda kept: (kept.uses, -kept.newest, kept.group.index))
        return tuple(kept.group for kept in order[: self._config.groups])

    def used(self, groups: Sequence[TrajectoryGroup]) -> None:
        """An update has trained on these. Groups that teach nothing, all rewards being equal, are not kept."""
        if self._config is None:
            return
        for group in groups:
            kept = self._kept.get(group.id)
            if kept is not None:
                kept.uses += 1
                if kept.uses >= self._config.uses:
                    del self._kept[group.id]
            elif len({trajectory.reward for trajectory in group.trajectories}) > 1:
                self._kept[group.id] = _Kept(group, _newest(group), 1)


def _newest(group: TrajectoryGroup) -> int:
    versions = [t.newest_version for t in group.trajectories if t.newest_version is not None]
    return max(versions, default=-1)
