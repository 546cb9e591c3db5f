"""Ends hopeless episodes by declared rule: their turns are spent on others, and they count as what they are, lost."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import Field, model_validator

from envhub.errors import EnvError
from envhub.rollout.foreign import installed
from envhub.settings import Settings

Exchange = tuple[str, str]  # what was seen, and what was said to it


class AbortConfig(Settings):
    """When a training episode is ended: it is truncated, keeps its rewards and is trained on. Evaluation plays to the end."""

    same_replies: int | None = Field(default=None, ge=2)
    """So many equal replies to equal observations, one after another."""
    turns: int | None = Field(default=None, ge=1)
    """From so many turns on, an episode must have earned `reward`."""
    reward: float | None = None
    function: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    """A rule of your own, "package.module:function": takes the exchanges, pairs of observation and reply, and the reward so
    far; gives a name for the reason to end, or None."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.turns is None) != (self.reward is None):
            raise ValueError("turns and reward belong together: by how many turns how much must be earned")
        if self.same_replies is None and self.turns is None and self.function is None:
            raise ValueError("an abort without a rule: give same_replies, turns and reward, or function")
        return self


@dataclass(slots=True)
class Abort:
    """The rules of a config, and how often each has ended an episode."""

    config: AbortConfig
    counts: Counter[str] = field(default_factory=Counter)
    _own: Callable[[Sequence[Exchange], float], Any] | None = None

    @classmethod
    def of(cls, config: AbortConfig) -> "Abort":
        """Raises ConfigError for a function that is none."""
        return cls(config, _own=None if config.function is None else installed(config.function, what="abort rule"))

    def __call__(self, exchanges: Sequence[Exchange], reward: float) -> str | None:
        """Why the episode is hopeless, if it is. Raises EnvError if the rule of your own breaks."""
        why = self._why(exchanges, reward)
        if why is not None:
            self.counts[why] += 1
        return why

    def _why(self, exchanges: Sequence[Exchange], reward: float) -> str | None:
        config = self.config
        same = config.same_replies
        if same is not None and len(exchanges) >= same and len(set(exchanges[-same:])) == 1:
            return "same_replies"
        if config.turns is not None and config.reward is not None and len(exchanges) >= config.turns and reward < config.reward:
            return "reward"
        if self._own is None:
            return None
        try:
            why = self._own(exchanges, reward)
        except Exception as error:  # foreign code enters here
            raise EnvError(
                f"abort rule {config.function} raised {type(error).__name__}: {error}", mend="mend the rule"
            ) from error
        if why is None or (isinstance(why, str) and why):
            return why
        raise EnvError(f"abort rule {config.function} gave {why!r}", mend="give a name for the reason, or None")
