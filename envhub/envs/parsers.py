"""Tool calls out of a model's text, in the formats that models are trained to write.

A parser is a pure function from a reply to `Parsed` and never raises: what it cannot read becomes a problem, which the
environment shows to the policy. Formats:

    hermes    <tool_call>{"name": "f", "arguments": {...}}</tool_call>                       Hermes 2 Pro, Qwen 2.5 and 3
    llama     <|python_tag|>{"name": "f", "parameters": {...}}; {...}                        Llama 3.1 and later, JSON form
    pythonic  [f(a=1), g(b="x")]                                                            Llama 3.2 and 4
    mistral   [TOOL_CALLS] [{"name": "f", "arguments": {...}}]  or  [TOOL_CALLS]f[ARGS]{...}
    openai    {"content": ..., "tool_calls": [{"id", "function": {"name", "arguments": "<json>"}}]}
    react     Thought: ... Action: f  Action Input: {...}   ...   Final Answer: ...          arXiv:2210.03629
    xml       <think>...</think> <function=f><parameter=a>1</parameter></function> <answer>...</answer>
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 1 << 18
MOST_CALLS = 32


@dataclass(frozen=True, slots=True)
class Call:
    """A tool asked for by name. `id` is the caller's own, where the format has one."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a reply says: its plain text, the calls in it, the answer where the format marks one, and what is malformed."""

    text: str
    calls: tuple[Call, ...] = ()
    problems: tuple[str, ...] = ()
    answer: str | None = None


class _Bad(Exception):
    """A call that cannot be read; becomes a problem."""


def parse(reply: str, style: str) -> Parsed:
    """Read a reply in one of the formats of `STYLES`; only its first 256 Ki characters and 32 calls count."""
    found = STYLES[style](reply[:LONGEST])
    if len(found.calls) > MOST_CALLS:
        return Parsed(found.text, (), (*found.problems, f"over {MOST_CALLS} calls in one reply"), found.answer)
    return found


def _collect(text: str, bodies: Iterable[str], read: Callable[[str], list[Call]], answer: str | None = None) -> Parsed:
    calls: list[Call] = []
    problems: list[str] = []
    for body in bodies:
        try:
            calls += read(body)
        except _Bad as bad:
            problems.append(str(bad))
    return Parsed(text.strip(), tuple(calls), tuple(problems[:3]), answer)


_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.S)
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def _hermes(reply: str) -> Parsed:
    rest, spoken = _THINK.sub("", reply), ""
    bodies: list[str] = []
    while _OPEN in rest and len(bodies) <= MOST_CALLS:
        before, _, rest = rest.partition(_OPEN)
        body, rest = _hermes_body(rest)
        spoken += before
        bodies.append(body)
    return _collect(spoken + rest, bodies, lambda body: [_call(_json(body))])


def _hermes_body(body: str) -> tuple[str, str]:
    """A call's JSON and the text behind it; the closing tag may stand inside a string of the JSON."""
    try:
        value, after = _json_start(body)
        if after.lstrip().startswith(_CLOSE):
            return json.dumps(value), after.lstrip().removeprefix(_CLOSE)
    except _Bad:
        pass
    inside, closed, after = body.partition(_CLOSE)
    if not closed and _OPEN in inside:  # the next call begins before this one has ended
        inside, _, after = inside.partition(_OPEN)
        return inside, _OPEN + after
    return inside, after


_LLAMA = re.compile(r'\s*\{\s*"name"')


def _llama(reply: str) -> Parsed:
    before, tag, body = reply.partition("<|python_tag|>")
    if not tag:
        before, body = ("", reply) if _LLAMA.match(reply) else (reply, "")
    return _collect(before, [body] if body.strip() else [], _json_sequence)


def _json_sequence(body: str) -> list[Call]:
    calls, rest = [], body.removesuffix("<|eom_id|>").removesuffix("<|eot_id|>").strip()
    while rest:
        value, rest = _json_start(rest)
        calls.append(_call(value))
        rest = rest.lstrip().removeprefix(";").lstrip()
    return calls


def _pythonic(reply: str) -> Parsed:
    body = reply.strip().removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    if not (body.startswith("[") and body.endswith("]")) or "(" not in body:
        return Parsed(reply.strip())
    return _collect("", [body], _python_calls)


def _python_calls(body: str) -> list[Call]:
    try:
        tree = ast.parse(body, mode="eval").body
        calls = []
        for node in tree.elts if isinstance(tree, ast.List) else [tree]:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args):
                raise _Bad("write calls as [name(key=value), ...]")
            calls.append(Call(node.func.id, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}))
        return calls
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError) as error:
        raise _Bad(f"the calls cannot be read: {_short(error)}") from error


def _mistral(reply: str) -> Parsed:
    before, tag, body = reply.partition("[TOOL_CALLS]")
    if not tag:
        return Parsed(reply.strip())
    parts = [body] if body.lstrip().startswith("[") else body.split("[TOOL_CALLS]")
    return _collect(before, parts, _mistral_calls)


def _mistral_calls(body: str) -> list[Call]:
    body = body.strip().removesuffix("</s>")
    name, args, arguments = body.partition("[ARGS]")
    if args:
        return [_call({"name": name.strip(), "arguments": _json(arguments)})]
    value, rest = _json_start(body)
    if rest.strip() or not isinstance(value, list):
        raise _Bad("a list of calls and nothing else belongs after [TOOL_CALLS]")
    return [_call(item) for item in value]


