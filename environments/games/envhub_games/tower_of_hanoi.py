"""The Tower of Hanoi, from any legal position: bring all discs to peg C."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, StateLevel
from envhub.envs.core import Info

_MOVE = re.compile(r"\b([ABC])\s{0,3}(?:to|->|-|>)?\s{0,3}([ABC])\b", re.IGNORECASE | re.ASCII)
_LONGEST_REPLY = 4096


class TowerOfHanoi(Env):
    """The state is a text with each disc's peg, the smallest disc first."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, discs: int = 4) -> None:
        """Play with this many discs."""
        _check(discs)
        self.discs = discs

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start from the task's position, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        self.pegs = str(task["pegs"]) if task else position(int(self.np_random.integers(2**31)), self.discs)
        return self._show(), {"anchor": self.pegs}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Make the last move that the reply names."""
        moves = _MOVE.findall(action[-_LONGEST_REPLY:])
        move = "".join(moves[-1]).upper() if moves else ""
        if self._done() or move not in {m.replace(" ", "") for m in self.legal_actions()}:
            told = f"{self._show()}\nLegal: {', '.join(self.legal_actions())}."
            return told, 0.0, self._done(), False, {"illegal": True, "anchor": self.pegs}
        disc = self.pegs.index(move[0])
        self.pegs = self.pegs[:disc] + move[1] + self.pegs[disc + 1 :]
        return self._show(), float(self._done()), self._done(), False, {"anchor": self.pegs, "success": self._done()}

    def legal_actions(self) -> tuple[str, ...]:
        """Moves of a top disc onto a larger one or an empty peg."""
        if self._done():
            return ()
        tops = {peg: self.pegs.find(peg) % (self.discs + 1) for peg in "ABC"}
        return tuple(f"{a} {b}" for a in "ABC" for b in "ABC" if a != b and tops[a] < self.discs and tops[a] < tops[b])

    def _done(self) -> bool:
        return set(self.pegs) == {"C"}

    def _show(self) -> str:
        stacks = {peg: [str(d + 1) for d in reversed(range(self.discs)) if self.pegs[d] == peg] for peg in "ABC"}
        return "\n".join(f"{peg}: {' '.join(stack)}".rstrip() for peg, stack in stacks.items())


def best_move(pegs: str, goal: str = "C") -> tuple[str, str]:
    """The first move of the shortest solution: where the largest disc must go, the smaller ones make way."""
    for disc in reversed(range(len(pegs))):
        if pegs[disc] != goal:
            source, target = pegs[disc], goal
            spare = next(p for p in "ABC" if p not in (source, target))
            if all(peg == spare for peg in pegs[:disc]):
                return source, target
            return best_move(pegs[:disc], spare)
    raise ValueError("solved already")


def solve(env: TowerOfHanoi) -> str:
    """The next move of the shortest solution."""
    return " ".join(best_move(env.pegs))


def position(seed: int, discs: int) -> str:
    """A position that is not the solved one."""
    pegs = "".join("ABC"[seed // 3**d % 3] for d in range(discs))
    return pegs if set(pegs) != {"C"} else "A" * discs


def tasks(*, discs: int = 4) -> GeneratedTasks:
    """Positions; one belongs to one split only."""
    _check(discs)

    def draw(seed: int) -> Mapping[str, Any]:
        return {"pegs": position(seed, discs)}

    return GeneratedTasks(draw)


def _check(discs: int) -> None:
    if not 3 <= discs <= 5:
        raise ValueError(f"discs {discs} must be 3 to 5, or the way is longer than an episode")


SPEC = EnvSpec(
    id="game/TowerOfHanoi-v1",
    make=TowerOfHanoi,
    tasks=tasks,
    instructions="Bring all discs to peg C, never one onto a smaller one. Answer with two pegs: A C moves A's top disc to C.",
    max_turns=60,
    success_reward=1.0,
    inline=True,
    solver=solve,
    baselines={"random": 0.15, "solver": 1.0},
)
