"""What the board games of two players share: who moves, what an illegal move is answered with, who earned what."""

from typing import Any, ClassVar

from envhub.envs import Env
from envhub.envs.core import Info, StateLevel

LONGEST_REPLY = 4096


class Duel(Env):
    """A game of two seats with open state. A win earns 1, a draw 0, a loss -1; an illegal move leaves the turn where it is.

    Subclasses keep `board` (text), and say how a reply becomes a move, what a move does, and who has won.
    """

    state_level: ClassVar[StateLevel] = StateLevel.STATE
    board: str
    mover: int
    over: bool

    def start(self) -> str:
        """The empty board."""
        raise NotImplementedError

    def moves(self) -> tuple[str, ...]:
        """Legal moves of the mover, as replies."""
        raise NotImplementedError

    def read(self, reply: str) -> str | None:
        """The move that a reply names; None if it names none."""
        raise NotImplementedError

    def put(self, move: str) -> str:
        """The board after a legal move of the mover."""
        raise NotImplementedError

    def winner(self) -> int | None:
        """The seat that has won."""
        raise NotImplementedError

    def show(self) -> str:
        """The board for people and policies."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin; the first seat moves. There is nothing to draw: the task is empty."""
        super().reset(seed=seed)
        self.board, self.mover, self.over = self.start(), 0, False
        return self._told(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """The mover's move; an illegal one changes nothing, and the same seat is asked again."""
        move = self.read(action[-LONGEST_REPLY:])
        if self.over or move is None or move not in self.moves():
            info = self._info() | {"illegal": True, "rewards": (0.0, 0.0)}
            return f"{self._told()}\nLegal: {', '.join(self.moves())}.", 0.0, self.over, False, info
        self.board, mover = self.put(move), self.mover
        won = self.winner()
        self.mover = 1 - mover
        self.over = won is not None or not self.moves()
        rewards = (0.0, 0.0) if won is None else ((1.0, -1.0) if won == 0 else (-1.0, 1.0))
        shown = self._told() if not self.over else f"{self.show()}\n{'Draw.' if won is None else f'Player {won + 1} wins.'}"
        return shown, rewards[mover], self.over, False, self._info() | {"rewards": rewards}

    def legal_actions(self) -> tuple[str, ...]:
        """Legal moves of the mover."""
        return () if self.over else self.moves()

    def _told(self) -> str:
        return f"{self.show()}\nYou are player {self.mover + 1}."

    def _info(self) -> Info:
        return {"player": self.mover, "anchor": f"{self.mover}{self.board}"}
