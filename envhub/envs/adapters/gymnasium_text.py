"""Any Gymnasium environment behind a text face: `gymnasium:CartPole-v1`.

The action is read from the reply: a name where the environment's actions have names, else numbers. Observations are written
out: a number, a vector of rounded numbers, or with `render="ansi"` what the environment draws. With `face="numeric"` the bare
environment is given, for code that wants its arrays. An episode is solved if it ends with Gymnasium's `reward_threshold`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from envhub.envs.core import Env, Info
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import GeneratedTasks
from envhub.errors import ConfigError

NAMES: Mapping[str, tuple[str, ...]] = {
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
    "CartPole": ("left", "right"),
    "MountainCar": ("left", "none", "right"),
    "Acrobot": ("left", "none", "right"),
    "LunarLander": ("none", "left", "main", "right"),
}
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9})(?:[eE][-+]?[0-9]{1,2})?", re.ASCII)
LONGEST_REPLY = 4096
MAX_NUMBERS = 4096


class GymnasiumText(Env):
    """A Gymnasium environment whose actions and observations are text."""

    def __init__(self, env_id: str, *, render: str | None = None, **options: Any) -> None:
        """Make `env_id` with its own options. Raises ValueError if Gymnasium refuses, or if its actions cannot be read."""
        try:
            self.env = gymnasium.make(env_id, render_mode=render, **options)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise ValueError(f"gymnasium.make({env_id!r}): {error}") from error
        names = NAMES.get(env_id.rpartition("/")[2].partition("-v")[0], ())
        self._draws = render == "ansi"
        self._read = reader(self.env.action_space, names)
        self._write = writer(self.env.observation_space)
        self._names = _actions(self.env.action_space, names)
        goal = self.env.spec.reward_threshold if self.env.spec is not None else None
        self._goal, self._earned = None if goal is None else float(goal), 0.0
        self._over, self._shown = True, ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin; the task's seed decides where there is one. Other options are the environment's own."""
        super().reset(seed=seed)
        task = self.task_of(options)
        own = {k: v for k, v in (options or {}).items() if k != "task"} or None
        given, info = self.env.reset(seed=seed if task is None else int(task["seed"]), options=own)
        self._over, self._shown, self._earned = False, self._show(given), 0.0
        return self._shown, _plain(info)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take the action that the reply names; one that cannot be read changes nothing."""
        chosen = self._read(action[-LONGEST_REPLY:])
        if chosen is None or self._over:
            wanted = ", ".join(self._names) if self._names else expected(self.env.action_space)
            return f"{self._shown}\nAnswer with: {wanted}", 0.0, self._over, False, {"illegal": True}
        given, reward, terminated, truncated, info = self.env.step(chosen)
        self._over = bool(terminated or truncated)
        self._shown = self._show(given)
        self._earned += float(reward)
        told = _plain(info)
        if self._goal is not None:
            told["success"] = self._over and self._earned >= self._goal
        return self._shown, float(reward), bool(terminated), bool(truncated), told

    def legal_actions(self) -> tuple[str, ...]:
        """The names or numbers of discrete actions."""
        return () if self._over else self._names

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _show(self, observation: Any) -> str:
        return str(self.env.render()) if self._draws else self._write(observation)


def reader(space: spaces.Space[Any], names: tuple[str, ...] = ()) -> Callable[[str], Any]:
    """A function from a reply to an action of a space; None where it names none.

    Raises:
        ValueError: text cannot give an action of the space.
    """
    if isinstance(space, spaces.Discrete):
        words = {name: int(space.start) + i for i, name in enumerate(names[: int(space.n)])}
        pattern = re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE | re.ASCII) if words else None
        return lambda text: _discrete(text, space, pattern, words)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return lambda text: _array(text, space)
    raise ValueError(f"actions of {space} cannot be written as text")


def _discrete(text: str, space: spaces.Discrete, pattern: re.Pattern[str] | None, words: Mapping[str, int]) -> int | None:
    if pattern is not None:
        found = pattern.findall(text)
        if found:
            return words[found[-1].lower()]
    numbers = _NUMBER.findall(text)
    if not numbers or not numbers[-1].lstrip("+-").isdigit():
        return None
    number = int(numbers[-1])
    return number if space.start <= number < space.start + space.n else None


def _array(text: str, space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary) -> Any:
    """As many numbers as the space holds, clipped to a box's bounds."""
    assert space.shape is not None
    numbers = _NUMBER.findall(text)[:MAX_NUMBERS]
    size = int(np.prod(space.shape))
    if len(numbers) != size:
        return None
    values = np.array([float(n) for n in numbers]).reshape(space.shape)
    if isinstance(space, spaces.Box):
        return np.clip(values, space.low, space.high).astype(space.dtype)
    whole = values.astype(np.int64)
    chosen = whole.astype(space.dtype) if (whole == values).all() else None
    return chosen if chosen is not None and space.contains(chosen) else None


