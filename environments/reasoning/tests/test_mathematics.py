"""Mathematics: equal answers in other clothes are equal, others are not, and no text holds the verifier up."""

import json
import time
from pathlib import Path
from typing import cast

import pytest

from envhub.envs import TaskStream, load_spec, make
from envhub.envs.check import check
from envhub_reasoning.mathematics import KINDS, Mathematics, final_answer, problem
from envhub_reasoning.verifier import VERIFIER


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        (r"\frac{1}{2}", "0.5", True),
        (r"\frac{1}{2}", r"\dfrac12", True),
        (r"\frac{1}{2}", "2/4", True),
        (r"\frac{1}{2}", "0.4", False),
        (r"\{-3, 5\}", r"\{5, -3\}", True),
        (r"\{-3, 5\}", r"\{5\}", False),
        (r"2\sqrt{3}", r"\sqrt{12}", True),
        (r"2\sqrt{3}", "3.46", False),
        ("-7", "-7", True),
        ("-7", "7", False),
        ("12", "x", False),
        ("12", "", False),
    ],
)
def test_answers_are_compared_as_mathematics(gold: str, answer: str, same: bool) -> None:
    assert VERIFIER.equal(gold, answer) is same


def test_every_kind_of_problem_accepts_its_answer_and_no_other() -> None:
    env = cast(Mathematics, make("reasoning/math-v1"))
    for seed in range(40):
        task = problem(seed)
        env.reset(options={"task": dict(task)})
        assert env.step(f"So it is \\boxed{{{task['answer']}}}.")[1] == 1.0, task
        env.reset(options={"task": dict(task)})
        assert env.step("\\boxed{123456789}")[1] == 0.0, task


def test_problems_worked_by_hand() -> None:
    assert KINDS[0](0) == (r"Compute $\frac{1}{2} + \frac{1}{2}$ as a reduced fraction.", "1")
    assert KINDS[1](0)[0] == "Solve $2x -30 = -30$ for $x$."
    assert KINDS[2](23 + 41 * 25) == ("Find the set of all real roots of $x^2 -8x +15 = 0$.", r"\{3, 5\}")
    assert KINDS[3](2 + 40 * 3) == ("How far is $(3, 4)$ from the origin? Give the exact value.", "5")
    assert KINDS[3](0)[1] == r"\sqrt{2}"
    assert KINDS[3](1 + 40 * 3)[1] == r"2\sqrt{5}"
    assert KINDS[4](0 + 11 * (1 + 4 * 8)) == ("Let $f(x) = 2x^3$. Compute $f'(2)$.", "24")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{1", ""),
        ("<answer>3</answer>", "3"),
        (" 4 ", "4"),
        ("\\boxed{\ud800}", "?"),
    ],
)
def test_the_last_box_counts(reply: str, answer: str) -> None:
    assert final_answer(reply) == answer


@pytest.mark.parametrize(
    "answer", ["9**9**9**9", "9^{9^{9^{9}}}", "(" * 1900, "\\frac" * 300, "\0", "1" * 1999, "factorial(10**9)"]
)
def test_no_answer_holds_the_verifier_up(answer: str) -> None:
    began = time.monotonic()
    assert VERIFIER.equal("1", answer) is False
    assert VERIFIER.equal("2", "2") is True
    assert time.monotonic() - began < 25


def test_a_file_of_problems_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"question": "1+1?", "answer": "2"}) + "\n")
    spec = load_spec("reasoning/math-v1")
    assert spec.tasks is not None
    env = cast(Mathematics, make("reasoning/math-v1", path=str(path)))
    assert env.reset(options={"task": dict(TaskStream(spec.tasks(path=str(path)), "train", 0).at(0).data)})[0] == "1+1?"
    assert env.step("$2$")[1] == 1.0


@pytest.mark.parametrize("name", ["math", "gcd"])
def test_the_environment_keeps_every_rule(name: str) -> None:
    findings = check(load_spec(f"reasoning/{name}-v1"), {})
    assert [(f.rule, f.detail) for f in findings if f.verdict == "failed"] == []
