"""Connect Four for two policies, on boards of any size up to 8 by 8."""

import re
from functools import lru_cache

from envhub.envs import EnvSpec
from envhub_games.duel import Duel

_DIGIT = re.compile(r"(?<![\w.-])[1-9](?!\w)", re.ASCII)
WON = 1000


class ConnectFour(Duel):
    """A move is a column's number; the disc falls to its lowest free place. Four in a line win.

    The board is one text: the columns from left to right, "/" between them, each from the bottom up.
    """

    def __init__(self, *, columns: int = 7, rows: int = 6) -> None:
        """Play on a board of 4 to 8 columns and rows."""
        if not (4 <= columns <= 8 and 4 <= rows <= 8):
            raise ValueError(f"columns={columns}, rows={rows} must be 4 to 8")
        self.columns, self.rows = columns, rows

    def start(self) -> str:
        return "/" * (self.columns - 1)

    def moves(self) -> tuple[str, ...]:
        return legal(self.board, self.rows)

    def read(self, reply: str) -> str | None:
        found = _DIGIT.findall(reply)
        return found[-1] if found else None

    def put(self, move: str) -> str:
        return drop(self.board, int(move) - 1, "XO"[self.mover])

    def winner(self) -> int | None:
        return next((seat for seat in (0, 1) if four(self.board, "XO"[seat])), None)

    def show(self) -> str:
        columns = [column.ljust(self.rows, ".") for column in self.board.split("/")]
        lines = [" ".join(column[row] for column in columns) for row in reversed(range(self.rows))]
        return "\n".join([*lines, " ".join(str(c + 1) for c in range(self.columns))])


def legal(board: str, rows: int) -> tuple[str, ...]:
    """Columns with room, from 1."""
    return tuple(str(place + 1) for place, column in enumerate(board.split("/")) if len(column) < rows)


def drop(board: str, column: int, sign: str) -> str:
    """The board with a disc in a column."""
    columns = board.split("/")
    columns[column] += sign
    return "/".join(columns)


def four(board: str, sign: str) -> bool:
    """Whether a sign has four in a line."""
    places = {(c, r) for c, column in enumerate(board.split("/")) for r, disc in enumerate(column) if disc == sign}
    return any(
        all((c + i * dc, r + i * dr) in places for i in range(4))
        for c, r in places
        for dc, dr in ((1, 0), (0, 1), (1, 1), (1, -1))
    )


@lru_cache(1 << 18)
def value(board: str, rows: int, turn: int, depth: int) -> int:
    """The board's worth for the seat `turn` that moves, looking `depth` moves ahead.

    Positive wins, negative loses, 0 is drawn or unknown; sooner counts more. Exact when `depth` reaches the game's end.
    """
    if four(board, "OX"[turn]):
        return -WON
    moves = legal(board, rows)
    if not moves or depth == 0:
        return 0
    best = max(-value(drop(board, int(m) - 1, "XO"[turn]), rows, 1 - turn, depth - 1) for m in moves)
    return best - (best > 0) + (best < 0)


def solve(env: ConnectFour, depth: int = 4) -> str:
    """The best move found by looking ahead, the middle first."""
    moves = sorted(env.moves(), key=lambda m: abs(int(m) - 1 - (env.columns - 1) / 2))
    turn = env.mover
    return max(moves, key=lambda m: -value(drop(env.board, int(m) - 1, "XO"[turn]), env.rows, 1 - turn, depth - 1))


SPEC = EnvSpec(
    id="duel/ConnectFour-v1",
    make=ConnectFour,
    instructions="Four of your discs in a line win. Player 1 is X, player 2 is O. Answer with a column's number.",
    max_turns=126,
    success_reward=1.0,
    reward_range=(-1.0, 1.0),
    inline=False,
    players=2,
    solver=solve,
    baselines={"solver": 0.5},
)