def expected(space: spaces.Space[Any]) -> str:
    """What an action of a space looks like, for people and policies."""
    if isinstance(space, spaces.Discrete):
        return f"a number from {space.start} to {space.start + space.n - 1}"
    if isinstance(space, spaces.Box):
        low, high = float(np.min(space.low)), float(np.max(space.high))
        return f"{int(np.prod(space.shape))} numbers from {low:g} to {high:g}, with spaces between them"
    assert space.shape is not None
    return f"{int(np.prod(space.shape))} whole numbers, with spaces between them: one of {space}"


def writer(space: spaces.Space[Any]) -> Callable[[Any], str]:
    """A function from an observation of a space to text."""
    if isinstance(space, spaces.Discrete | spaces.Text):
        return str
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _numbers
    if isinstance(space, spaces.Dict):
        inner = {key: writer(value) for key, value in space.spaces.items()}
        return lambda given: "\n".join(f"{key}: {write(given[key])}" for key, write in inner.items())
    if isinstance(space, spaces.Tuple):
        parts = [writer(part) for part in space.spaces]
        return lambda given: ", ".join(write(value) for write, value in zip(parts, given, strict=True))
    return str


def _numbers(given: Any) -> str:
    array = np.asarray(given)
    if array.ndim > 1 and array.shape[-1] <= 64 and array.size <= 4096:
        return "\n".join(_numbers(row) for row in array)
    flat = array.reshape(-1)
    shown = " ".join(f"{value:.4g}" for value in flat[:256].tolist())
    return shown if flat.size <= 256 else f"{shown} [{flat.size - 256} numbers left out]"


def _actions(space: spaces.Space[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(space, spaces.Discrete) or space.n > 1000:
        return ()
    return names[: int(space.n)] if len(names) >= space.n else tuple(str(int(space.start) + i) for i in range(int(space.n)))


def _plain(info: Mapping[str, Any]) -> Info:
    """The parts of an info that can be sent: numbers, text, small arrays as lists."""
    found: Info = {}
    for key, value in info.items():
        if isinstance(value, np.ndarray) and value.size <= 1024:
            value = value.tolist()
        elif isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, bool | int | str | list) or (isinstance(value, float) and np.isfinite(value)):
            found[str(key)] = value
    return {key: value for key, value in found.items() if key != "success" or isinstance(value, bool)}


def spec(rest: str) -> EnvSpec:
    """The spec of a registered Gymnasium id. Raises ConfigError if there is none."""
    try:
        known = gymnasium.spec(rest)
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium knows no {rest!r}: {error}", mend="see gymnasium.pprint_registry()") from error

    def make(*, face: str = "text", **options: Any) -> Any:
        if face == "numeric":
            return gymnasium.make(rest, **options)
        if face != "text":
            raise ValueError(f"face={face!r} is neither text nor numeric")
        return GymnasiumText(rest, **options)

    return EnvSpec(
        id=f"gymnasium:{rest}",
        make=make,
        summary=f"Gymnasium's {rest} as text.",
        tasks=lambda **_: GeneratedTasks(lambda seed: {"seed": seed % 2**31}),
        max_turns=known.max_episode_steps or 1000,
        reward_range=(-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max)),
        inline=True,
        tags=("gymnasium",),
    )
