"""What the rollout can be told."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from envhub.policy.throttle import START
from envhub.rollout.abort import AbortConfig
from envhub.rollout.replay import ReplayConfig
from envhub.settings import Settings


class RolloutConfig(Settings):
    """How trajectories are gathered."""

    group_size: int = Field(default=8, ge=2)
    """Episodes per task; GRPO compares them with one another."""
    groups_per_update: int = Field(default=8, ge=1)
    max_staleness: int = Field(default=0, ge=0)
    """Updates that a trained token may lag behind the newest weights; 0 is synchronous, on-policy training."""
    stale: Literal["mask", "drop"] = "mask"
    """What becomes of tokens that lag more: they alone are not trained on (mask), or their whole group is dropped, which loses
    long episodes first."""
    turn_deadline_s: float = Field(default=60.0, gt=0)
    episode_deadline_s: float = Field(default=300.0, gt=0)
    group_deadline_s: float = Field(default=900.0, gt=0)
    """After this a group goes on with the members it has, or is dropped."""
    hedge_after: float | None = Field(default=None, ge=1)
    """An episode that is older than this many times the 95th percentile of the last durations gets a twin with the same seed,
    up to three; whichever ends first counts."""
    max_attempts: int = Field(default=3, ge=1)
    """Failures of one episode until it counts as failed for good."""
    on_failure: Literal["shrink", "drop"] = "shrink"
    """A group that lost members for good goes on while it has min_group_size of them, or is dropped and replaced."""
    min_group_size: int = Field(default=2, ge=2)
    max_resampled_groups: int = Field(default=0, ge=0)
    """Groups per update that are replaced by another task's because all their rewards are equal; 0 keeps them."""
    over_issue: bool = False
    """Play the replacements that will be needed, by the share of constant groups so far, from the start."""
    extra_groups: int = Field(default=0, ge=0)
    """Synchronous only: groups played beyond an update's. The first to end are trained on; the others are put off to a long
    round of their own, and not lost (tail batching, arXiv:2509.21009)."""
    extra_members: int = Field(default=0, ge=0)
    """Episodes per task beyond group_size. The first to end are trained on, which favours short ones."""
    max_in_flight: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    """Episodes at once; None is all that are admitted, "auto" begins with few and adapts to what the engines can serve."""
    max_ready_tokens: int | None = Field(default=None, ge=1)
    """While whole groups that wait for the trainer hold more, no further group is opened."""
    replay: ReplayConfig | None = None
    """Train on groups of earlier updates again, within max_staleness."""
    abort: AbortConfig | None = None
    """Rules by which hopeless episodes are ended early."""
    max_failed_share: float = Field(default=0.5, gt=0, le=1)
    """Share of failed episodes among the last 100 that stops the run."""

    @property
    def first_in_flight(self) -> int | None:
        """Episodes that may be in flight at first; None is no limit."""
        return START if self.max_in_flight == "auto" else self.max_in_flight

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.min_group_size > self.group_size:
            raise ValueError(f"min_group_size {self.min_group_size} is more than group_size {self.group_size}")
        if self.group_deadline_s < self.episode_deadline_s:
            raise ValueError("group_deadline_s is shorter than episode_deadline_s")
        if self.extra_groups and self.max_staleness:
            raise ValueError("extra_groups are for synchronous training: set max_staleness to 0, or leave them out")
        if self.replay is not None and not self.max_staleness:
            raise ValueError("replay trains on tokens of older weights: set max_staleness to 1 or more")
        if self.over_issue and not self.max_resampled_groups:
            raise ValueError("over_issue needs max_resampled_groups")
        return self
