"""GuessNumber: find a number by halving; every answer says whether the number is higher or lower."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_NUMBER = re.compile(r"(?<![\w.-])[0-9]{1,9}(?![\w-])")
_LONGEST_REPLY = 4096


class GuessNumber(Env):
    """The number lies between 1 and `high`; the episode ends when it is found."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, high: int = 100) -> None:
        """Hide numbers from 1 to `high`."""
        _check(high)
        self._high = high

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Hide the task's number, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        self._number = int(task["number"]) if task else int(self.np_random.integers(1, self._high + 1))
        self._least, self._most, self._done = 1, self._high, False
        return self._show(), {"anchor": self._anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the reply's last number as the guess."""
        numbers = _NUMBER.findall(action[-_LONGEST_REPLY:])
        if not numbers or self._done or not 1 <= int(numbers[-1]) <= self._high:
            told = f"{self._show()}\nGuess a number from 1 to {self._high}."
            return told, 0.0, self._done, False, {"illegal": True, "anchor": self._anchor()}
        guess = int(numbers[-1])
        if guess == self._number:
            self._done = True
            return f"{guess} is right.", 1.0, True, False, {"success": True, "anchor": self._anchor()}
        if guess < self._number:
            self._least = max(self._least, guess + 1)
            return f"The number is higher than {guess}.", 0.0, False, False, {"anchor": self._anchor()}
        self._most = min(self._most, guess - 1)
        return f"The number is lower than {guess}.", 0.0, False, False, {"anchor": self._anchor()}

    def legal_actions(self) -> tuple[str, ...]:
        """Every number that the answers so far allow."""
        return tuple(map(str, range(self._least, self._most + 1)))

    def _show(self) -> str:
        return f"I think of a number from {self._least} to {self._most}."

    def _anchor(self) -> str:
        return f"{self._least}-{self._most}"


def tasks(*, high: int = 100) -> GeneratedTasks:
    """Numbers from 1 to `high`; a number belongs to one split only."""
    _check(high)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"number": seed % high + 1}

    return GeneratedTasks(draw)


def _check(high: int) -> None:
    if not 20 <= high <= 10**6:
        raise ValueError(f"high {high} must be 20 to 1000000")


SPEC = EnvSpec(
    id="game/GuessNumber-v1",
    make=GuessNumber,
    tasks=tasks,
    instructions="Find the number I think of. After each guess I say whether it is higher or lower. Answer with a number.",
    max_turns=10,
    success_reward=1.0,
    inline=True,
    solver=lambda env: str((env._least + env._most) // 2),
    baselines={"random": 0.88, "solver": 1.0},
)
