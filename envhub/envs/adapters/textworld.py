"""TextWorld: `textworld:FILE.z8`, or `textworld:new` for games generated from their task's seed with the options given.

A generated game is compiled once and kept in a temporary folder of this process. The reward is the gained score over the most
that can be gained; the walkthrough is the solver.
"""

import atexit
import shutil
import tempfile
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import textworld

from envhub.envs.core import Env, Info
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import GeneratedTasks, ListTasks, TaskSet
from envhub.errors import ConfigError

LONGEST_COMMAND = 200
ASKED = {"admissible_commands": True, "won": True, "lost": True, "max_score": True, "score": True, "policy_commands": True}


class TextWorld(Env):
    """A game of TextWorld, unchanged."""

    def __init__(self, file: str = "", *, rooms: int = 2, objects: int = 4, quest_length: int = 3) -> None:
        """Play `file`, or games generated with these sizes. Raises ValueError."""
        if not (1 <= rooms <= 20 and 1 <= objects <= 50 and 1 <= quest_length <= 20):
            raise ValueError(f"rooms={rooms} (1 to 20), objects={objects} (1 to 50), quest_length={quest_length} (1 to 20)")
        self._file, self._sizes = file, (rooms, objects, quest_length)
        self._env: Any = None
        self._over = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin the task's game, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options) or {"seed": int(self.np_random.integers(2**20))}
        self.close()
        path = self._file or generated(int(task["seed"]), *self._sizes)
        self._env = textworld.start(path, textworld.EnvInfos(**ASKED))
        self._state = self._env.reset()
        self._over, self._score = False, 0.0
        return _text(self._state.feedback), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Type the reply's last line."""
        lines = [line.strip() for line in action[-4096:].splitlines() if line.strip()]
        command = "".join(c for c in lines[-1] if c.isprintable() and c.isascii())[:LONGEST_COMMAND] if lines else ""
        if not command or self._over:
            return "Type a command, such as: look.", 0.0, self._over, False, {"illegal": True}
        self._state, score, done = self._env.step(command)
        most = float(self._state.max_score or 1)
        reward, self._score = (float(score) - self._score) / most, float(score)
        self._over = bool(done)
        return _text(self._state.feedback), reward, self._over, False, {"success": bool(self._state.won)}

    def legal_actions(self) -> tuple[str, ...]:
        """The admissible commands."""
        return () if self._over else tuple(self._state.admissible_commands or ())

    def best(self) -> str:
        """The next command that wins."""
        commands = self._state.policy_commands
        return str(commands[0]) if commands else "look"

    def close(self) -> None:
        """End the interpreter."""
        if self._env is not None:
            self._env.close()
            self._env = None


def _text(feedback: Any) -> str:
    return "\n".join(line.rstrip() for line in str(feedback).strip().splitlines())


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="envhub-textworld-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@lru_cache(4096)
def generated(seed: int, rooms: int, objects: int, quest_length: int) -> str:
    """The file of a generated game; compiled when first asked for."""
    options = textworld.GameOptions()
    options.seeds = seed
    options.nb_rooms, options.nb_objects, options.quest_length = rooms, objects, quest_length
    options.path = str(_folder() / f"{seed}-{rooms}-{objects}-{quest_length}.z8")
    path, _ = textworld.make(options)
    return str(path)


def spec(rest: str) -> EnvSpec:
    """The spec of a game file, or of generated games. Raises ConfigError if the file is not there."""
    if rest != "new" and not Path(rest).is_file():
        raise ConfigError(f"no game {rest!r}", mend="give a .z8 or .ulx file, or textworld:new")

    def tasks(**_: Any) -> TaskSet:
        if rest != "new":
            return ListTasks({"train": [{"file": Path(rest).name}]})
        return GeneratedTasks(lambda seed: {"seed": seed % 2**20})

    return EnvSpec(
        id=f"textworld:{rest if rest == 'new' else Path(rest).name}",
        make=lambda **options: TextWorld("" if rest == "new" else rest, **options),
        summary="A text adventure of TextWorld.",
        tasks=tasks,
        instructions="You play a text adventure. Type one command a turn.",
        max_turns=100,
        reward_range=(0.0, 1.0),
        tags=("textworld", "text-adventure"),
        solver=lambda env: env.best(),
    )
