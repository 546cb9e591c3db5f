"""A person at the terminal, in the same seat as any policy."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from envhub.errors import PolicyError
from envhub.policy.scripted_policy import TextSeat
from envhub.rollout.episode import Place
from envhub.rollout.episode import play as play_episode
from envhub.runs.stage import build_stage, build_tasks


class Person:
    """Shows observations on stdout and reads replies from stdin."""

    def seat(self, *, episode: str, seed: int, instructions: str) -> TextSeat:
        """Explain the rules and sit down."""
        sys.stdout.write(f"{instructions}\n(end with Ctrl-D)\n")
        return TextSeat(_ask)


def play(env_id: str, *, options: Mapping[str, Any], split: str, seed: int) -> None:
    """Play one episode and say how it ended.

    Raises:
        ConfigError: environment, options or split are not what they should be.
    """
    stage = build_stage(env_id, options, turn_deadline_s=3600.0)
    task = build_tasks(stage, options, split, seed).at(0)
    played = asyncio.run(play_episode(stage, Person(), task, Place("play/0.0", "play", 0, 0, seed)))
    outcome = f"failed: {played.failure}" if played.failed else f"{played.stop.value}, reward {played.reward:g}"
    sys.stdout.write(f"\n{played.final_observation}\n{outcome} after {len(played.turns)} turns\n")


def _ask(observation: str) -> str:
    sys.stdout.write(f"\n{observation}\n> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise PolicyError("the player left", mend="answer with a line of text")
    return line.rstrip("\n")
