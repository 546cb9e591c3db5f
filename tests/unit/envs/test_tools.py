"""Tools: schemas from signatures, bad calls answered in words, bugs not hidden."""

from collections.abc import Mapping
from typing import Any, Literal

import pytest
from gymnasium.utils.env_checker import check_env

from envhub.envs.core import Info
from envhub.envs.parsers import Call
from envhub.envs.tools import MAX_RESULT_CHARS, Tool, ToolBox, ToolEnv, ToolError, tool
from envhub.errors import ConfigError


def look(where: str, count: int = 3, order: Literal["up", "down"] = "up") -> str:
    """Look somewhere.

    Longer words that only people read.

    Args:
        where: the place.
        count (int): how often.
    """
    if where == "nowhere":
        raise ToolError("there is nothing")
    if where == "bug":
        raise RuntimeError("a bug")
    return f"{where} {count} {order}"


def test_a_function_becomes_a_schema() -> None:
    function = Tool.of(look).schema()["function"]
    assert (function["name"], function["description"]) == ("look", "Look somewhere.")
    properties = function["parameters"]["properties"]
    assert properties["where"] == {"title": "Where", "type": "string", "description": "the place."}
    assert properties["count"]["description"] == "how often."
    assert properties["order"]["enum"] == ["up", "down"]
    assert function["parameters"]["required"] == ["where"]


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("look", {"where": "up", "count": "2"}, "up 2 up"),
        ("lok", {}, "error: no tool 'lok'; there are: look"),
        ("look", {}, "error: look: where: Missing required argument"),
        ("look", {"where": "x", "count": "many"}, "error: look: count: Input should be a valid integer"),
        ("look", {"where": "x", "order": "left"}, "error: look: order: Input should be 'up' or 'down'"),
        ("look", {"where": "x", "zzz": 1}, "error: look: zzz: Unexpected keyword argument"),
        ("look", {"where": "nowhere"}, "error: look: there is nothing"),
    ],
)
def test_a_call_is_answered_in_words(name: str, arguments: Mapping[str, Any], text: str) -> None:
    result = ToolBox([look]).call(Call(name, arguments))
    assert result.text.startswith(text)
    assert result.ok == (not text.startswith("error"))


def test_a_bug_in_a_tool_is_not_the_policys_mistake() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        ToolBox([look]).call(Call("look", {"where": "bug"}))


def test_a_long_result_is_cut_and_says_so() -> None:
    text = ToolBox([look]).call(Call("look", {"where": "x" * 10_000})).text
    assert len(text) < MAX_RESULT_CHARS + 50
    assert text.endswith("characters left out]")


def test_untyped_or_undocumented_functions_are_refused() -> None:
    def untyped(a) -> None:  # type: ignore[no-untyped-def]
        """Do."""

    def silent(a: int) -> None: ...

    for wrong, part in ((untyped, "arguments without types: a"), (silent, "no docstring")):
        with pytest.raises(ConfigError, match=part):
            Tool.of(wrong)
    with pytest.raises(ConfigError, match="one name"):
        ToolBox([look, look])


class Counter(ToolEnv):
    """Count to the task's number."""

    def begin(self, task: Mapping[str, Any] | None) -> str:
        self.count, self.goal = 0, (task or {"goal": 2})["goal"]
        return f"Count to {self.goal}."

    def finish(self, answer: str) -> tuple[float, Info]:
        solved = answer == str(self.goal) and self.count == self.goal
        return float(solved), {"success": solved}

    @tool
    def add(self, number: int) -> int:
        """Add a number."""
        self.count += number
        return self.count

    @tool
    def stop(self) -> str:
        """End the episode."""
        self.done = True
        return "ended"


def test_calls_change_the_episodes_own_state() -> None:
    one, two = Counter(), Counter()
    one.reset(options={"task": {"goal": 3}})
    two.reset(options={"task": {"goal": 3}})
    call = '<tool_call>{"name": "add", "arguments": {"number": %d}}</tool_call>'
    assert one.step(call % 1 + call % 2)[:2] == ("1\n3", 0.0)
    assert two.step(call % 5)[0] == "5"
    assert one.step("3") == ("", 1.0, True, False, {"success": True})
    assert one.step("3")[1:3] == (0.0, True)
    assert two.step("<tool_call>{")[4] == {"illegal": True}


def test_a_tool_may_end_the_episode() -> None:
    env = Counter()
    env.reset()
    observation, reward, terminated, *_ = env.step('<tool_call>{"name": "stop"}</tool_call>')
    assert (observation, reward, terminated) == ("ended", 0.0, True)


def test_gymnasiums_check_passes_and_the_tools_are_told() -> None:
    check_env(Counter(), skip_render_check=True)
    assert [s["function"]["name"] for s in Counter.toolbox().schemas()] == ["add", "stop"]
    assert "<tool_call>" in Counter.toolbox().explain("hermes")


def test_results_are_bounded_and_can_be_encoded() -> None:
    class Echo(Counter):
        @tool
        def say(self, text: str) -> str:
            """Say it."""
            return text

    env = Echo()
    env.reset()
    call = '<tool_call>{"name": "say", "arguments": {"text": "%s"}}</tool_call>'
    assert env.step(call % "\\ud800")[0] == "?"
    assert env.step('<tool_call>{"name": "\\ud800", "arguments": 3}</tool_call>')[0].encode()
    long = env.step(call % ("x" * 8000) * 30)[0]
    assert len(long) < 33_000
    assert long.endswith("characters left out]")
