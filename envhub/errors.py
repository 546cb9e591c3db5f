"""The errors EnvHub raises on purpose: each says what went wrong and how to mend it.

    EnvHubError
    ├── ConfigError        the request was wrong: a run stops before it starts (exit code 2)
    ├── EpisodeError       one episode failed; caught once, in `rollout.play`, and becomes data
    │   ├── EnvError           the environment raised, hung or lied
    │   └── PolicyError        the policy could not answer
    ├── JournalError       the durable record refused: locked, full, or not what was expected
    ├── CheckpointError    a checkpoint is torn, non-finite or of another run
    ├── PreflightError     trainer and sampler disagree; training would learn from noise
    ├── PublishError       the sampler does not hold the weights it was given
    └── RunFailed          the work failed: too many failed episodes, non-finite updates in a row (exit code 1)

Any other exception is a bug, and ends the run loudly.
"""


class EnvHubError(Exception):
    """An error raised on purpose: what went wrong, and how to mend it."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(what, mend)  # both in args, so it survives pickling between processes

    @property
    def what(self) -> str:
        """What went wrong, in one sentence."""
        return str(self.args[0])

    @property
    def mend(self) -> str:
        """What the reader may do about it."""
        return str(self.args[1])

    def __str__(self) -> str:
        return f"{self.what}\n  mend: {self.mend}"


class ConfigError(EnvHubError):
    """The request was wrong: config, arguments, or what they point at."""


class EpisodeError(EnvHubError):
    """One episode cannot go on; the run can."""


class EnvError(EpisodeError):
    """An environment raised, hung, or broke its contract."""


class PolicyError(EpisodeError):
    """A policy could not answer in this episode."""


class JournalError(EnvHubError):
    """The durable record cannot be written or does not hold what was claimed."""


class CheckpointError(EnvHubError):
    """A checkpoint is torn, holds non-finite weights, or belongs to another run."""


class PreflightError(EnvHubError):
    """Trainer and sampler disagree about tokens, mask or logprobs at equal weights."""


class PublishError(EnvHubError):
    """The sampler does not hold the weights that the trainer published."""


class RunFailed(EnvHubError):
    """The work failed after it had started."""
