"""Blackjack: Gymnasium's own environment, with the rules of its registered id, behind a text face."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from gymnasium.envs.toy_text.blackjack import BlackjackEnv, deck, sum_hand

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_WORD = re.compile(r"\b(hit|stick)\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096
PENALTY = -0.1
BUST = 22
Hand = tuple[int, bool]  # its sum, and whether an ace counts 11 in it


class Blackjack(Env):
    """Rewards are Gymnasium's: 1 a win, 0 a draw, -1 a loss. A reply without a move costs 0.1, so that stalling never pays."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self) -> None:
        """Play by Sutton and Barto's rules: a hand of ace and ten wins, but against another."""
        self._game = BlackjackEnv(sab=True)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Deal; the cards follow from the task's seed, or from one drawn here."""
        super().reset(seed=seed)
        task = self.task_of(options) or {"deal": int(self.np_random.integers(2**31))}
        self._game.reset(seed=int(task["deal"]))
        self._done = self._won = False
        return self._show(), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Hit or stick, whichever the reply names last."""
        words = _WORD.findall(action[-_LONGEST_REPLY:])
        if not words or self._done:
            told = f"{self._show()}\nSay hit or stick."
            return told, 0.0 if self._done else PENALTY, self._done, False, self._info() | {"illegal": True}
        _, reward, done, _, _ = self._game.step(int(words[-1].lower() == "hit"))  # type: ignore[no-untyped-call]
        self._done, self._won = bool(done), reward > 0
        told = self._show() + (f"\n{'win' if reward > 0 else 'loss' if reward < 0 else 'draw'}" if done else "")
        return told, float(reward), self._done, False, self._info()

    def legal_actions(self) -> tuple[str, ...]:
        """Both moves."""
        return () if self._done else ("hit", "stick")

    def hand(self) -> Hand:
        """The player's hand."""
        return _sum(tuple(self._game.player))

    def dealer(self) -> int:
        """The dealer's open card."""
        return int(self._game.dealer[0])

    def _show(self) -> str:
        player, dealer = self._game.player, self._game.dealer if self._done else self._game.dealer[:1]
        soft = ", an ace counts 11" if self.hand()[1] else ""
        mine = f"you: {' '.join(map(_card, player))} (sum {self.hand()[0]}{soft})"
        return f"{mine}\ndealer: {' '.join(map(_card, dealer))}" + (f" (sum {sum_hand(dealer)})" if self._done else " ?")  # type: ignore[no-untyped-call]

    def _info(self) -> Info:
        return {"anchor": f"{sorted(self._game.player)} {self.dealer()}", "success": self._won}


def _card(value: int) -> str:
    return "A" if value == 1 else str(value)


def _sum(cards: tuple[int, ...]) -> Hand:
    total, soft = sum(cards), 1 in cards and sum(cards) <= 11
    return total + 10 * soft, soft


def _with(hand: Hand, card: int) -> Hand:
    total, soft = hand[0] + card, hand[1]
    if card == 1 and total <= 11:
        return total + 10, True
    return (total - 10, False) if soft and total > 21 else (total, soft)


@cache
def ends(dealer: Hand) -> Mapping[int, float]:
    """The chance of every sum that a dealer ends with, who draws below 17; 22 stands for bust."""
    if dealer[0] >= 17:
        return {min(dealer[0], BUST): 1.0}
    chances: dict[int, float] = {}
    for card in deck:
        for total, chance in ends(_with(dealer, card)).items():
            chances[total] = chances.get(total, 0.0) + chance / len(deck)
    return chances


@cache
def stick_worth(total: int, showing: int) -> float:
    """The expected reward of sticking on a sum against the dealer's open card."""
    worth = 0.0
    for card in deck:
        for end, chance in ends(_with(_sum((showing,)), card)).items():
            worth += chance / len(deck) * ((end == BUST or total > end) - (end != BUST and total < end))
    return worth


@cache
def hit_worth(hand: Hand, showing: int) -> float:
    """The expected reward of a hit, and of the best play after it."""
    after = [_with(hand, card) for card in deck]
    return sum(-1.0 if h[0] > 21 else max(stick_worth(h[0], showing), hit_worth(h, showing)) for h in after) / len(deck)


def solve(env: Blackjack) -> str:
    """Basic strategy, computed: the move of the higher expected reward."""
    hand, showing = env.hand(), env.dealer()
    return "hit" if hit_worth(hand, showing) > stick_worth(hand[0], showing) else "stick"


def tasks() -> GeneratedTasks:
    """Deals by seed."""

    def draw(seed: int) -> Mapping[str, Any]:
        return {"deal": seed % 2**31}

    return GeneratedTasks(draw)


SPEC = EnvSpec(
    id="game/Blackjack-v1",
    make=Blackjack,
    tasks=tasks,
    instructions=(
        "Come closer to 21 than the dealer, and not above it. 10, jack, queen and king count 10, an ace 1 or 11. "
        "The dealer draws below 17. Answer with one word: hit or stick."
    ),
    max_turns=24,
    success_reward=1.0,
    reward_range=(-3.3, 1.0),
    inline=True,
    solver=solve,
    baselines={"random": 0.29, "solver": 0.44},
)
