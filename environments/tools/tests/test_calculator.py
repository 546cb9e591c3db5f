"""The calculator is exact and safe; answers are compared as numbers."""

from fractions import Fraction
from typing import cast

import pytest

from envhub.envs import make
from envhub.envs.tools import ToolError
from envhub_tools.arithmetic import MOST_BITS, evaluate, show
from envhub_tools.calculator import Calculator, number
from envhub_tools.problems import KINDS, problem


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1+2*3", "7"),
        ("(1 + 2) * 3", "9"),
        ("2**3**2", "512"),
        ("2^10", "1024"),
        ("-2**2", "-4"),
        ("-(-3)", "3"),
        ("7//2", "3"),
        ("-7//2", "-4"),
        ("-7%5", "3"),
        ("1/3+1/6", "1/2"),
        ("0.1+0.2", "3/10"),
        (".5*5.", "5/2"),
        ("2**-2", "1/4"),
        ("99999999999999999999*99999999999999999999", "9999999999999999999800000000000000000001"),
        ("6\u00d77\u22122", "40"),
        ("1**" + "9" * 300, "1"),
    ],
)
def test_an_expression_has_its_exact_value(expression: str, value: str) -> None:
    assert evaluate(expression) == Fraction(value)


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("", "write numbers"),
        ("abs(-1)", "write numbers"),
        ("__import__('os')", "write numbers"),
        ("1 if 1 else 2", "write numbers"),
        ("1,2", "write numbers"),
        ("1e9", "write numbers"),
        ("\ud800", "write numbers"),
        ("1\0+1", "write numbers"),
        ("\uff11+1", "write numbers"),
        ("()", "write numbers"),
        ("2(3)", "write numbers"),
        ("1.2.3", "write numbers"),
        (".", "no expression"),
        ("1+", "no expression"),
        ("007", "no expression"),
        ("1\n2", "no expression"),
        ("(" * 200 + ")" * 200, "write numbers"),
        ("1/0", "division by zero"),
        ("1//(2-2)", "division by zero"),
        ("0**-1", "division by zero"),
        ("2**(1/2)", "integers"),
        ("9**9**9", f"over {MOST_BITS} bits"),
        ("2**-99999999", f"over {MOST_BITS} bits"),
        ("(2**4000)*(2**4000)", f"over {MOST_BITS} bits"),
        ("1" * 401, "over 400 characters"),
    ],
)
def test_what_is_no_arithmetic_is_refused_in_words(expression: str, part: str) -> None:
    with pytest.raises(ToolError, match=part):
        evaluate(expression)


def test_minus_signs_nested_to_the_limit_do_not_break_it() -> None:
    assert evaluate("-" * 398 + "1") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [("7", "7"), ("-5/4", "-5/4 (= -1.25)"), ("1/3", "1/3 (about 0.3333333333)"), ("-2/3", "-2/3 (about -0.6666666667)")],
)
def test_a_value_is_shown_exactly_and_as_a_decimal(value: str, text: str) -> None:
    assert show(Fraction(value)) == text


def test_a_value_at_the_size_limit_can_be_shown() -> None:
    assert show(evaluate("1/3**2584")).startswith("1/")


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ("<answer>1,234,567</answer>", "1234567"),
        ("<answer> 5/4 </answer>", "5/4"),
        ("<answer>1.25</answer>", "5/4"),
        ("First 3, then the total is 1,234.", "1234"),
        ("\u22125", "-5"),
    ],
)
def test_an_answer_is_read_as_a_number(reply: str, value: str) -> None:
    assert number(reply) == Fraction(value)


@pytest.mark.parametrize(
    "reply", ["", "none", "<answer>3 or 4</answer>", "<answer></answer> 3", "<answer>3/0</answer>", "<answer>1e3</answer>"]
)
def test_what_is_no_single_number_is_no_answer(reply: str) -> None:
    assert number(reply) is None


def test_every_kind_of_problem_is_drawn_and_ends_in_its_answer() -> None:
    kinds = set()
    for seed in range(60):
        task = problem(seed)
        kinds.add(str(task["question"]).split()[-4])
        assert evaluate(task["steps"][-1]) == Fraction(task["answer"])
        assert len(task["steps"]) >= 3
    assert len(kinds) >= len(KINDS) - 1


def test_a_problem_by_hand() -> None:
    env = cast(Calculator, make("tool/Calculator-v1"))
    question = "How much is 12 times 12, less 4?"
    task = {"question": question, "steps": ["12*12", "144-4"], "answer": "140"}
    observation, info = env.reset(options={"task": task})
    assert observation.endswith(question)
    assert info["anchor"] == "open: "
    observation, reward, terminated, _, info = env.step(
        env.call("calculate", expression="12*12") + env.call("calculate", expression="x")
    )
    assert observation.splitlines()[0] == "144"
    assert observation.splitlines()[1].startswith("error: calculate: write numbers")
    assert (reward, terminated, info) == (0.0, False, {"illegal": True, "anchor": "open: 144"})
    _, reward, terminated, _, info = env.step("It is 140.")
    assert (reward, terminated, info["success"], info["reward_parts"]) == (1.0, True, True, {"answer": 1.0})
    assert env.step("140")[:3] == ("The episode is over.", 0.0, True)
