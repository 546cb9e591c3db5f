"""Calculator: word problems whose numbers are too big for the head; the answer must be exact."""

import re
from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from envhub.envs import EnvSpec, GeneratedTasks
from envhub.envs.core import Info
from envhub.envs.tools import tool
from envhub_tools.arithmetic import evaluate, show
from envhub_tools.problems import problem
from envhub_tools.question import ToolQuestion
from envhub_tools.styles import checked_style, tagged_answer

_NUMBER = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,400}|\s?/\s?[0-9]{1,400})?")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")


class Calculator(ToolQuestion):
    """A word problem; the reply's tagged answer counts, or without a tag its last number."""

    def begin(self, task: Mapping[str, Any] | None) -> str:
        """Ask the task's question, or one drawn from the seed."""
        self.task = dict(problem(int(self.np_random.integers(2**62))) if task is None else task)
        self.results: list[str] = []
        return str(self.task["question"])

    def finish(self, answer: str) -> tuple[float, Info]:
        """1 for the exact value, written as an integer, a fraction or a decimal."""
        right = number(answer) == Fraction(self.task["answer"])
        return float(right), {"success": right, "reward_parts": {"answer": float(right)}}

    def anchor(self) -> str:
        """The results so far."""
        return f"{'over' if self.done else 'open'}: {' '.join(self.results)}"

    @tool
    def calculate(self, expression: str) -> str:
        """Evaluate an arithmetic expression exactly.

        Args:
            expression: numbers with + - * / // % ** and parentheses, such as (12+3)*4/5; fractions stay exact.
        """
        value = evaluate(expression)
        self.results = [*self.results[-31:], str(value)]
        return show(value)

    def legal_actions(self) -> tuple[str, ...]:
        """Calculations with the question's numbers, and the last result as an answer."""
        numbers = re.findall("[0-9]+", self.task["question"])
        sums = [f"{a}{sign}{b}" for a, b in pairwise(numbers) for sign in "+*"]
        return (*(self.call("calculate", expression=text) for text in sums), self.reply((self.results or ["unknown"])[-1]))

    def solve(self) -> str:
        """The task's next calculation, or its answer once all are done."""
        done, steps = len(self.results), self.task["steps"]
        return self.call("calculate", expression=steps[done]) if done < len(steps) else self.reply(self.task["answer"])


def number(reply: str) -> Fraction | None:
    """The number that an answer is: all of a tagged one, the last number of another."""
    text, tagged = tagged_answer(reply)
    text = _THOUSANDS.sub("", text.replace("\u2212", "-"))
    found = [_NUMBER.fullmatch(text.strip("$ .\n"))] if tagged else list(_NUMBER.finditer(text))
    if not found or found[-1] is None:
        return None
    try:
        return Fraction(re.sub(r"\s", "", found[-1][0]))
    except ZeroDivisionError:
        return None


def tasks(*, style: str = "hermes") -> GeneratedTasks:
    """Problems by seed; the style of calls does not concern them."""
    checked_style(style)
    return GeneratedTasks(problem)


SPEC = EnvSpec(
    id="tool/Calculator-v1",
    make=Calculator,
    tasks=tasks,
    instructions=(
        "Solve the problem. Calculate with the tool; it is exact. When you know the answer, reply without a call and write the "
        "exact number alone between <answer> and </answer>, as an integer, a fraction a/b or a decimal."
    ),
    max_turns=16,
    success_reward=1.0,
    inline=True,
    baselines={"random": 0.0, "solver": 1.0},
    solver=Calculator.solve,
    tools=Calculator.toolbox().schemas(),
)
