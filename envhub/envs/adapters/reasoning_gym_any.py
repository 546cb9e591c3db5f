"""Any data set of reasoning-gym: `reasoning_gym:chain_sum`; options go to the data set, as in `--option min_terms=4`.

One question, one answer: the last <answer>...</answer> of the reply counts, or all of it where there is none. Scored by the
data set itself, 0 to 1. A few data sets give no answer that scores 1 (`NO_ANSWER`); they have no solver.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import reasoning_gym
from reasoning_gym.factory import DATASETS

from envhub.envs.core import Env, Info, StateLevel
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import GeneratedTasks
from envhub.errors import ConfigError

NO_ANSWER = frozenset({"boxnet", "composite", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"})
TAKES_NONSENSE = frozenset({"game_of_life_halting"})  # its scorer takes all but one wrong answer for right: do not train on it
_TAGGED = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.S)
LONGEST_ANSWER = 65_536


class ReasoningQuestion(Env):
    """Asks one question of a data set."""

    state_level: ClassVar[StateLevel] = StateLevel.NONE

    def __init__(self, dataset: str, **options: Any) -> None:
        """Raises ValueError if the data set refuses its options."""
        self._dataset, self._options = dataset, options
        self._asked = False
        self._draw(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Ask the task's question, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options)
        self._draw(int(task["seed"]) if task else int(self.np_random.integers(2**31)))
        self._asked = True
        return str(self._entry["question"]), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Score the answer; the episode is over. An answer that the scorer cannot take scores 0."""
        score = self._score(answer_of(action)) if self._asked else 0.0
        self._asked = False
        return "", score, True, False, {"success": score >= 1.0, "reward_parts": {"answer": score}}

    @property
    def answer(self) -> str:
        """The entry's own answer."""
        return str(self._entry["answer"])

    def _draw(self, seed: int) -> None:
        try:
            self._data = reasoning_gym.create_dataset(self._dataset, seed=seed, size=1, **self._options)
        except (AssertionError, TypeError, KeyError) as error:
            raise ValueError(f"{self._dataset}: {error}") from error
        self._entry = self._data[0]

    def _score(self, answer: str) -> float:
        try:
            score = float(self._data.score_answer(answer=answer, entry=self._entry))
        except Exception:  # scorers parse answers, and some raise on what they cannot parse
            return 0.0
        return min(max(score, 0.0), 1.0)


def answer_of(reply: str) -> str:
    """The answer in a reply."""
    text = reply[-LONGEST_ANSWER:].encode("utf-8", "replace").decode()
    found = _TAGGED.findall(text)
    return str(found[-1] if found else text).strip()


def spec(rest: str) -> EnvSpec:
    """The spec of a data set. Raises ConfigError if there is none of that name."""
    if rest not in DATASETS:
        raise ConfigError(f"reasoning-gym has no data set {rest!r}", mend=f"use one of: {', '.join(sorted(DATASETS))}")

    def tasks(**_: Any) -> GeneratedTasks:
        return GeneratedTasks(_seed)

    return EnvSpec(
        id=f"reasoning_gym:{rest}",
        make=lambda **options: ReasoningQuestion(rest, **options),
        summary=f"reasoning-gym's {rest}.",
        tasks=tasks,
        instructions="Answer the question. Write the answer alone between <answer> and </answer>.",
        max_turns=1,
        inline=True,
        tags=("reasoning", "single-turn"),
        solver=None if rest in NO_ANSWER else (lambda env: f"<answer>{env.answer}</answer>"),
    )


def _seed(seed: int) -> Mapping[str, Any]:
    return {"seed": seed % 2**31}
