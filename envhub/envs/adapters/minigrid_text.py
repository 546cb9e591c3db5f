"""MiniGrid and BabyAI as text: `minigrid:MiniGrid-DoorKey-5x5-v0`. The view is the own one: it looks up, from the last row."""

import re
from typing import Any

import gymnasium
import minigrid  # noqa: F401  its import registers the environments
from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT

from envhub.envs.core import Env, Info
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import GeneratedTasks
from envhub.errors import ConfigError

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")
SIGNS = {
    **{"unseen": "?", "empty": ".", "floor": ".", "wall": "#", "door": "D"},
    **{"key": "k", "ball": "o", "box": "b", "goal": "G", "lava": "~"},
}
THINGS = frozenset("DkobG~")
FACING = ("right", "down", "left", "up")
DOORS = ("open", "closed", "locked")
_WORD = re.compile(rf"\b({'|'.join(ACTIONS)})\b", re.IGNORECASE | re.ASCII)
LONGEST_REPLY = 4096


class MiniGridText(Env):
    """One of MiniGrid's environments whose view is drawn in text."""

    def __init__(self, env_id: str, **options: Any) -> None:
        """Make `env_id`. Raises ValueError if Gymnasium refuses."""
        try:
            self.env = gymnasium.make(env_id, **options)
        except (gymnasium.error.Error, TypeError) as error:
            raise ValueError(f"gymnasium.make({env_id!r}): {error}") from error
        self._over, self._shown = True, ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin the task's grid, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        given, _ = self.env.reset(seed=int(task["seed"]) if task else seed)
        self._over, self._shown = False, self._show(given)
        return self._shown, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Do the last thing that the reply names."""
        found = _WORD.findall(action[-LONGEST_REPLY:])
        if not found or self._over:
            return f"{self._shown}\nSay one of: {', '.join(ACTIONS)}.", 0.0, self._over, False, {"illegal": True}
        given, reward, terminated, truncated, _ = self.env.step(ACTIONS.index(found[-1].lower()))
        self._over, self._shown = bool(terminated or truncated), self._show(given)
        info: Info = {"success": bool(terminated) and float(reward) > 0}
        return self._shown, float(reward), bool(terminated), bool(truncated), info

    def legal_actions(self) -> tuple[str, ...]:
        """All seven."""
        return () if self._over else ACTIONS

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _show(self, given: Any) -> str:
        view = given["image"]
        width, height = view.shape[:2]
        rows = [[SIGNS.get(IDX_TO_OBJECT[int(view[x, y, 0])], "?") for x in range(width)] for y in range(height)]
        rows[height - 1][width // 2] = "@"
        thing = getattr(self.env.unwrapped, "carrying", None)
        carried = "nothing" if thing is None else f"{thing.color} {thing.type}"
        cells = (view[x, y] for x in range(width) for y in range(height))
        seen = sorted({_named(cell) for cell in cells if SIGNS.get(IDX_TO_OBJECT[int(cell[0])]) in THINGS})
        lines = [
            f"Mission: {given['mission']}",
            f"You (@) look up, which is {FACING[int(given['direction'])]} on the map. You carry: {carried}.",
            *("".join(row) for row in rows),
            f"You see: {', '.join(seen) or 'nothing'}.",
        ]
        return "\n".join(lines)


def _named(cell: Any) -> str:
    kind, color = IDX_TO_OBJECT[int(cell[0])], IDX_TO_COLOR[int(cell[1])]
    return f"{DOORS[int(cell[2])]} {color} door" if kind == "door" else kind if kind in ("goal", "lava") else f"{color} {kind}"


def spec(rest: str) -> EnvSpec:
    """The spec of a MiniGrid or BabyAI id. Raises ConfigError if there is none."""
    try:
        gymnasium.spec(rest)
    except gymnasium.error.Error as error:
        raise ConfigError(f"MiniGrid has no {rest!r}: {error}", mend="see minigrid's list of environments") from error
    return EnvSpec(
        id=f"minigrid:{rest}",
        make=lambda **options: MiniGridText(rest, **options),
        summary=f"MiniGrid's {rest} as text.",
        tasks=lambda **_: GeneratedTasks(lambda seed: {"seed": seed % 2**31}),
        instructions="You walk in a grid and see a part of it. # wall, D door, k key, o ball, b box, G goal, ~ lava, ? unseen. "
        f"Answer with one of: {', '.join(ACTIONS)}.",
        max_turns=400,
        reward_range=(0.0, 1.0),
        inline=True,
        tags=("minigrid", "grid"),
    )
