"""Sokoban: push every box onto a goal. Levels are drawn by pulling boxes away from their goals, so each can be solved."""

import random
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_WORD = re.compile(r"\b(left|down|right|up)\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096
PENALTY, PLACED, SOLVED = -0.01, 0.1, 1.0
Cell = tuple[int, int]


class Sokoban(Env):
    """Signs: # wall, @ player, + player on a goal, $ box, * box on a goal, . goal."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, size: int = 6, boxes: int = 1, pulls: int = 12) -> None:
        """Draw rooms of `size` by `size` with this many boxes, each scrambled by `pulls` steps."""
        _check(size, boxes, pulls)
        self._size, self._boxes_wanted, self._pulls = size, boxes, pulls
        self._placed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start the task's level, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options) or level(int(self.np_random.integers(2**31)), self._size, self._boxes_wanted, self._pulls)
        self._read(task["level"])
        return self._show(), {"anchor": self._anchor()}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Walk or push by the last move that the reply names."""
        if self._solved():
            return self._show(), 0.0, True, False, {"illegal": True, "anchor": self._anchor()}
        words = _WORD.findall(action[-_LONGEST_REPLY:])
        moved = bool(words) and self._move(*MOVES[words[-1].lower()])
        placed = len(self._boxes & self._goals)
        reward = PENALTY + PLACED * (placed - self._placed)
        self._placed = placed
        solved = self._solved()
        parts = {"step": PENALTY, "placed": reward - PENALTY, "solved": SOLVED * solved}
        info: Info = {"anchor": self._anchor(), "reward_parts": parts, "success": solved}
        if not moved:
            info["illegal"] = True
        shown = self._show() if words else f"{self._show()}\nSay one of: up, down, left, right."
        return shown, reward + SOLVED * solved, solved, False, info

    def legal_actions(self) -> tuple[str, ...]:
        """Moves that would move the player."""
        return tuple(name for name, step in MOVES.items() if self._can(*step))

    def _read(self, rows: list[str]) -> None:
        cells = [((r, c), sign) for r, row in enumerate(rows) for c, sign in enumerate(row)]
        self._width, self._height = len(rows[0]), len(rows)
        self._walls = {cell for cell, sign in cells if sign == "#"}
        self._goals = {cell for cell, sign in cells if sign in ".*+"}
        self._boxes = {cell for cell, sign in cells if sign in "$*"}
        self._player = next(cell for cell, sign in cells if sign in "@+")
        self._placed = len(self._boxes & self._goals)

    def _can(self, down: int, right: int) -> bool:
        ahead = (self._player[0] + down, self._player[1] + right)
        beyond = (ahead[0] + down, ahead[1] + right)
        return ahead not in self._walls and (ahead not in self._boxes or beyond not in self._walls | self._boxes)

    def _move(self, down: int, right: int) -> bool:
        if not self._can(down, right):
            return False
        self._player = (self._player[0] + down, self._player[1] + right)
        if self._player in self._boxes:
            self._boxes.remove(self._player)
            self._boxes.add((self._player[0] + down, self._player[1] + right))
        return True

    def _solved(self) -> bool:
        return self._boxes == self._goals

    def _anchor(self) -> str:
        return f"{self._player}{sorted(self._boxes)}"

    def _sign(self, cell: Cell) -> str:
        if cell == self._player:
            return "+" if cell in self._goals else "@"
        if cell in self._boxes:
            return "*" if cell in self._goals else "$"
        return "." if cell in self._goals else "#" if cell in self._walls else " "

    def _show(self) -> str:
        return "\n".join("".join(self._sign((r, c)) for c in range(self._width)) for r in range(self._height))


def level(seed: int, size: int, boxes: int, pulls: int) -> dict[str, list[str]]:
    """A solvable level: boxes start on their goals and are pulled away at random."""
    chance = random.Random(seed)
    while True:
        inner = [(r, c) for r in range(1, size - 1) for c in range(1, size - 1)]
        walls = {cell for cell in inner if chance.random() < 0.1}
        floor = [cell for cell in inner if cell not in walls]
        if len(floor) < boxes + 2:
            continue
        goals = set(chance.sample(floor, boxes))
        found = _pull_away(goals, set(floor), pulls, chance)
        if found is not None:
            player, placed = found
            return {"level": _draw(size, set(floor), goals, placed, player)}


def _pull_away(goals: set[Cell], floor: set[Cell], pulls: int, chance: random.Random) -> tuple[Cell, set[Cell]] | None:
    boxes = set(goals)
    free = sorted(floor - boxes)
    player = chance.choice(free)
    for _ in range(pulls * 4):
        down, right = chance.choice(list(MOVES.values()))
        target, behind = (player[0] + down, player[1] + right), (player[0] - down, player[1] - right)
        if target not in floor or target in boxes:
            continue
        if behind in boxes and chance.random() < 0.8:
            boxes.remove(behind)
            boxes.add(player)
        player = target
    return None if boxes & goals else (player, boxes)


def _draw(size: int, floor: set[Cell], goals: set[Cell], boxes: set[Cell], player: Cell) -> list[str]:
    def sign(cell: Cell) -> str:
        if cell == player:
            return "+" if cell in goals else "@"
        if cell in boxes:
            return "$"
        return "." if cell in goals else " " if cell in floor else "#"

    return ["".join(sign((r, c)) for c in range(size)) for r in range(size)]


def solve(rows: list[str]) -> list[str]:
    """A shortest solution by breadth-first search; small levels only."""
    game = Sokoban()
    game._read(rows)
    start = (game._player, frozenset(game._boxes))
    queue: deque[tuple[tuple[Cell, frozenset[Cell]], list[str]]] = deque([(start, [])])
    seen = {start}
    while queue:
        (player, boxes), path = queue.popleft()
        if boxes == game._goals:
            return path
        for name, step in MOVES.items():
            game._player, game._boxes = player, set(boxes)
            if game._move(*step):
                state = (game._player, frozenset(game._boxes))
                if state not in seen:
                    seen.add(state)
                    queue.append((state, [*path, name]))
    raise ValueError("the level has no solution")


def tasks(*, size: int = 6, boxes: int = 1, pulls: int = 12) -> GeneratedTasks:
    """Random levels; a level belongs to one split only."""
    _check(size, boxes, pulls)

    def draw(seed: int) -> Mapping[str, Any]:
        return level(seed, size, boxes, pulls)

    return GeneratedTasks(draw)


def _check(size: int, boxes: int, pulls: int) -> None:
    if not 5 <= size <= 12 or not 1 <= boxes <= size - 4 or not 4 <= pulls <= 200:
        raise ValueError(f"size {size} must be 5 to 12, boxes {boxes} 1 to size - 4, pulls {pulls} 4 to 200")


SPEC = EnvSpec(
    id="game/Sokoban-v1",
    make=Sokoban,
    tasks=tasks,
    instructions=(
        "You are @ in a room with walls #. Push every box $ onto a goal . by walking into it. Boxes cannot be pulled. "
        "Answer with one word: up, down, left or right."
    ),
    max_turns=60,
    reward_range=(-0.7, 1.8),
    solver=lambda env: solve(env._show().splitlines())[0],
    inline=True,
    baselines={"random": 0.35, "solver": 1.0},
)
