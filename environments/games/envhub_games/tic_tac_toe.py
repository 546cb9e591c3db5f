"""TicTacToe against a scripted opponent that plays perfectly but for a share of random moves."""

import random
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_DIGIT = re.compile(r"(?<![\w.-])[1-9](?!\w)")
_LONGEST_REPLY = 4096


class TicTacToe(Env):
    """You are X. A win gives 1, a draw 0.5, a loss 0. `first` of the task says who begins."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, mistakes: float = 0.3) -> None:
        """Play an opponent that moves at random in this share of its turns."""
        _check(mistakes)
        self._mistakes = mistakes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Clear the board; the opponent's chance follows from the task, or from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options) or {"opponent": int(self.np_random.integers(2**31)), "first": "X"}
        self._chance = random.Random(int(task["opponent"]))
        self._board = "." * 9
        if task["first"] == "O":
            self._answer()
        return self._show(), {"anchor": self._board}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Put X on the square of the reply's last digit; the opponent answers at once."""
        digits = _DIGIT.findall(action[-_LONGEST_REPLY:])
        if ended(self._board) or not digits or self._board[int(digits[-1]) - 1] != ".":
            info: Info = {"illegal": True, "anchor": self._board}
            return f"{self._show()}\nChoose a free square: its number.", 0.0, ended(self._board), False, info
        self._board = put(self._board, int(digits[-1]) - 1, "X")
        if not ended(self._board):
            self._answer()
        info = {"anchor": self._board}
        if not ended(self._board):
            return self._show(), 0.0, False, False, info
        won = winner(self._board)
        reward = {"X": 1.0, "O": 0.0, None: 0.5}[won]
        return (
            f"{self._show()}\n{'draw' if won is None else won + ' wins'}",
            reward,
            True,
            False,
            info | {"success": won == "X"},
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Numbers of the free squares."""
        return tuple(str(place + 1) for place in free(self._board)) if not ended(self._board) else ()

    def _answer(self) -> None:
        if self._chance.random() < self._mistakes:
            place = self._chance.choice(free(self._board))
        else:
            scores = {place: value(put(self._board, place, "O"), "X") for place in free(self._board)}
            best = min(scores.values())
            place = self._chance.choice([p for p, score in scores.items() if score == best])
        self._board = put(self._board, place, "O")

    def _show(self) -> str:
        signs = [sign if sign != "." else str(place + 1) for place, sign in enumerate(self._board)]
        return "\n".join(" ".join(signs[row : row + 3]) for row in (0, 3, 6))


def put(board: str, place: int, sign: str) -> str:
    """The board with a sign on a square."""
    return board[:place] + sign + board[place + 1 :]


def free(board: str) -> list[int]:
    """Free squares."""
    return [place for place, sign in enumerate(board) if sign == "."]


def winner(board: str) -> str | None:
    """Who has three in a line."""
    return next((board[a] for a, b, c in LINES if board[a] != "." and board[a] == board[b] == board[c]), None)


def ended(board: str) -> bool:
    """Whether the game is over."""
    return winner(board) is not None or "." not in board


@cache
def value(board: str, turn: str) -> int:
    """The game's value for X under perfect play: 1 win, 0 draw, -1 loss."""
    if ended(board):
        return {"X": 1, "O": -1, None: 0}[winner(board)]
    values = [value(put(board, place, turn), "O" if turn == "X" else "X") for place in free(board)]
    return max(values) if turn == "X" else min(values)


def solve(env: TicTacToe) -> str:
    """The move of the highest expected reward against this opponent."""
    return str(max(free(env._board), key=lambda place: expected(put(env._board, place, "X"), env._mistakes)) + 1)


@cache
def expected(board: str, mistakes: float) -> float:
    """The reward that X may expect from a board on which the opponent moves, when X plays best."""
    if ended(board):
        return {"X": 1.0, "O": 0.0, None: 0.5}[winner(board)]
    answers = [put(board, place, "O") for place in free(board)]
    worths = [_best(answer, mistakes) for answer in answers]
    lowest = min(value(answer, "X") for answer in answers)
    perfect = [worth for answer, worth in zip(answers, worths, strict=True) if value(answer, "X") == lowest]
    return mistakes * sum(worths) / len(worths) + (1 - mistakes) * sum(perfect) / len(perfect)


def _best(board: str, mistakes: float) -> float:
    if ended(board):
        return expected(board, mistakes)
    return max(expected(put(board, place, "X"), mistakes) for place in free(board))


def tasks(*, mistakes: float = 0.3) -> GeneratedTasks:
    """Opponents by seed, and who begins."""
    _check(mistakes)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"opponent": seed % 2**31, "first": "XO"[seed // 2**31 % 2]}

    return GeneratedTasks(draw)


def _check(mistakes: float) -> None:
    if not 0 <= mistakes <= 1:
        raise ValueError(f"mistakes {mistakes} must be 0 to 1")


SPEC = EnvSpec(
    id="game/TicTacToe-v1",
    make=TicTacToe,
    tasks=tasks,
    instructions="You are X on a board of nine squares; three in a line win. Answer with the number of a free square.",
    max_turns=9,
    success_reward=1.0,
    solver=solve,
    baselines={"random": 0.13, "solver": 0.49},
    inline=True,
)
