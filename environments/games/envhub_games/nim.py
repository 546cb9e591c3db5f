"""Nim against an opponent that plays perfectly but for a share of random moves: who takes the last stick wins."""

import random
import re
from collections.abc import Mapping
from functools import reduce
from operator import xor
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_NUMBERS = re.compile(r"(?<![\w.-])[0-9]{1,3}(?![\w-])", re.ASCII)
_LONGEST_REPLY = 4096


class Nim(Env):
    """You move first, and every start is one that the first player can win."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, heaps: int = 3, most: int = 7, mistakes: float = 0.3) -> None:
        """Play with so many heaps of up to `most` sticks against an opponent that errs in this share of its moves."""
        _check(heaps, most, mistakes)
        self._heaps_wanted, self._most, self._mistakes = heaps, most, mistakes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Lay the task's heaps, or some drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options) or start(int(self.np_random.integers(2**31)), self._heaps_wanted, self._most)
        self.heaps = tuple(map(int, task["heaps"]))
        self._chance = random.Random(int(task["opponent"]))
        return self._show(), {"anchor": self._anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take from a heap: the reply's last two numbers are the heap and how many; the opponent answers at once."""
        numbers = [int(n) for n in _NUMBERS.findall(action[-_LONGEST_REPLY:])][-2:]
        over = not any(self.heaps)
        legal = len(numbers) == 2 and 1 <= numbers[0] <= len(self.heaps) and 1 <= numbers[1] <= self.heaps[numbers[0] - 1]
        if over or not legal:
            told = f"{self._show()}\nName a heap and how many sticks, such as: 2 3."
            return told, 0.0, over, False, {"illegal": True, "anchor": self._anchor()}
        self.heaps = take(self.heaps, numbers[0] - 1, numbers[1])
        if not any(self.heaps):
            return "You took the last stick and win.", 1.0, True, False, {"anchor": self._anchor(), "success": True}
        heap, count = best(self.heaps) if self._chance.random() >= self._mistakes else _any(self.heaps, self._chance)
        self.heaps = take(self.heaps, heap, count)
        told = f"I take {count} from heap {heap + 1}.\n"
        if not any(self.heaps):
            return f"{told}I took the last stick and win.", 0.0, True, False, {"anchor": self._anchor(), "success": False}
        return told + self._show(), 0.0, False, False, {"anchor": self._anchor()}

    def legal_actions(self) -> tuple[str, ...]:
        """Every take."""
        return tuple(f"{heap + 1} {count}" for heap, sticks in enumerate(self.heaps) for count in range(1, sticks + 1))

    def _show(self) -> str:
        return "\n".join(f"heap {number}: {'|' * sticks} ({sticks})" for number, sticks in enumerate(self.heaps, 1))

    def _anchor(self) -> str:
        return ",".join(map(str, self.heaps))


def take(heaps: tuple[int, ...], heap: int, count: int) -> tuple[int, ...]:
    """The heaps after a take."""
    return (*heaps[:heap], heaps[heap] - count, *heaps[heap + 1 :])


def best(heaps: tuple[int, ...]) -> tuple[int, int]:
    """A take that leaves a nim-sum of 0 (Bouton, 1901); one stick of the largest heap where there is none."""
    total = reduce(xor, heaps)
    for heap, sticks in enumerate(heaps):
        if sticks ^ total < sticks:
            return heap, sticks - (sticks ^ total)
    return max(range(len(heaps)), key=lambda h: heaps[h]), 1


def _any(heaps: tuple[int, ...], chance: random.Random) -> tuple[int, int]:
    heap = chance.choice([h for h, sticks in enumerate(heaps) if sticks])
    return heap, chance.randint(1, heaps[heap])


def solve(env: Nim) -> str:
    """The winning take."""
    heap, count = best(env.heaps)
    return f"{heap + 1} {count}"


def start(seed: int, heaps: int, most: int) -> Mapping[str, Any]:
    """Heaps whose nim-sum is not 0, and the opponent's seed."""
    found = [1 + seed // (most**place) % most for place in range(heaps)]
    if reduce(xor, found) == 0:
        found[0] = found[0] % most + 1
    return {"heaps": found, "opponent": seed % 2**31}


def tasks(*, heaps: int = 3, most: int = 7, mistakes: float = 0.3) -> GeneratedTasks:
    """Starts that can be won."""
    _check(heaps, most, mistakes)

    def draw(seed: int) -> Mapping[str, Any]:
        return start(seed, heaps, most)

    return GeneratedTasks(draw)


def _check(heaps: int, most: int, mistakes: float) -> None:
    if not (2 <= heaps <= 6 and 2 <= most <= 30 and 0 <= mistakes <= 1):
        raise ValueError(f"heaps {heaps} must be 2 to 6, most {most} 2 to 30, mistakes {mistakes} 0 to 1")


SPEC = EnvSpec(
    id="game/Nim-v1",
    make=Nim,
    tasks=tasks,
    instructions="Take sticks from one heap; who takes the last stick wins. Answer with the heap and how many: 2 3.",
    max_turns=40,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.18, "solver": 1.0},
)
