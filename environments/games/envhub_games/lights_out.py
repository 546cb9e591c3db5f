"""Lights Out: a press turns a lamp and its four neighbours; put all lamps out."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_CELL = re.compile(r"\b([a-g])\s*([1-7])\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096


class LightsOut(Env):
    """A square board; columns are letters, rows numbers, and a lamp that is lit is #."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, size: int = 4, presses: int = 4) -> None:
        """Boards are made from the dark one by up to `presses` presses, so each has a solution."""
        _check(size, presses)
        self.size, self._presses = size, presses

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Light the task's lamps, or some drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options) or {"lit": board_of(int(self.np_random.integers(2**31)), self.size, self._presses)}
        self.lit = frozenset(map(int, task["lit"]))
        return self._show(), {"anchor": self._anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Press the last lamp that the reply names."""
        cells = [(ord(c.lower()) - 97, int(r) - 1) for c, r in _CELL.findall(action[-_LONGEST_REPLY:])]
        inside = [row * self.size + column for column, row in cells if column < self.size and row < self.size]
        if not inside or not self.lit:
            told = f"{self._show()}\nName a lamp, such as b2."
            return told, 0.0, not self.lit, False, {"illegal": True, "anchor": self._anchor()}
        self.lit ^= turned(inside[-1], self.size)
        out = not self.lit
        return self._show(), float(out), out, False, {"anchor": self._anchor(), "success": out}

    def legal_actions(self) -> tuple[str, ...]:
        """Every lamp."""
        return tuple(name(place, self.size) for place in range(self.size**2)) if self.lit else ()

    def _show(self) -> str:
        rows = ["".join("#" if r * self.size + c in self.lit else "." for c in range(self.size)) for r in range(self.size)]
        return "\n".join([f"  {'abcdefg'[: self.size]}", *(f"{r + 1} {row}" for r, row in enumerate(rows))])

    def _anchor(self) -> str:
        return ",".join(map(str, sorted(self.lit)))


def name(place: int, size: int) -> str:
    """A lamp's name."""
    return f"{chr(97 + place % size)}{place // size + 1}"


@lru_cache(512)
def turned(place: int, size: int) -> frozenset[int]:
    """The lamps that a press turns."""
    row, column = divmod(place, size)
    near = ((row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
    return frozenset(r * size + c for r, c in near if 0 <= r < size and 0 <= c < size)


def presses(lit: frozenset[int], size: int) -> list[int]:
    """Lamps whose presses put everything out, fewest first among the kernel's choices: Gauss over GF(2)."""
    count = size * size
    rows = [sum(1 << p for p in range(count) if lamp in turned(p, size)) | ((lamp in lit) << count) for lamp in range(count)]
    pivots: list[int] = []
    for column in range(count):
        place = next((i for i in range(len(pivots), count) if rows[i] >> column & 1), None)
        if place is None:
            continue
        rows[len(pivots)], rows[place] = rows[place], rows[len(pivots)]
        for i in range(count):
            if i != len(pivots) and rows[i] >> column & 1:
                rows[i] ^= rows[len(pivots)]
        pivots.append(column)
    free = [c for c in range(count) if c not in pivots]
    best: list[int] | None = None
    for choice in range(1 << len(free)):
        chosen = {free[i] for i in range(len(free)) if choice >> i & 1}
        found = sorted(chosen | {p for i, p in enumerate(pivots) if _value(rows[i], chosen, count)})
        best = found if best is None or len(found) < len(best) else best
    return best or []


def _value(row: int, chosen: set[int], count: int) -> bool:
    return bool((row >> count & 1) ^ (sum(row >> c & 1 for c in chosen) & 1))


def solve(env: LightsOut) -> str:
    """The next press of a shortest solution."""
    return name(presses(env.lit, env.size)[0], env.size)


def board_of(seed: int, size: int, count: int) -> Sequence[int]:
    """Lamps that are lit after some presses of the dark board, and never none."""
    lit: frozenset[int] = frozenset()
    for turn in range(1 + seed % count):
        lit ^= turned((seed // 7 ** (turn + 1) + turn) % (size * size), size)
    return sorted(lit or turned(seed % (size * size), size))


def tasks(*, size: int = 4, presses: int = 4) -> GeneratedTasks:
    """Boards that can be put out; a board belongs to one split only."""
    _check(size, presses)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"lit": list(board_of(seed, size, presses))}

    return GeneratedTasks(draw)


def _check(size: int, count: int) -> None:
    if not (3 <= size <= 7 and 1 <= count <= 20):
        raise ValueError(f"size {size} must be 3 to 7, presses {count} 1 to 20")


SPEC = EnvSpec(
    id="game/LightsOut-v1",
    make=LightsOut,
    tasks=tasks,
    instructions="# is a lit lamp. A press turns a lamp and its neighbours. Put all out. Answer with a lamp, such as b2.",
    max_turns=24,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.03, "solver": 1.0},
)
