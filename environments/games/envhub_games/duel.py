"""What the board games of two players share: who moves, what an illegal move is answered with, who earned what."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from envhub.envs import Env
from envhub.envs.core import Info, StateLevel

LONGEST_REPLY = 4096
STRIKES = 3


class Duel(Env, ABC):
    """A game of two seats with open state. A win earns 1, a draw 0, a loss -1.

    An illegal reply leaves the turn where it is; `STRIKES` of them to one turn lose the game, or a lost seat would stall.

    Subclasses keep `board` (text), and say how a reply becomes a move, what a move does, and who has won.
    """

    state_level: ClassVar[StateLevel] = StateLevel.STATE
    board: str
    mover: int
    over: bool
    strikes: int

    @abstractmethod
    def start(self) -> str:
        """The empty board."""

    @abstractmethod
    def moves(self) -> tuple[str, ...]:
        """Legal moves of the mover, as replies."""

    @abstractmethod
    def read(self, reply: str) -> str | None:
        """The move that a reply names; None if it names none."""

    @abstractmethod
    def put(self, move: str) -> str:
        """The board after a legal move of the mover."""

    @abstractmethod
    def winner(self) -> int | None:
        """The seat that has won."""

    @abstractmethod
    def show(self) -> str:
        """The board for people and policies."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin; the first seat moves. There is nothing to draw: the task is empty."""
        super().reset(seed=seed)
        self.board, self.mover, self.over, self.strikes = self.start(), 0, False, 0
        return self._told(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """The mover's move. After an illegal one the same seat is asked again, `STRIKES` times at most."""
        move = self.read(action[-LONGEST_REPLY:])
        if self.over or move is None or move not in self.moves():
            return self._illegal()
        self.board, mover, self.strikes = self.put(move), self.mover, 0
        won = self.winner()
        self.mover = 1 - mover
        self.over = won is not None or not self.moves()
        rewards = (0.0, 0.0) if won is None else ((1.0, -1.0) if won == 0 else (-1.0, 1.0))
        shown = self._told() if not self.over else f"{self.show()}\n{'Draw.' if won is None else f'Player {won + 1} wins.'}"
        return shown, rewards[mover], self.over, False, self._info() | {"rewards": rewards}

    def legal_actions(self) -> tuple[str, ...]:
        """Legal moves of the mover."""
        return () if self.over else self.moves()

    def _illegal(self) -> tuple[str, float, bool, bool, Info]:
        lost, rewards = not self.over and self.strikes + 1 >= STRIKES, (0.0, 0.0)
        told = f"{self._told()}\nLegal: {', '.join(self.moves())}."
        if lost:
            rewards = (-1.0, 1.0) if self.mover == 0 else (1.0, -1.0)
            told = f"{self.show()}\nPlayer {self.mover + 1} loses by {STRIKES} illegal replies."
        self.strikes, self.over = self.strikes + 1, self.over or lost
        return told, rewards[self.mover], self.over, False, self._info() | {"illegal": True, "rewards": rewards}

    def _told(self) -> str:
        return f"{self.show()}\nYou are player {self.mover + 1}."

    def _info(self) -> Info:
        return {"player": self.mover, "anchor": f"{self.mover}{self.board}"}
