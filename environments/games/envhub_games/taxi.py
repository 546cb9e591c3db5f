"""Taxi: Gymnasium's own environment behind a text face. Fetch a passenger and bring them to where they want to go."""

import re
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from gymnasium.envs.toy_text.taxi import TaxiEnv

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

MOVES = ("south", "north", "east", "west", "pickup", "dropoff")
STANDS = ("red", "green", "yellow", "blue")
_WORD = re.compile(r"\b(south|north|east|west|pickup|dropoff)\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096
NUM_STATES = 500


class Taxi(Env):
    """Rewards are Gymnasium's: -1 a move, -10 a wrong pickup or dropoff, 20 at the end."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self) -> None:
        self._game = TaxiEnv()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start from the task's state, or from one drawn from the seed."""
        super().reset(seed=seed)
        state, _ = self._game.reset(seed=seed)
        task = self.task_of(options)
        if task:
            self._game.s = state = int(task["state"])
        self._state, self._done = int(state), False
        return self._show(), {"anchor": str(self._state)}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Do the last thing that the reply names; a reply without one changes nothing."""
        words = _WORD.findall(action[-_LONGEST_REPLY:])
        if not words or self._done:
            info: Info = {"illegal": True, "anchor": str(self._state)}
            return f"{self._show()}\nSay one of: {', '.join(MOVES)}.", 0.0, self._done, False, info
        state, reward, done, _, _ = self._game.step(MOVES.index(words[-1].lower()))  # type: ignore[no-untyped-call]
        self._state, self._done = int(state), bool(done)
        return (
            self._show(),
            float(reward),
            self._done,
            False,
            {"anchor": str(self._state)} | {"success": bool(done)},
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Whatever Gymnasium's action mask allows."""
        return tuple(name for name, allowed in zip(MOVES, self._game.action_mask(self._state), strict=True) if allowed)

    def _show(self) -> str:
        row, column, passenger, destination = self._game.decode(self._state)
        marked = [list(line.decode() if isinstance(line, bytes) else line) for line in _map(self._game)]
        marked[1 + row][1 + 2 * column] = "@"
        where = "in the taxi" if passenger == 4 else f"at {STANDS[passenger]}"
        return "\n".join(["".join(line) for line in marked] + [f"passenger {where}, to {STANDS[destination]}"])


def _map(game: TaxiEnv) -> list[str]:
    return ["".join(sign.decode() for sign in row) for row in game.desc]


@lru_cache(1)
def policy() -> dict[int, str]:
    """The first move of a shortest way from every state, searched backward from the ends."""
    game = TaxiEnv()
    before: dict[int, list[tuple[int, str]]] = {}
    queue: deque[int] = deque()
    found: dict[int, str] = {}
    for state, moves in game.P.items():
        for number, outcomes in moves.items():
            ((_, after, _, done),) = outcomes
            if done:
                found[state] = MOVES[number]
                queue.append(state)
            elif after != state:
                before.setdefault(after, []).append((state, MOVES[number]))
    while queue:
        for state, move in before.get(queue.popleft(), []):
            if state not in found:
                found[state] = move
                queue.append(state)
    return found


def tasks() -> GeneratedTasks:
    """The states that an episode may start from; a state belongs to one split only."""

    def draw(seed: int) -> Mapping[str, Any]:
        state = seed % NUM_STATES
        passenger, destination = state // 4 % 5, state % 4
        return {"state": state} if passenger < 4 and passenger != destination else draw(seed // 7 + 1)

    return GeneratedTasks(draw)


SPEC = EnvSpec(
    id="game/Taxi-v1",
    make=Taxi,
    tasks=tasks,
    instructions=(
        "You drive the taxi @ on a grid with walls |. R, G, Y and B are the red, green, yellow and blue stands. Go to the "
        "passenger, say pickup, go to the destination, say dropoff. Answer with one word: south, north, east, west, pickup or "
        "dropoff."
    ),
    max_turns=200,
    reward_range=(-2000.0, 20.0),
    solver=lambda env: policy()[env._state],
    baselines={"random": 0.12, "solver": 1.0},
    inline=True,
)
