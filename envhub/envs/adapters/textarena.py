"""TextArena's games: `textarena:TicTacToe-v0`, for one or two players, by the state's own observations and rewards.

Games of two players seat two policies: `info["player"]` moves next, `info["rewards"]` is what each seat earned. A reward is
TextArena's, -1 to 1; where it gives none for a player, 0. Deterministic by seed.
"""

import random
import re
from functools import partial
from typing import Any

import textarena as ta

from envhub.envs.core import Env, Info
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import GeneratedTasks
from envhub.errors import ConfigError

REFUSED = {
    "Wordle": "downloads a word list when it is made",
    "Hangman": "downloads a word list when it is made",
    "Chess": "needs a newer Python than 3.11",
}
LONGEST_REPLY = 16_384
_DIGITS = re.compile(r"[0-9]{100,}")
TWO_PLAYERS = frozenset({"TicTacToe", "ConnectFour", "KuhnPoker", "Nim", "Othello", "Checkers", "SimpleTak"})


class TextArena(Env):
    """One of TextArena's games, unchanged."""

    def __init__(self, env_id: str, players: int, **options: Any) -> None:
        """Make the game with its own options. Raises ValueError if TextArena refuses."""
        self._make = partial(ta.make, env_id, **options)
        try:
            self.env = self._make()
        except (KeyError, ValueError, TypeError, ImportError, SyntaxError, LookupError) as error:
            raise ValueError(f"textarena.make({env_id!r}): {type(error).__name__}: {error}") from error
        self.players = players
        self._over = True
        self._player, self._shown = 0, ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin the task's game, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        chosen = int(task["seed"]) if task else int(self.np_random.integers(2**31))
        state = random.getstate()
        try:
            random.seed(chosen)  # some games draw from the global generator
            self.env = self._make()  # a used one shows the moves of the episode before
            self.env.reset(num_players=self.players, seed=chosen)
            self._over = False
            self._look()
            self._own = random.getstate()
        finally:
            random.setstate(state)
        return self._shown, self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """The mover's move. TextArena itself answers bad ones, and ends the game after too many."""
        if self._over:
            return self._shown, 0.0, True, False, {**self._info(), "illegal": True, "rewards": [0.0] * self.players}
        mover, state = self._player, random.getstate()
        try:
            random.setstate(self._own)
            self._over = bool(self.env.step(_clean(action))[0])
            rewards = self._close() if self._over else [0.0] * self.players
            if not self._over:
                self._look()
            self._own = random.getstate()
        finally:
            random.setstate(state)
        info = self._info() | {"rewards": rewards}
        if self._over and self.players == 1:
            info["success"] = rewards[0] >= 1.0
        return self._shown, rewards[mover], self._over, False, info

    def _look(self) -> None:
        self._player, given = self.env.get_observation()
        self._shown = str(given)

    def _close(self) -> list[float]:
        rewards, told = self.env.close()
        reasons = sorted({str(t.get("reason", "")) for t in (told or {}).values() if isinstance(t, dict)})
        self._shown = "\n".join(filter(None, reasons)) or "The game is over."
        return [float((rewards or {}).get(seat, 0.0)) for seat in range(self.players)]

    def _info(self) -> Info:
        return {"player": self._player} if self.players > 1 else {}


def _clean(action: str) -> str:
    """The end of a reply as TextArena can take it: its games read numbers of any length, which Python does not."""
    text = action[-LONGEST_REPLY:].encode("utf-8", "replace").decode().replace("\0", "")
    return _DIGITS.sub(lambda found: str(found[0])[:100], text)


def spec(rest: str) -> EnvSpec:
    """The spec of a game. Raises ConfigError for one that cannot run here."""
    name = rest.partition("-v")[0]
    if name in REFUSED:
        raise ConfigError(f"TextArena's {name} {REFUSED[name]}", mend="choose another game")
    if rest not in ta.envs.registration.ENV_REGISTRY:
        raise ConfigError(f"TextArena has no game {rest!r}", mend="see textarena.envs.registration.ENV_REGISTRY")
    players = 2 if name in TWO_PLAYERS else 1
    return EnvSpec(
        id=f"textarena:{rest}",
        make=lambda **options: TextArena(rest, players, **options),
        summary=f"TextArena's {rest}.",
        tasks=lambda **_: GeneratedTasks(lambda seed: {"seed": seed % 2**31}),
        instructions="You play a game. Put your move into square brackets, as the rules say.",
        max_turns=200,
        success_reward=1.0,
        reward_range=(-1.0, 1.0),
        inline=False,
        players=players,
        tags=("textarena",),
    )
