"""Policies without a model: a random player and a script, for baselines, tests and warm-up."""

import inspect
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from envhub.errors import ConfigError, PolicyError
from envhub.policy.core import Reply
from envhub.types import Segment


class TextSeat:
    """A seat that answers by a function of the observation; it has no tokens."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self._answer = answer

    async def act(self, observation: str) -> Reply:
        """The function's answer."""
        return Reply(self._answer(observation))

    def segments(self) -> tuple[Segment, ...]:
        """Nothing: there are no tokens."""
        return ()

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class RandomPolicy:
    """Picks a legal action at random, deterministic by the episode's seed; one of `actions` where none are known."""

    actions: tuple[str, ...] = ()

    def seat(self, *, episode: str, seed: int, instructions: str) -> "_RandomSeat":
        """Sit down with a generator of one's own."""
        return _RandomSeat(self.actions, random.Random(seed))


class _RandomSeat(TextSeat):
    def __init__(self, actions: tuple[str, ...], chance: random.Random) -> None:
        super().__init__(lambda _: "")
        self._actions, self._chance = actions, chance
        self._legal: Callable[[], Any] = lambda: ()

    def meet(self, env: object) -> None:
        if isinstance(env, _NamesActions):
            self._legal = env.legal_actions

    async def act(self, observation: str) -> Reply:
        legal = self._legal()
        actions = (await legal if inspect.isawaitable(legal) else legal) or self._actions
        if not actions:
            raise PolicyError("this environment names no actions to draw from", mend="use another policy than random")
        return Reply(self._chance.choice(actions))


@runtime_checkable
class _NamesActions(Protocol):
    def legal_actions(self) -> Any: ...  # a sequence of actions, or an awaitable of one


@dataclass(frozen=True, slots=True)
class SolverPolicy:
    """Plays what an environment's own solver names."""

    solver: Callable[[Any], str]

    def seat(self, *, episode: str, seed: int, instructions: str) -> "_SolverSeat":
        """Sit down beside the environment."""
        return _SolverSeat(self.solver)


class _SolverSeat(TextSeat):
    def __init__(self, solver: Callable[[Any], str]) -> None:
        super().__init__(lambda _: solver(self._env))
        self._env: object = None

    def meet(self, env: object) -> None:
        self._env = env


@dataclass(frozen=True, slots=True)
class ScriptedPolicy:
    """Says `lines` one after the other, from the top in every episode; running out of lines is a PolicyError."""

    lines: tuple[str, ...]

    @staticmethod
    def read(path: Path) -> "ScriptedPolicy":
        """A script from a text file: one reply per line."""
        try:
            return ScriptedPolicy(tuple(path.read_text(encoding="utf-8").splitlines()))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the script {path}: {error}", mend="give a UTF-8 text file") from error

    def seat(self, *, episode: str, seed: int, instructions: str) -> TextSeat:
        """Sit down at the first line."""
        lines = iter(self.lines)
        return TextSeat(lambda _: _next_line(lines))


def _next_line(lines: Iterator[str]) -> str:
    for line in lines:
        return line
    raise PolicyError("the script has no more lines", mend="write as many lines as the episode has turns")


def words_of(texts: Iterable[str]) -> tuple[str, ...]:
    """The distinct whitespace-separated words of some texts, sorted."""
    return tuple(sorted({word for text in texts for word in text.split()}))
