"""Minesweeper: open every cell without a mine. The first cell is always safe."""

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_CELL = re.compile(r"\b([a-j])\s*([1-9]|10)\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096
Cells = frozenset[int]


class Minesweeper(Env):
    """A square board; columns are letters, rows numbers; an opened cell shows how many mines touch it."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, size: int = 5, mines: int = 4) -> None:
        """Hide so many mines."""
        _check(size, mines)
        self.size, self.mines = size, mines

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Lay the task's mines, or some drawn from the seed; one safe corner of the field is opened."""
        super().reset(seed=seed)
        task = self.task_of(options) or field(int(self.np_random.integers(2**31)), self.size, self.mines)
        self.hidden = frozenset(map(int, task["mines"]))
        self.opened = flood(int(task["first"]), frozenset(), self.hidden, self.size)
        self.hit = False
        return self._show(), {"anchor": self._anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Open the last cell that the reply names; a mine ends the game."""
        cells = [(ord(c.lower()) - 97, int(r) - 1) for c, r in _CELL.findall(action[-_LONGEST_REPLY:])]
        named = [r * self.size + c for c, r in cells if c < self.size and r < self.size]
        if not named or named[-1] in self.opened or self._over():
            told = f"{self._show()}\nName a closed cell, such as b2."
            return told, 0.0, self._over(), False, {"illegal": True, "anchor": self._anchor()}
        if named[-1] in self.hidden:
            self.hit = True
            return f"{self._show()}\nA mine.", 0.0, True, False, {"anchor": self._anchor(), "success": False}
        self.opened = flood(named[-1], self.opened, self.hidden, self.size)
        return self._show(), float(self._over()), self._over(), False, {"anchor": self._anchor(), "success": self._over()}

    def legal_actions(self) -> tuple[str, ...]:
        """Every closed cell."""
        return () if self._over() else tuple(name(p, self.size) for p in range(self.size**2) if p not in self.opened)

    def shown(self) -> dict[int, int]:
        """The opened cells and their numbers."""
        return {place: len(near(place, self.size) & self.hidden) for place in self.opened}

    def _over(self) -> bool:
        return self.hit or len(self.opened) + len(self.hidden) == self.size**2

    def _show(self) -> str:
        numbers = self.shown()
        signs = ["*" if self.hit and p in self.hidden else str(numbers.get(p, "?")) for p in range(self.size**2)]
        rows = [f"{r + 1:2} {' '.join(signs[r * self.size : (r + 1) * self.size])}" for r in range(self.size)]
        return "\n".join([f"   {' '.join('abcdefghij'[: self.size])}", *rows, f"{len(self.hidden)} mines"])

    def _anchor(self) -> str:
        return ",".join(map(str, sorted(self.opened)))


def name(place: int, size: int) -> str:
    """A cell's name."""
    return f"{chr(97 + place % size)}{place // size + 1}"


@lru_cache(1024)
def near(place: int, size: int) -> Cells:
    """The cells that touch one."""
    row, column = divmod(place, size)
    around = ((row + r, column + c) for r in (-1, 0, 1) for c in (-1, 0, 1) if r or c)
    return frozenset(r * size + c for r, c in around if 0 <= r < size and 0 <= c < size)


def flood(place: int, opened: Cells, hidden: Cells, size: int) -> Cells:
    """The opened cells after one more; a cell that touches no mine opens those around it."""
    queue, found = [place], set(opened)
    while queue:
        here = queue.pop()
        if here not in found:
            found.add(here)
            queue += near(here, size) - found if not near(here, size) & hidden else ()
    return frozenset(found)


def chances(numbers: Mapping[int, int], size: int, mines: int) -> dict[int, float]:
    """The chance of a mine in every closed cell, by counting the layouts that fit the numbers."""
    closed = [p for p in range(size * size) if p not in numbers]
    border = [p for p in closed if near(p, size) & numbers.keys()]
    inner = len(closed) - len(border)
    weights, total = dict.fromkeys(closed, 0.0), 0.0
    inner_weight = 0.0
    for layout in _layouts(tuple(border), numbers, size, mines):
        rest = mines - len(layout)
        if rest < 0 or rest > inner:
            continue
        ways = float(_choose(inner, rest))
        total += ways
        for place in layout:
            weights[place] += ways
        inner_weight += ways * rest / inner if inner else 0.0
    for place in closed:
        if place not in border:
            weights[place] = inner_weight
    return {place: weight / total for place, weight in weights.items()}


def _layouts(border: tuple[int, ...], numbers: Mapping[int, int], size: int, mines: int) -> list[Cells]:
    found: list[Cells] = []
    tests = [(near(p, size) & set(border), count) for p, count in numbers.items() if near(p, size) & set(border)]

    def place(index: int, chosen: tuple[int, ...]) -> None:
        if len(chosen) > mines:
            return
        known, mined = set(border[:index]), set(chosen)
        for cells, count in tests:
            have = len(cells & mined)
            if have > count or have + len(cells - known) < count:
                return
        if index == len(border):
            found.append(frozenset(chosen))
            return
        place(index + 1, chosen)
        place(index + 1, (*chosen, border[index]))

    place(0, ())
    return found


@lru_cache(4096)
def _choose(n: int, k: int) -> int:
    return 0 if k < 0 or k > n else 1 if k in (0, n) else _choose(n - 1, k - 1) + _choose(n - 1, k)


def solve(env: Minesweeper) -> str:
    """The closed cell that is least likely to hold a mine, exactly counted."""
    odds = chances(env.shown(), env.size, len(env.hidden))
    return name(min(odds, key=lambda place: (odds[place], place)), env.size)


def field(seed: int, size: int, mines: int) -> Mapping[str, Any]:
    """Mines, and a first cell that touches none and leaves something to open."""
    chance = random.Random(seed)
    while True:
        hidden = frozenset(chance.sample(range(size * size), mines))
        safe = [p for p in range(size * size) if p not in hidden and not near(p, size) & hidden]
        first = chance.choice(safe) if safe else None
        if first is not None and len(flood(first, frozenset(), hidden, size)) + mines < size * size:
            return {"mines": sorted(hidden), "first": first}


def tasks(*, size: int = 5, mines: int = 4) -> GeneratedTasks:
    """Fields; one belongs to one split only."""
    _check(size, mines)

    def draw(seed: int) -> Mapping[str, Any]:
        return field(seed, size, mines)

    return GeneratedTasks(draw)


def _check(size: int, mines: int) -> None:
    if not (4 <= size <= 8 and 1 <= mines <= size * size // 5):
        raise ValueError(f"size {size} must be 4 to 8, mines {mines} 1 to {size * size // 5}")


SPEC = EnvSpec(
    id="game/Minesweeper-v1",
    make=Minesweeper,
    tasks=tasks,
    instructions="Open every cell without a mine. A number says how many of the cells around hold one. Answer with a cell: b2.",
    max_turns=40,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.02, "solver": 0.77},
)
