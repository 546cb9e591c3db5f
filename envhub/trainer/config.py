"""What the trainer and its algorithm can be told."""

from typing import Literal, Self

from pydantic import Field, model_validator

from envhub.settings import Settings


class AlgorithmConfig(Settings):
    """GRPO: how rewards become advantages, and advantages a loss."""

    name: Literal["grpo"] = "grpo"
    scale: Literal["std", "none", "loo", "mean"] = "std"
    """std is GRPO; none is Dr.GRPO; loo is RLOO; mean is MaxRL."""
    ddof: int = Field(default=1, ge=0, le=1)
    eps: float = Field(default=1e-6, gt=0)
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.2, gt=0)
    dual_clip: float | None = Field(default=None, gt=1)
    aggregation: Literal["token_mean", "trajectory_mean", "trajectory_sum", "constant"] = "token_mean"
    aggregation_constant: int | None = Field(default=None, ge=1)
    entropy_bonus: float = Field(default=0.0, ge=0)
    keep_per_group: int | None = Field(default=None, ge=2)
    """Train on this many trajectories of each group, half of them the best and half the worst (arXiv:2504.13818)."""
    blame_discount: float = Field(default=1.0, gt=0, le=1)
    """In trajectories below their group's mean, each turn before the last bears this much less of the blame."""

    @model_validator(mode="after")
    def _constant_named(self) -> Self:
        if (self.aggregation == "constant") != (self.aggregation_constant is not None):
            raise ValueError("aggregation_constant goes with aggregation=constant, and only with it")
        return self


class WarmupConfig(Settings):
    """Supervised training on random play before the first update, so that a new model speaks the action format."""

    steps: int = Field(default=0, ge=0)
    episodes_per_step: int = Field(default=24, ge=1)
    learning_rate: float = Field(default=3e-3, gt=0)
    observation_weight: float = Field(default=0.1, ge=0)
    """Weight of predicting observation tokens, beside 1 for the action tokens."""


class TrainerConfig(Settings):
    """How weights are updated."""

    learning_rate: float = Field(default=1e-6, gt=0)
    warmup_updates: int = Field(default=0, ge=0)
    schedule: Literal["constant", "cosine"] = "constant"
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Most packed tokens of one forward and backward pass."""
    zero_stage: Literal[0, 1, 2] = 0
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of torch; None keeps torch's own choice."""
    max_bad_updates: int = Field(default=3, ge=1)
    """Updates in a row with a non-finite loss or gradient that stop the run; each of them is skipped."""
    gradient_checkpointing: bool = False
    warmup: WarmupConfig = WarmupConfig()


class CheckpointConfig(Settings):
    """When the run's state is written down."""

    every: int = Field(default=10, ge=1)
    """Updates between checkpoints; the last update is always written."""
    keep: int = Field(default=2, ge=1)
