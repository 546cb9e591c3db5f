"""What the tool environments share: the style of calls is an option, and every answer names its state."""

from abc import abstractmethod
from typing import Any, ClassVar

from envhub.envs.core import Info, StateLevel
from envhub.envs.tools import ToolEnv
from envhub_tools.styles import checked_style, write_answer, write_call


class ToolQuestion(ToolEnv):
    """A `ToolEnv` whose first observation says how to call its tools. Implement `anchor` beside `begin` and `finish`."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, style: str = "hermes") -> None:
        """Take calls in one of the styles of `envhub.envs.parsers`."""
        self.call_style = checked_style(style)  # type: ignore[misc]  # the class's default is an option here

    @abstractmethod
    def anchor(self) -> str:
        """A name of the current state within the task."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start a task; the tools are explained first."""
        question, info = super().reset(seed=seed, options=options)
        return f"{self.toolbox().explain(self.call_style)}\n\n{question}", info | {"anchor": self.anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Run the reply's calls, or take it as the answer. Observations can always be encoded."""
        observation, reward, terminated, truncated, info = super().step(action)
        readable = observation.encode("utf-8", "replace").decode()  # calls may name what no encoding holds
        return readable, reward, terminated, truncated, info | {"anchor": self.anchor()}

    def call(self, name: str, **arguments: Any) -> str:
        """A reply that calls a tool in this environment's style."""
        return write_call(self.call_style, name, **arguments)

    def reply(self, answer: str) -> str:
        """A reply that answers in this environment's style."""
        return write_answer(self.call_style, answer)
