"""Kuhn poker for two policies: three cards, one bet, hidden information, and an equilibrium that is known exactly.

H. W. Kuhn, "A simplified two-person poker" (1950): under equilibrium play the first seat loses 1/18 a game.
"""

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks
from envhub.envs.core import Info, StateLevel
from envhub_games.duel import LONGEST_REPLY, STRIKES

CARDS = "JQK"
ENDS = {"pp": None, "bp": 0, "bb": None, "pbp": 1, "pbb": None}  # who takes the pot without showing; None compares cards
_WORD = re.compile(r"\b(check|bet|call|fold)\b", re.IGNORECASE | re.ASCII)


class KuhnPoker(Env):
    """Both pay 1. A seat that faces no bet may check or bet 1; one that faces a bet may call or fold."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Deal the task's cards, or two drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        first, second = (int(c) for c in (task["cards"] if task else self.np_random.permutation(3)[:2]))
        if not {first, second} <= {0, 1, 2} or first == second:
            raise ValueError(f"cards {first}, {second}")
        self.cards, self.history, self.over, self.strikes = (first, second), "", False, 0
        self.luck = int(task["luck"] if task else self.np_random.integers(2**31))
        return self._told(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """The mover's word. After any other the same seat is asked again; `STRIKES` of those lose what it has paid."""
        words = _WORD.findall(action[-LONGEST_REPLY:])
        if self.over or not words or words[-1].lower() not in self.legal_actions():
            return self._illegal()
        mover, self.strikes = len(self.history) % 2, 0
        self.history += "b" if words[-1].lower() in ("bet", "call") else "p"
        self.over = self.history in ENDS
        gain = payoff(self.cards, self.history) if self.over else 0
        rewards = (float(gain), float(-gain))
        shown = self._told()
        if self.over:
            first, second = (CARDS[card] for card in self.cards)
            shown = f"Player 1 had {first}, player 2 had {second}. Player {1 + (gain < 0)} takes the pot."
        return shown, rewards[mover], self.over, False, self._info() | {"rewards": rewards}

    def _illegal(self) -> tuple[str, float, bool, bool, Info]:
        mover, lost = len(self.history) % 2, not self.over and self.strikes + 1 >= STRIKES
        told = f"{self._told()}\nSay one of: {', '.join(self.legal_actions())}."
        rewards = ((-1.0, 1.0) if mover == 0 else (1.0, -1.0)) if lost else (0.0, 0.0)
        self.strikes, self.over = self.strikes + 1, self.over or lost
        if lost:
            told = f"Player {mover + 1} loses by {STRIKES} replies that say nothing."
        return told, rewards[mover], self.over, False, self._info() | {"illegal": True, "rewards": rewards}

    def legal_actions(self) -> tuple[str, ...]:
        """What the mover may say."""
        if self.over:
            return ()
        return ("fold", "call") if self.history.endswith("b") else ("check", "bet")

    def _told(self) -> str:
        mover = len(self.history) % 2
        past = {"": "nothing", "p": "check", "b": "bet", "pb": "check, bet"}.get(self.history, "")
        return f"You are player {mover + 1} and hold {CARDS[self.cards[mover]]}. So far: {past}."

    def _info(self) -> Info:
        mover = len(self.history) % 2
        return {"player": mover, "anchor": f"{CARDS[self.cards[mover]]}{self.history}"}


def payoff(cards: tuple[int, int], history: str) -> int:
    """What the first seat gains at the end of a game."""
    taker = ENDS[history]
    if taker is None:
        return (2 if "b" in history else 1) * (1 if cards[0] > cards[1] else -1)
    return 1 if taker == 0 else -1


def bet_chance(card: int, history: str, alpha: float = 1 / 3) -> float:
    """How often an equilibrium player bets or calls with a card after a history; the first seat chooses `alpha`, 0 to 1/3."""
    return {
        "": (alpha, 0.0, 3 * alpha),
        "p": (1 / 3, 0.0, 1.0),
        "b": (0.0, 1 / 3, 1.0),
        "pb": (0.0, alpha + 1 / 3, 1.0),
    }[history][card]


def solve(env: KuhnPoker) -> str:
    """An equilibrium player's word; chance comes from the deal, so that an episode repeats itself."""
    mover = len(env.history) % 2
    draw = random.Random(f"{env.luck}/{env.history}").random()
    check_or_fold, bet_or_call = ("fold", "call") if env.history.endswith("b") else ("check", "bet")
    return bet_or_call if draw < bet_chance(env.cards[mover], env.history) else check_or_fold


def tasks() -> GeneratedTasks:
    """Deals by seed."""

    def draw(seed: int) -> Mapping[str, Any]:
        first, second = divmod(seed % 6, 2)
        return {"cards": [first, [c for c in range(3) if c != first][second]], "luck": seed // 6 % 2**31}

    return GeneratedTasks(draw)


SPEC = EnvSpec(
    id="duel/KuhnPoker-v1",
    make=KuhnPoker,
    tasks=tasks,
    instructions="Poker with J, Q, K: both pay 1, the higher card takes the pot. Say check or bet; after a bet, call or fold.",
    max_turns=9,
    success_reward=1.0,
    reward_range=(-2.0, 2.0),
    inline=True,
    players=2,
    solver=solve,
)
