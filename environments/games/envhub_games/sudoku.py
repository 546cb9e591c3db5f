"""Sudoku: fill a grid so that every row, column and box holds each digit once. Every puzzle has one solution."""

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_MOVE = re.compile(r"\br([1-9])c([1-9])\s{0,3}=\s{0,3}([0-9])\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096
MOST_BLANKS = {4: 9, 9: 50}


class Sudoku(Env):
    """A grid is one text, row by row, with a dot for an empty cell.

    A digit that repeats one of its row, column or box is refused; a digit that is merely wrong can be taken back by a 0.
    """

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, size: int = 9, blanks: int = 30) -> None:
        """Draw puzzles of 4 by 4 or 9 by 9 with this many empty cells."""
        _check(size, blanks)
        self.size, self._blanks = size, blanks

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Lay the task's puzzle, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        self.given = str(task["puzzle"]) if task else puzzle(int(self.np_random.integers(2**31)), self.size, self._blanks)
        self.grid = self.given
        return self._show(), {"anchor": self.grid}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Write the last digit that the reply names, as in r1c2=5."""
        moves = _MOVE.findall(action[-_LONGEST_REPLY:])
        grid = self._after(*map(int, moves[-1])) if moves else None
        if grid is None:
            told = f"{self._show()}\nName a cell of yours and a digit that fits, such as r1c2=3; r1c2=0 takes it back."
            return told, 0.0, self._full(), False, {"illegal": True, "anchor": self.grid, "success": self._full()}
        self.grid = grid
        return self._show(), float(self._full()), self._full(), False, {"anchor": self.grid, "success": self._full()}

    def legal_actions(self) -> tuple[str, ...]:
        """Every digit that fits an empty cell; where none fits any more, what can be taken back."""
        empty = [place for place, sign in enumerate(self.grid) if sign == "."]
        fitting = tuple(name(p, digit, self.size) for p in empty for digit in candidates(self.grid, p, self.size))
        taken = [p for p in range(len(self.grid)) if self.grid[p] != self.given[p]]
        return fitting or (tuple(name(p, "0", self.size) for p in taken) if empty else ())

    def _after(self, row: int, column: int, digit: int) -> str | None:
        place = (row - 1) * self.size + column - 1
        if max(row, column, digit) > self.size or self.given[place] != "." or self._full():
            return None
        cleared = put(self.grid, place, ".")
        if digit == 0:
            return cleared if cleared != self.grid else None
        return put(cleared, place, str(digit)) if str(digit) in candidates(cleared, place, self.size) else None

    def _full(self) -> bool:
        return "." not in self.grid

    def _show(self) -> str:
        rows = [self.grid[i : i + self.size] for i in range(0, len(self.grid), self.size)]
        head = "   " + " ".join(f"c{c}" for c in range(1, self.size + 1))
        return "\n".join([head, *(f"r{r}  {'  '.join(row)}" for r, row in enumerate(rows, 1))])


def name(place: int, digit: str, size: int) -> str:
    """A move as text."""
    return f"r{place // size + 1}c{place % size + 1}={digit}"


def put(grid: str, place: int, sign: str) -> str:
    """The grid with a sign in a cell."""
    return grid[:place] + sign + grid[place + 1 :]


@lru_cache(256)
def peers(place: int, size: int) -> tuple[int, ...]:
    """The cells that share a row, a column or a box with one."""
    box, (row, column) = round(size**0.5), divmod(place, size)
    cells = [divmod(p, size) for p in range(size * size) if p != place]
    return tuple(
        r * size + c for r, c in cells if r == row or c == column or (r // box, c // box) == (row // box, column // box)
    )


def candidates(grid: str, place: int, size: int) -> str:
    """The digits that fit an empty cell."""
    taken = {grid[p] for p in peers(place, size)}
    return "".join(digit for digit in "123456789"[:size] if digit not in taken)


@lru_cache(1024)
def solution(grid: str, size: int) -> str | None:
    """A filled grid, or None: backtracking in the cell with the fewest digits."""
    fitting = {place: candidates(grid, place, size) for place, sign in enumerate(grid) if sign == "."}
    if not fitting:
        return grid
    place = min(fitting, key=lambda p: len(fitting[p]))
    found = (solution(put(grid, place, digit), size) for digit in fitting[place])
    return next((full for full in found if full is not None), None)


def solve(env: Sudoku) -> str:
    """The next digit of the solution; one that is wrong is taken back first."""
    full = solution(env.given, env.size)
    assert full is not None, "every puzzle has a solution"
    place = next((p for p, sign in enumerate(env.grid) if sign not in (".", full[p])), None)
    if place is not None:
        return name(place, "0", env.size)
    place = env.grid.index(".")
    return name(place, full[place], env.size)


def puzzle(seed: int, size: int, blanks: int) -> str:
    """A puzzle with one solution: a full grid out of which cells are taken while no other digit could stand there."""
    chance = random.Random(seed)
    while True:
        grid, left = _full_grid(size, chance), blanks
        for place in chance.sample(range(size * size), size * size):
            emptied = put(grid, place, ".")
            others = candidates(emptied, place, size).replace(grid[place], "")
            if left and not any(solution(put(grid, place, digit), size) for digit in others):
                grid, left = emptied, left - 1
        if not left:
            return grid


def _full_grid(size: int, chance: random.Random) -> str:
    """A filled grid: the plain one with rows and columns shuffled inside and among their bands, and digits renamed."""
    box = round(size**0.5)

    def shuffled(count: int) -> list[int]:
        return chance.sample(range(count), count)

    rows = [band * box + row for band in shuffled(box) for row in shuffled(box)]
    columns = [band * box + column for band in shuffled(box) for column in shuffled(box)]
    digits = [str(digit + 1) for digit in shuffled(size)]
    return "".join(digits[(box * (r % box) + r // box + c) % size] for r in rows for c in columns)


def tasks(*, size: int = 9, blanks: int = 30) -> GeneratedTasks:
    """Puzzles; one belongs to one split only."""
    _check(size, blanks)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"puzzle": puzzle(seed, size, blanks)}

    return GeneratedTasks(draw)


def _check(size: int, blanks: int) -> None:
    if size not in MOST_BLANKS or not 1 <= blanks <= MOST_BLANKS[size]:
        raise ValueError(f"size {size} must be 4 or 9, with blanks {blanks} 1 to 9 or 1 to 50")


SPEC = EnvSpec(
    id="game/Sudoku-v1",
    make=Sudoku,
    tasks=tasks,
    instructions=(
        "Fill the empty cells so that every row, column and box holds each digit once. "
        "Answer with a row, a column and a digit: r1c2=5. A 0 takes a digit of yours back."
    ),
    max_turns=80,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.09, "solver": 1.0},
)
