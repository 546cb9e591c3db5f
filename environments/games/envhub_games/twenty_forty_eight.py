"""2048 on a board of 4 by 4, up to a tile that is the goal."""

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

MOVES = ("left", "down", "right", "up")
_WORD = re.compile(rf"\b({'|'.join(MOVES)})\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096
Row = tuple[int, ...]
Board = tuple[Row, ...]
SNAKE = ((15, 14, 13, 12), (8, 9, 10, 11), (7, 6, 5, 4), (0, 1, 2, 3))


class TwentyFortyEight(Env):
    """Equal tiles that meet become their sum; after each move a 2 appears, or a 4 in one of ten cases."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, goal: int = 256) -> None:
        """Reaching a tile of `goal` wins."""
        _check(goal)
        self.goal = goal

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin; the tiles that appear follow from the task's seed, or from one drawn here."""
        super().reset(seed=seed)
        task = self.task_of(options) or {"seed": int(self.np_random.integers(2**31))}
        self._chance = random.Random(int(task["seed"]))
        self.board: Board = ((0,) * 4,) * 4
        self._appear()
        self._appear()
        return self._show(), {"anchor": self._anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Push by the last move that the reply names."""
        words = _WORD.findall(action[-_LONGEST_REPLY:])
        moved = push(self.board, words[-1].lower()) if words else self.board
        if moved == self.board or self._over():
            told = f"{self._show()}\nLegal: {', '.join(self.legal_actions())}."
            return told, 0.0, self._over(), False, {"illegal": True, "anchor": self._anchor()}
        self.board = moved
        won = self._won()
        if not won:
            self._appear()
        return self._show(), float(won), self._over(), False, {"anchor": self._anchor(), "success": won}

    def legal_actions(self) -> tuple[str, ...]:
        """Moves that change the board."""
        return () if self._won() else tuple(move for move in MOVES if push(self.board, move) != self.board)

    def _won(self) -> bool:
        return max(map(max, self.board)) >= self.goal

    def _over(self) -> bool:
        return self._won() or not self.legal_actions()

    def _appear(self) -> None:
        row, column = self._chance.choice([(r, c) for r in range(4) for c in range(4) if not self.board[r][c]])
        self.board = put(self.board, row, column, 4 if self._chance.random() < 0.1 else 2)

    def _show(self) -> str:
        return "\n".join([*(" ".join(f"{tile or '.':>4}" for tile in row) for row in self.board), f"goal {self.goal}"])

    def _anchor(self) -> str:
        return "/".join(",".join(map(str, row)) for row in self.board)


def put(board: Board, row: int, column: int, tile: int) -> Board:
    """The board with a tile on a cell."""
    line = (*board[row][:column], tile, *board[row][column + 1 :])
    return (*board[:row], line, *board[row + 1 :])


@lru_cache(1 << 16)
def slide(row: Row) -> Row:
    """A row pushed to the left; a tile joins once a move."""
    tiles, joined = [tile for tile in row if tile], []
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tile += tiles.pop(0)
        joined.append(tile)
    return (*joined, *[0] * (len(row) - len(joined)))


def push(board: Board, move: str) -> Board:
    """The board after a push, before a tile appears."""
    match move:
        case "left":
            return tuple(map(slide, board))
        case "right":
            return tuple(slide(row[::-1])[::-1] for row in board)
        case "up":
            return tuple(zip(*map(slide, zip(*board, strict=True)), strict=True))
    return tuple(zip(*(slide(column[::-1])[::-1] for column in zip(*board, strict=True)), strict=True))


@lru_cache(1 << 16)
def worth(board: Board) -> float:
    """How good a board is: large tiles along a snake, and free cells."""
    snake = sum(tile * 4.0 ** (SNAKE[r][c] - 15) for r, row in enumerate(board) for c, tile in enumerate(row))
    return snake + 2.0 * sum(not tile for row in board for tile in row)


def expected(board: Board) -> float:
    """The best worth that a move can give, over the places where a 2 may appear."""
    free = [(r, c) for r in range(4) for c in range(4) if not board[r][c]]
    total = 0.0
    for row, column in free:
        after = put(board, row, column, 2)
        total += max((worth(pushed) for move in MOVES if (pushed := push(after, move)) != after), default=-100.0)
    return total / len(free)


def solve(env: TwentyFortyEight) -> str:
    """The move of the best expected worth, looking at one tile and one move ahead."""
    return max(env.legal_actions(), key=lambda move: expected(push(env.board, move)))


def tasks(*, goal: int = 256) -> GeneratedTasks:
    """Seeds of the tiles that appear."""
    _check(goal)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"seed": seed % 2**31}

    return GeneratedTasks(draw)


def _check(goal: int) -> None:
    if goal not in (16, 32, 64, 128, 256, 512):
        raise ValueError(f"goal {goal} must be a power of two from 16 to 512, or the way is longer than an episode")


SPEC = EnvSpec(
    id="game/2048-v1",
    make=TwentyFortyEight,
    tasks=tasks,
    instructions=(
        "Push all tiles; equal ones that meet become their sum. Make a tile as large as the goal. "
        "Answer with one word: left, down, right or up."
    ),
    max_turns=400,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.08, "solver": 0.99},
)
