"""Writes calls and answers in the formats that `envhub.envs.parsers` reads, and reads final answers."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from envhub.envs.parsers import STYLES

_LONGEST = 65_536
_THINK = re.compile(r"<think>.*?(?:</think>|\Z)", re.S)
_OPEN, _CLOSE = "<answer>", "</answer>"


def checked_style(style: str) -> str:
    """The style, if it is one. Raises ValueError."""
    if style not in STYLES:
        raise ValueError(f"style {style!r} must be one of: {', '.join(STYLES)}")
    return style


def write_call(style: str, name: str, **arguments: Any) -> str:
    """A reply that calls one tool."""
    return _WRITERS[style](name, arguments)


def write_answer(style: str, answer: str) -> str:
    """A reply that is a final answer."""
    return f"Final Answer: {answer}" if style == "react" else f"{_OPEN}{answer}{_CLOSE}"


def tagged_answer(text: str) -> tuple[str, bool]:
    """The last <answer>...</answer> of a text and True, or without one all of the text and False; thoughts are left out."""
    spoken = _THINK.sub("", text[-_LONGEST:])
    end = spoken.rfind(_CLOSE)
    start = spoken.rfind(_OPEN, 0, max(end, 0))
    if start < 0:
        return spoken.strip(), False
    return spoken[start + len(_OPEN) : end].strip(), True


def _xml(name: str, arguments: Mapping[str, Any]) -> str:
    inside = "".join(f"<parameter={key}>{json.dumps(value)}</parameter>" for key, value in arguments.items())
    return f"<function={name}>{inside}</function>"


def _openai(name: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps({"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}]})


_WRITERS: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "hermes": lambda name, args: f"<tool_call>{json.dumps({'name': name, 'arguments': args})}</tool_call>",
    "llama": lambda name, args: json.dumps({"name": name, "parameters": args}),
    "pythonic": lambda name, args: f"[{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})]",
    "mistral": lambda name, args: f"[TOOL_CALLS] {json.dumps([{'name': name, 'arguments': args}])}",
    "openai": _openai,
    "react": lambda name, args: f"Action: {name}\nAction Input: {json.dumps(args)}",
    "xml": _xml,
}
