"""Mathematics with exact answers: problems made from a seed or read from a file; math-verify compares answers."""

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

from envhub.envs import Env, EnvSpec, GeneratedTasks, TaskSet
from envhub.envs.core import Info, StateLevel
from envhub.envs.task_files import tasks_from
from envhub_reasoning.questions import extract
from envhub_reasoning.verifier import VERIFIER

GUESSES = 40
_BOXED = re.compile(r"\\boxed\s*\{")


class Mathematics(Env):
    """Asks once. What counts of a reply is its last \\boxed{...}, else its last <answer>...</answer>, else all of it."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, path: str = "") -> None:
        """Where the tasks come from does not concern the asking."""
        del path

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Ask the task's question, or one drawn from the seed."""
        super().reset(seed=seed)
        task = self.task_of(options) or problem(int(self.np_random.integers(2**31)))
        self.question, self.answer, self.asked = str(task["question"]), str(task["answer"]), True
        return self.question, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Score the answer; the episode is over."""
        right = self.asked and VERIFIER.equal(self.answer, final_answer(action))
        self.asked = False
        return "", float(right), True, False, {"success": right, "reward_parts": {"answer": float(right)}}

    def legal_actions(self) -> tuple[str, ...]:
        """What one who only knows the kinds of problems may guess: the answers of other problems."""
        return tuple(f"\\boxed{{{problem(seed)['answer']}}}" for seed in range(GUESSES))


def final_answer(reply: str) -> str:
    """The part of a reply that is its answer."""
    text = reply[-65_536:]
    boxes = list(_BOXED.finditer(text))
    if not boxes:
        return extract(text)
    depth, start = 1, boxes[-1].end()
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start:place].encode("utf-8", "replace").decode()
    return ""


def problem(seed: int) -> Mapping[str, Any]:
    """A problem of one of the kinds below."""
    kind, rest = seed % len(KINDS), seed // len(KINDS)
    question, answer = KINDS[kind](rest)
    return {"question": question, "answer": answer}


def _latex(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return str(value) if value.denominator == 1 else f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _digits(seed: int, *spans: tuple[int, int]) -> list[int]:
    found = []
    for low, high in spans:
        found.append(low + seed % (high - low + 1))
        seed //= high - low + 1
    return found


def _sum_of_fractions(seed: int) -> tuple[str, str]:
    a, b, c, d = _digits(seed, (1, 20), (2, 12), (1, 20), (2, 12))
    return f"Compute $\\frac{{{a}}}{{{b}}} + \\frac{{{c}}}{{{d}}}$ as a reduced fraction.", _latex(
        Fraction(a, b) + Fraction(c, d)
    )


def _linear(seed: int) -> tuple[str, str]:
    a, b, c = _digits(seed, (2, 19), (-30, 30), (-30, 30))
    return f"Solve ${a}x {b:+d} = {c}$ for $x$.", _latex(Fraction(c - b, a))


def _quadratic(seed: int) -> tuple[str, str]:
    p, q = _digits(seed, (-20, 20), (-20, 20))
    roots = f"\\{{{p}\\}}" if p == q else f"\\{{{min(p, q)}, {max(p, q)}\\}}"
    return f"Find the set of all real roots of $x^2 {-p - q:+d}x {p * q:+d} = 0$.", roots


def _distance(seed: int) -> tuple[str, str]:
    a, b = _digits(seed, (1, 40), (1, 40))
    square = a * a + b * b
    outer = max(k for k in range(1, math.isqrt(square) + 1) if square % (k * k) == 0)
    inner = square // (outer * outer)
    root = str(outer) if inner == 1 else f"{'' if outer == 1 else outer}\\sqrt{{{inner}}}"
    return f"How far is $({a}, {b})$ from the origin? Give the exact value.", root


def _derivative(seed: int) -> tuple[str, str]:
    a, n, x = _digits(seed, (2, 12), (2, 5), (-6, 6))
    return f"Let $f(x) = {a}x^{n}$. Compute $f'({x})$.", str(a * n * x ** (n - 1))


KINDS: tuple[Callable[[int], tuple[str, str]], ...] = (_sum_of_fractions, _linear, _quadratic, _distance, _derivative)


def tasks(*, path: str = "") -> TaskSet:
    """Generated problems; with `path`, those of a file or folder whose rows hold "question" and "answer" (LaTeX or plain)."""
    return tasks_from(path) if path else GeneratedTasks(problem)


SPEC = EnvSpec(
    id="reasoning/math-v1",
    make=Mathematics,
    tasks=tasks,
    instructions="Solve the problem. Put the final answer alone into \\boxed{...}.",
    max_turns=1,
    solver=lambda env: f"\\boxed{{{env.answer}}}",
    baselines={"solver": 1.0},
)
