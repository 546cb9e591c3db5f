"""One question, one answer: every question is made from its seed and scored by reasoning-gym."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import reasoning_gym

from envhub.envs import Env, EnvSpec, GeneratedTasks
from envhub.envs.core import Info

OPEN, CLOSE = "<answer>", "</answer>"
_LONGEST_ANSWER = 4096
GUESSES = 8
_NUMBER = re.compile(r"(?<![0-9.])-?[0-9]+(?:\.[0-9]+)?")
Untagged = Literal["whole", "last_number"]


class Question(Env):
    """Asks once; the reply's last <answer>...</answer> counts, or the whole reply where there is none."""

    def __init__(self, dataset: str, *, untagged: Untagged = "whole", **config: Any) -> None:
        """Ask questions of a reasoning-gym dataset, made with its own `config`.

        `untagged` says what counts in a reply without tags: the "whole" of it, or its "last_number".
        """
        if untagged not in ("whole", "last_number"):
            raise ValueError(f"untagged={untagged!r}")
        self._dataset, self._untagged, self._config = dataset, untagged, config
        self._draw({"seed": 0})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Ask the task's question, or one drawn from the seed."""
        super().reset(seed=seed)
        self._draw(self.task_of(options) or {"seed": int(self.np_random.integers(2**31))})
        self._done = False
        return str(self._entry["question"]), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Score the answer; the episode is over."""
        answer = extract(action, untagged=self._untagged)
        score = 0.0 if self._done else float(self._scorer.score_answer(answer=answer, entry=self._entry))
        self._done = True
        return "", score, True, False, {"success": score >= 1.0, "reward_parts": {"answer": score}}

    def legal_actions(self) -> tuple[str, ...]:
        """What one who only knows the kind of question may guess: the answers of other questions."""
        seed = int(self._scorer.seed) + 1
        others = reasoning_gym.create_dataset(self._dataset, seed=seed, size=GUESSES, **self._config)
        return tuple(f"{OPEN}{entry['answer']}{CLOSE}" for entry in others)

    @property
    def answer(self) -> str:
        """The question's own answer."""
        return str(self._entry["answer"])

    def _draw(self, task: Mapping[str, Any]) -> None:
        self._scorer = reasoning_gym.create_dataset(self._dataset, seed=int(task["seed"]), size=1, **self._config)
        self._entry = self._scorer[0]


def extract(reply: str, *, untagged: Untagged = "whole") -> str:
    """The last tagged answer of a reply; without tags all of it, or its last number."""
    text = reply.encode("utf-8", "replace").decode()
    if CLOSE in text and OPEN in text[: text.rindex(CLOSE)]:
        end = text.rindex(CLOSE)
        text = text[text.rindex(OPEN, 0, end) + len(OPEN) : end]
    elif untagged == "last_number":
        numbers = _NUMBER.findall(text[-_LONGEST_ANSWER:])
        text = numbers[-1] if numbers else ""
    return text.strip()[:_LONGEST_ANSWER]


def tasks(dataset: str, *, untagged: Untagged = "whole", **config: Any) -> GeneratedTasks:
    """Questions by seed; a seed belongs to one split only. `untagged` concerns answers, not questions."""
    del untagged
    return GeneratedTasks(lambda seed: {"dataset": dataset, "seed": seed % 2**31, **config})


def _spec(dataset: str) -> EnvSpec:
    return EnvSpec(
        id=f"reasoning/{dataset}-v1",
        make=partial(Question, dataset),
        tasks=partial(tasks, dataset),
        instructions=f"Answer the question. Write the answer alone between {OPEN} and {CLOSE}.",
        max_turns=1,
        inline=True,
        solver=lambda env: f"{OPEN}{env.answer}{CLOSE}",
    )


BASIC_ARITHMETIC = _spec("basic_arithmetic")
CHAIN_SUM = _spec("chain_sum")
GCD = _spec("gcd")
LEG_COUNTING = _spec("leg_counting")
SPELL_BACKWARD = _spec("spell_backward")
