"""A person at the terminal, in the same seat as any policy."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from envhub.envs.core import Env
from envhub.errors import PolicyError, RunFailed
from envhub.policy.scripted_policy import TextSeat
from envhub.rollout.episode import Place
from envhub.rollout.episode import play as play_episode
from envhub.runs.stage import build_stage, build_tasks


class Person:
    """Shows observations on stdout and reads replies from stdin; `left` tells whether the input has ended."""

    def __init__(self) -> None:
        """Nobody has left."""
        self.left = False

    def seat(self, *, episode: str, seed: int, instructions: str) -> TextSeat:
        """Explain the rules and sit down."""
        sys.stdout.write(f"{instructions}\n(end with Ctrl-D)\n")
        return TextSeat(self._ask)

    def _ask(self, observation: str) -> str:
        sys.stdout.write(f"\n{observation}\n> ")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            self.left = True
            raise PolicyError("the player left", mend="answer with a line of text")
        return line.rstrip("\n")


def play(env_id: str, *, options: Mapping[str, Any], split: str, seed: int) -> None:
    """Play one episode and say how it ended.

    Raises:
        ConfigError: environment, options or split are not what they should be.
        RunFailed: the environment broke.
    """
    stage = build_stage(env_id, options, turn_deadline_s=3600.0)
    task = build_tasks(stage, options, split, seed).at(0)
    env = stage.make_env()  # options that it refuses are a wrong request, not a failed episode
    if isinstance(env, Env):
        env.close()
    person = Person()
    played = asyncio.run(play_episode(stage, person, task, Place("play/0.0", "play", 0, 0, seed)))
    if played.failed and not person.left:
        raise RunFailed(f"the episode failed: {played.failure}", mend="mend the environment")
    outcome = f"failed: {played.failure}" if played.failed else f"{played.stop.value}, reward {played.reward:g}"
    sys.stdout.write(f"\n{played.final_observation}\n{outcome} after {len(played.turns)} turns\n")
