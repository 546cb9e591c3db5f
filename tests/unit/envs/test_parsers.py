"""Every call format reads what its models write, and answers anything else without raising."""

import json
import keyword
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envhub.envs.parsers import MOST_CALLS, STYLES, Call, Parsed, parse

F, G = Call("f", {"a": 1}), Call("g", {})


@pytest.mark.parametrize(
    ("style", "reply", "wanted"),
    [
        ("hermes", 'Hm.<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', Parsed("Hm.", (F,))),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><tool_call>{"name": "g"}', Parsed("", (F, G))),
        ("hermes", '<think><tool_call>{"name": "no"}</tool_call></think>yes', Parsed("yes")),
        (
            "hermes",
            '<tool_call>{"name": "f", "arguments": {"a": "</tool_call><tool_call>"}}</tool_call>!',
            Parsed("!", (Call("f", {"a": "</tool_call><tool_call>"}),)),
        ),
        ("llama", "{1, 2} is the set", Parsed("{1, 2} is the set")),
        ("llama", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g"}<|eom_id|>', Parsed("", (F, G))),
        ("llama", "I need no tool.", Parsed("I need no tool.")),
        ("pythonic", "[f(a=1), g()]", Parsed("", (F, G))),
        ("mistral", 'Hm.[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]</s>', Parsed("Hm.", (F, G))),
        ("mistral", '[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', Parsed("", (F, G))),
        (
            "openai",
            '{"content": "Hm.", "tool_calls": [{"id": "7", "function": {"name": "f", "arguments": "{\\"a\\": 1}"}}]}',
            Parsed("Hm.", (Call("f", {"a": 1}, "7"),)),
        ),
        ("react", 'Thought: x\nAction: f\nAction Input: {"a": 1}', Parsed("Thought: x", (F,))),
        ("react", "Action: look[the moon]", Parsed("", (Call("look", {"input": "the moon"}),))),
        ("react", "Thought: done\nFinal Answer: 42\n", Parsed("Thought: done", answer="42")),
        ("react", "Action: g\nAction Input: {}\nObservation: 5\nFinal Answer: 5", Parsed("", (G,))),
        ("xml", "<think><answer>no</answer></think><answer>1</answer><answer>42</answer>", Parsed("", answer="42")),
        ("xml", "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>", Parsed("", (F,))),
    ],
)
def test_a_format_is_read(style: str, reply: str, wanted: Parsed) -> None:
    assert parse(reply, style) == wanted


@pytest.mark.parametrize(
    ("style", "reply", "problem"),
    [
        ("hermes", '<tool_call>{"name": "f", "arguments": NaN}</tool_call>', "NaN is no JSON"),
        ("hermes", '<tool_call>{"name": 5}</tool_call>', 'a call is {"name": ...'),
        ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "must be a JSON object"),
        ("hermes", "<tool_call>" + "[" * 100_000, "nested too deep"),
        ("llama", '{"name": "f"', "no JSON"),
        ("pythonic", "[f(open('x'))]", "write calls as"),
        ("pythonic", "[f(x) for x in y]", "write calls as"),
        ("pythonic", "[f(a=open('x'))]", "cannot be read"),
        ("pythonic", "[f(a=" + "(" * 5000 + ")]", "cannot be read"),
        ("mistral", '[TOOL_CALLS] [{"name": "f"}] and more', "nothing else"),
        ("openai", '{"tool_calls": {"a": 1}}', "must be a list"),
        ("openai", '{"tool_calls": ["x"]}', "needs a function"),
        ("react", "Action: f", "Action Input"),
        ("xml", "<function=f>stray</function>", "stray"),
    ],
)
def test_a_malformed_call_is_a_problem_and_no_call(style: str, reply: str, problem: str) -> None:
    found = parse(reply, style)
    assert found.calls == ()
    assert problem in found.problems[0]
    assert len(found.problems[0]) < 250


def test_a_flood_of_calls_is_refused() -> None:
    found = parse('<tool_call>{"name": "f"}</tool_call>' * (MOST_CALLS + 1), "hermes")
    assert (found.calls, found.problems) == ((), ("over 32 calls in one reply",))


_PIECES = [
    "<tool_call>", "</tool_call>", '{"name": "f"', '"arguments": {', "}", "]", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>",
    ";", "[f(", "a=1", ")]", "Action:", "Action Input:", "Final Answer:", "Observation:", "\n", "<function=f>",
    "<parameter=a>", "</parameter>", "</function>", "<answer>", "</answer>", "<think>", '{"tool_calls": [', "\0",
    "\ud800", "\\u", "1e999", "9" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=300, deadline=None)
@given(reply=st.lists(st.sampled_from(_PIECES) | st.text(max_size=5), max_size=12).map("".join))
def test_no_text_makes_a_parser_raise(style: str, reply: str) -> None:
    found = parse(reply, style)
    assert all(isinstance(call.name, str) and isinstance(call.arguments, dict) for call in found.calls)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=3),
    max_leaves=8,
)
_CALL = st.builds(
    Call,
    st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name)),
    st.dictionaries(st.text("abc", min_size=1), _JSON, max_size=3),
)


def _write(style: str, calls: list[Call]) -> str:
    plain: list[dict[str, Any]] = [{"name": c.name, "arguments": dict(c.arguments)} for c in calls]
    match style:
        case "hermes":
            return "".join(f"<tool_call>{json.dumps(c)}</tool_call>" for c in plain)
        case "llama":
            return "; ".join(json.dumps({"name": c["name"], "parameters": c["arguments"]}) for c in plain)
        case "pythonic":
            texts = [f"{c.name}({', '.join(f'{k}={v!r}' for k, v in c.arguments.items())})" for c in calls]
            return f"[{', '.join(texts)}]"
        case "mistral":
            return f"[TOOL_CALLS]{json.dumps(plain)}"
        case _:
            functions = [{"function": {"name": c["name"], "arguments": json.dumps(c["arguments"])}} for c in plain]
            return json.dumps({"tool_calls": functions})


@pytest.mark.parametrize("style", ["hermes", "llama", "pythonic", "mistral", "openai"])
@settings(max_examples=100, deadline=None)
@given(calls=st.lists(_CALL, min_size=1, max_size=4))
def test_what_is_written_is_read_back(style: str, calls: list[Call]) -> None:
    assert list(parse(_write(style, calls), style).calls) == calls
