"""Mastermind: find a code of digits; each guess is answered by how many stand right and how many are there elsewhere."""

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_LONGEST_REPLY = 4096


class Mastermind(Env):
    """A code of `length` digits from 1 to `colours`, which may repeat."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, length: int = 4, colours: int = 6) -> None:
        """Hide codes of this size."""
        _check(length, colours)
        self.length, self.colours = length, colours
        self._wanted = re.compile(rf"(?<![0-9])[1-{colours}]{{{length}}}(?![0-9])")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Hide the task's code, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        self.code = str(task["code"]) if task else code_of(int(self.np_random.integers(2**31)), self.length, self.colours)
        self.guesses: tuple[tuple[str, tuple[int, int]], ...] = ()
        self.over = False
        return self._show(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the last code in the reply as the guess; spaces between its digits do not matter."""
        found = self._wanted.findall(re.sub(r"(?<=[0-9])[ ,]+(?=[0-9])", "", action[-_LONGEST_REPLY:]))
        if not found or self.over:
            told = f"{self._show()}\nGuess {self.length} digits from 1 to {self.colours}."
            return told, 0.0, self.over, False, self._info() | {"illegal": True}
        answer = pegs(self.code, found[-1])
        self.guesses += ((found[-1], answer),)
        self.over = answer[0] == self.length
        return self._show(), float(self.over), self.over, False, self._info() | {"success": self.over}

    def legal_actions(self) -> tuple[str, ...]:
        """Every code."""
        return () if self.over else consistent((), self.length, self.colours)

    def _show(self) -> str:
        if not self.guesses:
            return f"I hide {self.length} digits from 1 to {self.colours}; they may repeat."
        return "\n".join(f"{guess}: {right} right, {there} elsewhere" for guess, (right, there) in self.guesses)

    def _info(self) -> Info:
        return {"anchor": " ".join(f"{guess}{right}{there}" for guess, (right, there) in self.guesses)}


def pegs(code: str, guess: str) -> tuple[int, int]:
    """How many digits of a guess stand right, and how many more are in the code."""
    right = sum(a == b for a, b in zip(code, guess, strict=True))
    return right, sum((Counter(code) & Counter(guess)).values()) - right


@lru_cache(4096)
def consistent(guesses: tuple[tuple[str, tuple[int, int]], ...], length: int, colours: int) -> tuple[str, ...]:
    """The codes that fit all answers, in order."""
    if not guesses:
        return tuple("".join(code) for code in itertools.product("123456789"[:colours], repeat=length))
    guess, answer = guesses[-1]
    return tuple(code for code in consistent(guesses[:-1], length, colours) if pegs(code, guess) == answer)


def code_of(seed: int, length: int, colours: int) -> str:
    """A code from a seed."""
    return "".join(str(seed // colours**place % colours + 1) for place in range(length))


def solve(env: Mastermind) -> str:
    """The first code that fits all answers, after a first guess that tells most (Knuth's 1122)."""
    return ("1122334455"[: env.length]) if not env.guesses else consistent(env.guesses, env.length, env.colours)[0]


def tasks(*, length: int = 4, colours: int = 6) -> GeneratedTasks:
    """Codes; a code belongs to one split only."""
    _check(length, colours)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"code": code_of(seed, length, colours)}

    return GeneratedTasks(draw)


def _check(length: int, colours: int) -> None:
    if not (3 <= length <= 6 and 4 <= colours <= 9) or colours**length > 70_000:
        raise ValueError(f"length {length} must be 3 to 6, colours {colours} 4 to 9, and at most 70000 codes")


SPEC = EnvSpec(
    id="game/Mastermind-v1",
    make=Mastermind,
    tasks=tasks,
    instructions="Find the hidden digits. I say how many stand right and how many are elsewhere. Answer with a code: 1122.",
    max_turns=8,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.01, "solver": 1.0},
)
