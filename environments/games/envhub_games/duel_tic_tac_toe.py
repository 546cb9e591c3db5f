"""TicTacToe for two policies."""

import re

from envhub.envs import EnvSpec
from envhub_games import tic_tac_toe as rules
from envhub_games.duel import Duel

_DIGIT = re.compile(r"(?<![\w.-])[1-9](?!\w)", re.ASCII)


class TicTacToeDuel(Duel):
    """The first seat is X, the second O; a move is a free square's number."""

    def start(self) -> str:
        return "." * 9

    def moves(self) -> tuple[str, ...]:
        return tuple(str(place + 1) for place in rules.free(self.board))

    def read(self, reply: str) -> str | None:
        found = _DIGIT.findall(reply)
        return found[-1] if found else None

    def put(self, move: str) -> str:
        return rules.put(self.board, int(move) - 1, "XO"[self.mover])

    def winner(self) -> int | None:
        won = rules.winner(self.board)
        return None if won is None else "XO".index(won)

    def show(self) -> str:
        signs = [sign if sign != "." else str(place + 1) for place, sign in enumerate(self.board)]
        return "\n".join(" ".join(signs[row : row + 3]) for row in (0, 3, 6))


def solve(env: TicTacToeDuel) -> str:
    """A perfect move: the first of the best, by the game's value."""
    turn, other = "XO"[env.mover], "OX"[env.mover]
    sign = 1 if env.mover == 0 else -1
    return max(env.moves(), key=lambda move: sign * rules.value(rules.put(env.board, int(move) - 1, turn), other))


SPEC = EnvSpec(
    id="duel/TicTacToe-v1",
    make=TicTacToeDuel,
    instructions="Nine squares; three of your signs in a line win. Player 1 is X. Answer with a free square's number.",
    max_turns=27,
    success_reward=1.0,
    reward_range=(-1.0, 1.0),
    inline=True,
    players=2,
    solver=solve,
    baselines={"solver": 0.0},
)
