"""The config of a training run: every section is owned by the room it configures."""

from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from envhub.policy.config import SamplerConfig
from envhub.policy.models import ModelConfig
from envhub.rollout.config import RolloutConfig
from envhub.rollout.scoring import RewardConfig
from envhub.settings import Settings
from envhub.trainer.config import AlgorithmConfig, CheckpointConfig, TrainerConfig


class RunConfig(Settings):
    """What the run is called, where it is kept and how long it lasts."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    dir: Path = Path("runs")
    seed: int = Field(default=0, ge=0)
    updates: int = Field(ge=1)


class CurriculumConfig(Settings):
    """How success moves a mixture from its first, easiest member to its last."""

    window: int = Field(default=16, ge=1)
    """Groups of the current member that are looked at."""
    up: float = Field(default=0.8, gt=0, le=1)
    """Mean success from which on the next member's turn has come."""
    down: float = Field(default=0.2, ge=0, lt=1)
    """Mean success up to which the member before has its turn again."""
    review: float = Field(default=0.2, ge=0, lt=1)
    """Share of groups that come from earlier members."""


class EnvConfig(Settings):
    """Which environment teaches."""

    id: str
    """An id of `envhub list`, or with `mixture` the mixture's own."""
    url: str | None = None
    """A served environment that is played instead of `id`; `options` must then be the server's own."""
    mixture: dict[str, float | dict[str, Any]] = Field(default_factory=dict)
    """Members by name: a weight, or {id, options, weight}; the order is that of the curriculum."""
    curriculum: CurriculumConfig | None = None
    """Without one, members are drawn by weight."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Given to the environment's factory and to its task set."""
    tasks: Path | None = None
    """A JSON lines or Parquet file, or a dataset folder, whose rows are the tasks instead of the environment's own."""
    max_turns: int | None = Field(default=None, ge=1)
    split: str = "train"
    wrappers: tuple[dict[str, Any], ...] = ()
    """Lenses on what the policy sees and earns, by name and options: [{name: time_limit, max_turns: 20}]."""
    seat: int | None = Field(default=None, ge=0)
    """Where the policy sits in a game of several players; by default it takes turns, by group."""
    opponents: tuple[str, ...] = ()
    """Policies of the other seats: random, solver, scripted:FILE or hf:FOLDER; none means self-play."""
    rewards: tuple[RewardConfig, ...] = ()
    """Workers that score an episode once it has ended, while others go on: of kind rule, sandbox or judge."""
    reward_weight: float = 1.0
    """Factor of the environment's own rewards beside theirs."""

    @model_validator(mode="after")
    def _mixed(self) -> Self:
        if self.curriculum is not None and not self.mixture:
            raise ValueError("env.curriculum needs env.mixture")
        if self.curriculum is not None and self.curriculum.down >= self.curriculum.up:
            raise ValueError("env.curriculum.down must be less than up")
        if self.mixture and self.options:
            raise ValueError("with env.mixture, options belong to its members")
        if self.reward_weight != 1.0 and not self.rewards:
            raise ValueError("env.reward_weight weighs the environment's rewards against those of env.rewards: give some")
        return self


class EvalConfig(Settings):
    """How the policy is measured before, during and after training."""

    episodes: int = Field(default=0, ge=0)
    """Tasks of `split` that are played before and after training; 0 plays none."""
    split: str = "test"
    every: int = Field(default=0, ge=0)
    """Updates between measurements on `stop_split`; 0 makes none."""
    stop_split: str = "validation"
    stop_at: float | None = Field(default=None, gt=0, le=1)
    """Training ends early when success on `stop_split` reaches this."""


class TrainConfig(Settings):
    """A training run."""

    run: RunConfig
    env: EnvConfig
    model: ModelConfig
    sampler: SamplerConfig = SamplerConfig()
    rollout: RolloutConfig = RolloutConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    trainer: TrainerConfig = TrainerConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        keep, size = self.algorithm.keep_per_group, self.rollout.group_size
        if keep is not None and keep > size:
            raise ValueError(f"algorithm.keep_per_group {keep} is more than rollout.group_size {size}")
        if self.trainer.warmup.steps and self.model.init is None:
            raise ValueError("trainer.warmup is for models built by model.init; a pretrained one needs none")
        if self.sampler.max_tokens >= self.sampler.max_context_tokens:
            raise ValueError("sampler.max_tokens leaves no room for a prompt within sampler.max_context_tokens")
        init = self.model.init
        if init is not None and self.sampler.max_context_tokens > init.max_context_tokens:
            raise ValueError("sampler.max_context_tokens is more than model.init.max_context_tokens")
        return self
