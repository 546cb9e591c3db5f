"""CliffWalking: Gymnasium's own environment behind a text face. Walk round the cliff to the goal."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

MOVES = {"up": 0, "right": 1, "down": 2, "left": 3}
ROWS, COLUMNS = 4, 12
START, GOAL = 36, 47
_WORD = re.compile(r"\b(up|right|down|left)\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096


class CliffWalking(Env):
    """Rewards are Gymnasium's: -1 a move, -100 a fall, which leads back to S. A reply without a move costs 1 too.

    A task may start from any cell outside the cliff; Gymnasium's own start is S.
    """

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, slippery: bool = False) -> None:
        """Play on firm ground, or where moves go astray in two of three cases."""
        _check(slippery)
        self._game = CliffWalkingEnv(is_slippery=slippery)
        self._slippery = slippery

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start from the task's cell, or from S."""
        super().reset(seed=seed)
        self._game.reset(seed=seed)
        task = self.task_of(options)
        self._game.s = self._place = int(task["start"]) if task else START
        self._done = False
        return self._show(), {"anchor": str(self._place)}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Make the last move that the reply names; a reply without one changes nothing."""
        words = _WORD.findall(action[-_LONGEST_REPLY:])
        if not words or self._done:
            info: Info = {"illegal": True, "anchor": str(self._place), "success": self._done}
            told = f"{self._show()}\nSay one of: {', '.join(MOVES)}."
            return told, 0.0 if self._done else -1.0, self._done, False, info
        place, reward, done, _, _ = self._game.step(MOVES[words[-1].lower()])  # type: ignore[no-untyped-call]
        self._place, self._done = int(place), bool(done)
        return self._show(), float(reward), self._done, False, {"anchor": str(self._place), "success": self._done}

    def legal_actions(self) -> tuple[str, ...]:
        """Every move."""
        return () if self._done else tuple(MOVES)

    def _show(self) -> str:
        signs = ["." * COLUMNS] * (ROWS - 1) + ["S" + "C" * (COLUMNS - 2) + "G"]
        cells = "".join(signs)
        marked = cells[: self._place] + "@" + cells[self._place + 1 :]
        return "\n".join(marked[i : i + COLUMNS] for i in range(0, len(marked), COLUMNS))


@lru_cache(2)
def policy(slippery: bool) -> tuple[str, ...]:
    """The move of the highest expected reward in every cell, by value iteration over Gymnasium's own chances."""
    game = CliffWalkingEnv(is_slippery=slippery)
    values = np.zeros(len(game.P))
    while True:
        scores = [[_worth(game.P[place][move], values) for move in MOVES.values()] for place in range(GOAL)]
        new = np.array([*(max(row) for row in scores), 0.0])
        if np.abs(new - values).max() < 1e-6:
            return tuple(list(MOVES)[int(np.argmax(row))] for row in scores)
        values = new


def _worth(outcomes: Any, values: Any) -> float:
    return float(sum(p * (reward + values[after] * (not done)) for p, after, reward, done in outcomes))


def tasks(*, slippery: bool = False) -> GeneratedTasks:
    """Cells outside the cliff and the goal; a cell belongs to one split only."""
    _check(slippery)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"start": seed % (START + 1)}

    return GeneratedTasks(draw)


def _check(slippery: bool) -> None:
    if not isinstance(slippery, bool):
        raise ValueError(f"slippery={slippery!r} must be true or false")


SPEC = EnvSpec(
    id="game/CliffWalking-v1",
    make=CliffWalking,
    tasks=tasks,
    instructions=(
        "You are @ on a grid. Walk to G in few moves. C is a cliff: a fall costs 100 and puts you back on S. "
        "Answer with one word: up, right, down or left."
    ),
    max_turns=100,
    reward_range=(-10_000.0, -1.0),
    inline=True,
    solver=lambda env: policy(env._slippery)[env._place],
    baselines={"random": 0.01, "solver": 1.0},
)
