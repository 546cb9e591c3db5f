"""FrozenLake: Gymnasium's own environment behind a text face. Cross the ice to G; H ends the episode."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel, Task
from envhub.envs.core import Info

MOVES = {"left": 0, "down": 1, "right": 2, "up": 3}
_WORD = re.compile(r"\b(left|down|right|up)\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096  # characters of a reply that are read, from its end


class FrozenLake(Env):
    """Walk from S to G over F; moves off the board leave the player where it is."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(
        self,
        *,
        size: int = 4,
        slippery: bool = False,
        p: float = 0.8,
        style: Literal["grid", "cells"] = "grid",
        legal: Literal["any", "board", "safe"] = "any",
    ) -> None:
        """Choose the board.

        Args:
            size: of the square board.
            slippery: moves go astray in two of three cases, as in Gymnasium.
            p: chance of a cell to be frozen, in maps drawn at random.
            style: "grid" for people; "cells" names every cell and neighbour with one word, for small models.
            legal: what a random player may do: "any" move, no bump into the "board"'s edge, or only "safe" moves.
        """
        _check(size, p, slippery)
        if style not in ("grid", "cells") or legal not in ("any", "board", "safe"):
            raise ValueError(f"style={style!r} legal={legal!r}")
        self._size, self._slippery, self._p, self._style, self._legal = size, slippery, p, style, legal
        self._board: list[str] = []
        self._game: FrozenLakeEnv | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start on the task's map, or on one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        drawn = int(self.np_random.integers(2**31))
        board = list(task["map"]) if task else generate_random_map(self._size, self._p, drawn)
        if board != self._board or self._game is None:
            self._board, self._game = board, FrozenLakeEnv(desc=board, is_slippery=self._slippery)
            self._width = len(board[0])
            self._cells = "".join(board)
        place, _ = self._game.reset(seed=seed)
        self._place = int(place)
        self._done = False
        return self._show(), {"anchor": str(self._place)}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Make the last move that the reply names; a reply without one changes nothing."""
        assert self._game is not None, "reset comes first"
        words = _WORD.findall(action[-_LONGEST_REPLY:])
        if not words or self._done:
            return self._refused(), 0.0, self._done, False, {"illegal": True, "anchor": str(self._place)}
        place, reward, done, _, _ = self._game.step(MOVES[words[-1].lower()])  # type: ignore[no-untyped-call]
        self._place, self._done = int(place), bool(done)
        info: Info = {"anchor": str(self._place)}
        if done:
            info["success"] = reward > 0
        return self._show(), float(reward), self._done, False, info

    def legal_actions(self) -> tuple[str, ...]:
        """Moves by the `legal` option."""
        names = tuple(MOVES)
        if self._legal == "any":
            return names
        near = [self._neighbour(move) for move in names]
        board = [name for name, cell in zip(names, near, strict=True) if cell != "W"]
        safe = [name for name, cell in zip(names, near, strict=True) if cell not in "WH"]
        return tuple(safe or board) if self._legal == "safe" else tuple(board)

    def _neighbour(self, move: str) -> str:
        row, column = divmod(self._place, self._width)
        row += (move == "down") - (move == "up")
        column += (move == "right") - (move == "left")
        inside = 0 <= row < len(self._board) and 0 <= column < self._width
        return self._cells[row * self._width + column] if inside else "W"

    def _show(self) -> str:
        if self._style == "grid":
            marked = self._cells[: self._place] + "@" + self._cells[self._place + 1 :]
            return "\n".join(marked[i : i + self._width] for i in range(0, len(marked), self._width))
        cells = [f"{i}:{'@' if i == self._place else cell}" for i, cell in enumerate(self._cells)]
        return " ".join([*cells, *(f"{move}:{self._neighbour(move)}" for move in MOVES), "?"])

    def _refused(self) -> str:
        shown = self._show()
        return shown if self._style == "cells" else f"{shown}\nSay one of: left, down, right, up."


@lru_cache(4096)
def policy(board: tuple[str, ...], slippery: bool) -> tuple[str, ...]:
    """The best move in every cell, by value iteration over Gymnasium's own chances; sooner is a little better."""
    game = FrozenLakeEnv(desc=list(board), is_slippery=slippery)
    values = np.zeros(len(game.P))
    best: list[str] = []
    for _ in range(400):
        scores = [[_worth(game.P[place][move], values) for move in MOVES.values()] for place in game.P]
        new = np.array([max(row) for row in scores])
        best = [list(MOVES)[int(np.argmax(row))] for row in scores]
        if np.abs(new - values).max() < 1e-9:
            break
        values = new
    return tuple(best)


def _worth(outcomes: Any, values: Any) -> float:
    return float(sum(p * (reward + 0.999 * values[after] * (not done)) for p, after, reward, done in outcomes))


def solve(env: FrozenLake) -> str:
    """The best move from here."""
    return policy(tuple(env._board), env._slippery)[env._place]


def tasks(*, size: int = 4, p: float = 0.8, slippery: bool = False, **_: object) -> GeneratedTasks:
    """Random solvable maps; a map belongs to one split only."""
    _check(size, p, slippery)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"map": generate_random_map(size, p, seed % 2**32)}

    return GeneratedTasks(draw)


def _check(size: int, p: float, slippery: bool) -> None:
    if not isinstance(slippery, bool):
        raise ValueError(f"slippery={slippery!r} must be true or false")
    if not 2 <= size <= 32 or not 0.6 <= p <= 1:
        raise ValueError(f"size {size} must be 2 to 32 and p {p} 0.6 to 1, or solvable maps are too rare")


SPEC = EnvSpec(
    id="game/FrozenLake-v1",
    make=FrozenLake,
    tasks=tasks,
    instructions=(
        "You walk on a frozen lake. @ is you, F is ice, H is a hole that ends the game, G is the goal. "
        "Answer with one word: left, down, right or up."
    ),
    max_turns=100,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.1, "solver": 1.0},
)
__all__ = ["SPEC", "FrozenLake", "Task", "tasks"]