def _openai(reply: str) -> Parsed:
    if not reply.lstrip().startswith("{"):
        return Parsed(reply.strip())
    try:
        message = _json(reply)
    except _Bad as bad:
        return Parsed("", (), (str(bad),))
    calls, text = message.get("tool_calls") or [], message.get("content") or ""
    if not isinstance(calls, list):
        return Parsed(str(text), (), ("tool_calls must be a list",))
    return _collect(str(text), calls, lambda call: [_openai_call(call)])


def _openai_call(call: Any) -> Call:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise _Bad("a tool call needs a function")
    given = function.get("arguments")
    read = _call({"name": function.get("name"), "arguments": _json(given) if isinstance(given, str) else given})
    return Call(read.name, read.arguments, str(call.get("id", "")))


_ACTION = re.compile(r"^[ \t]*Action[ \t]*:[ \t]*(.*?)[ \t]*$", re.M)
_INPUT = re.compile(r"^[ \t]*Action Input[ \t]*:[ \t]*", re.M)
_FINAL = re.compile(r"^[ \t]*Final Answer[ \t]*:[ \t]*", re.M)
_SEEN = re.compile(r"^[ \t]*Observation[ \t]*:", re.M)
_BRACKETS = re.compile(r"([\w.-]+)\[(.*)\]", re.S)


def _react(reply: str) -> Parsed:
    reply = _SEEN.split(reply)[0]  # a model that dreams its own observations is not believed
    action, final = _ACTION.search(reply), _FINAL.search(reply)
    if action is None or (final is not None and final.start() < action.start()):
        answer = None if final is None else reply[final.end() :].strip()
        return Parsed(reply[: final.start()].strip() if final else reply.strip(), answer=answer)
    given = _INPUT.search(reply, action.end())
    bracketed = _BRACKETS.fullmatch(action[1])

    def read(_: str) -> list[Call]:
        if given is not None:
            rest = reply[given.end() :]
            return [Call(action[1], _arguments(rest[: final.start() - given.end()] if final else rest))]
        if bracketed:
            return [Call(bracketed[1], _arguments(bracketed[2]))]
        raise _Bad("no line `Action Input:` follows `Action:`")

    return _collect(reply[: action.start()], [""], read)


def _arguments(text: str) -> Mapping[str, Any]:
    """ReAct's input: a JSON object, or one plain value, which is named "input"."""
    if text.strip().startswith("{"):
        value: Mapping[str, Any] = _json(text)
        return value
    return {"input": text.strip().strip('"')}


_FUNCTION = re.compile(r"<function=([^<>\s]*)>(.*?)(?:</function>|\Z)", re.S)
_PARAMETER = re.compile(r"<parameter=([^<>\s]+)>(.*?)</parameter>", re.S)
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.S)


def _xml(reply: str) -> Parsed:
    spoken = _THINK.sub("", reply)
    answers = _ANSWER.findall(spoken)
    bodies = [f"{name}\0{body}" for name, body in _FUNCTION.findall(spoken)]
    text = _ANSWER.sub("", _FUNCTION.sub("", spoken))
    return _collect(text, bodies, _xml_call, answers[-1].strip() if answers else None)


def _xml_call(body: str) -> list[Call]:
    name, _, inside = body.partition("\0")
    rest = _PARAMETER.sub("", inside).strip()
    if rest or not name:
        raise _Bad(f"cannot read {rest[:40]!r} in <function={name[:40]}>")
    return [Call(name, {key: _value(text.strip("\n")) for key, text in _PARAMETER.findall(inside)})]


def _value(text: str) -> Any:
    """A parameter's value: JSON where it is JSON, else text."""
    try:
        return _load(text)
    except ValueError:
        return text


def _call(value: Any) -> Call:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        raise _Bad('a call is {"name": ..., "arguments": {...}}')
    arguments = value.get("arguments", value.get("parameters"))
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise _Bad(f"the arguments of {value['name'][:40]} must be a JSON object")
    return Call(value["name"], arguments, str(value.get("id", "")))


def _json(text: str) -> Any:
    """A JSON object. Raises _Bad."""
    try:
        value = _load(text)
    except ValueError as error:
        raise _Bad(f"no JSON: {_short(error)}") from error
    if not isinstance(value, dict):
        raise _Bad("a JSON object belongs here")
    return value


def _json_start(text: str) -> tuple[Any, str]:
    """The JSON value at the start of a text, and what follows it. Raises _Bad."""
    try:
        value, end = _DECODER.raw_decode(text.lstrip())
        return value, text.lstrip()[end:]
    except (ValueError, RecursionError) as error:
        raise _Bad(f"no JSON: {_short(error)}") from error


def _load(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _short(error: Exception) -> str:
    return str(error)[:120] or type(error).__name__


STYLES: Mapping[str, Callable[[str], Parsed]] = {
    "hermes": _hermes,
    "llama": _llama,
    "pythonic": _pythonic,
    "mistral": _mistral,
    "openai": _openai,
    "react": _react,
    "xml": _xml,
}
