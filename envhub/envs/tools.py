"""Tools: a Python function with types and a docstring becomes something that a policy can call.

A bad call is answered in words: an unknown name, missing or wrong arguments, or a tool that raises `ToolError`, ValueError,
LookupError or ArithmeticError. Any other exception is the tool's bug and fails the episode.
"""

import inspect
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError, validate_call
from pydantic.errors import PydanticSchemaGenerationError

from envhub.envs.core import Env, Info
from envhub.envs.parsers import Call, parse
from envhub.errors import ConfigError

MAX_RESULT_CHARS = 8192
MAX_OBSERVATION_CHARS = 32_768
F = TypeVar("F", bound=Callable[..., Any])
_MARK = "_envhub_tool"


class ToolError(Exception):
    """A tool's answer to a call that makes no sense: the policy reads the message."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A named function with a JSON Schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]

    @staticmethod
    def of(function: Callable[..., Any]) -> "Tool":
        """The tool that a function is: its name, its docstring's first paragraph, and its typed arguments.

        Raises:
            ConfigError: an argument has no type that JSON can carry, or the docstring is missing.
        """
        name = getattr(function, "__name__", "?")
        text = inspect.getdoc(function)
        untyped = [p.name for p in inspect.signature(function).parameters.values() if p.annotation is inspect.Parameter.empty]
        if not text or untyped:
            problem = f"arguments without types: {', '.join(untyped)}" if untyped else "no docstring"
            raise ConfigError(f"tool {name} has {problem}", mend="policies see types and docstring: write both")
        try:
            schema = TypeAdapter(cast(Any, function)).json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError) as error:
            raise ConfigError(f"tool {name}: {error}", mend="use types that JSON can carry") from error
        return Tool(name, text.split("\n\n")[0].replace("\n", " "), _described(schema, text), validate_call(function))

    def schema(self) -> dict[str, Any]:
        """The tool as chat templates and OpenAI-compatible servers take it."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": dict(self.parameters)},
        }


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave, as the policy reads it; `ok` is False where the call was bad."""

    text: str
    ok: bool = True


class ToolBox:
    """The tools of an environment, by name."""

    def __init__(self, functions: Iterable[Callable[..., Any] | Tool]) -> None:
        """Take tools, or functions that become tools. Raises ConfigError for two of one name."""
        tools = [f if isinstance(f, Tool) else Tool.of(f) for f in functions]
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            raise ConfigError("two tools have one name", mend="rename one")

    def schemas(self) -> tuple[dict[str, Any], ...]:
        """Every tool's schema."""
        return tuple(tool.schema() for tool in self.tools.values())

    def call(self, call: Call, *owner: Any) -> Result:
        """Answer a call; `owner` is the object whose methods the tools are, if they are methods. Only a tool's bug raises."""
        tool = self.tools.get(call.name)
        if tool is None:
            return Result(f"error: no tool {call.name[:80]!r}; there are: {', '.join(self.tools)}", ok=False)
        try:
            given = tool.function(*owner, **call.arguments)
        except ValidationError as error:
            return Result(f"error: {tool.name}: {_problems(error)}", ok=False)
        except (ToolError, ValueError, LookupError, ArithmeticError) as error:
            return Result(f"error: {tool.name}: {error}"[:MAX_RESULT_CHARS], ok=False)
        except TypeError as error:
            if "keyword" in str(error) or "argument" in str(error):
                return Result(f"error: {tool.name}: {error}"[:MAX_RESULT_CHARS], ok=False)
            raise
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
        cut = len(text) - MAX_RESULT_CHARS
        return Result(text if cut <= 0 else f"{text[:MAX_RESULT_CHARS]}\n[{cut} characters left out]")

    def explain(self, style: str) -> str:
        """How to call the tools, for policies whose chat template does not say it."""
        lines = [json.dumps(tool.schema()["function"], ensure_ascii=False) for tool in self.tools.values()]
        return "\n".join(["You may call these tools:", *lines, HOW_TO_CALL[style]])


HOW_TO_CALL: Mapping[str, str] = {
    "hermes": 'To call one, write <tool_call>{"name": NAME, "arguments": {...}}</tool_call>.',
    "llama": 'To call one, answer with {"name": NAME, "parameters": {...}} and nothing else.',
    "pythonic": "To call some, answer with [name(key=value), ...] and nothing else.",
    "mistral": 'To call some, write [TOOL_CALLS] [{"name": NAME, "arguments": {...}}, ...].',
    "openai": 'To call some, answer with {"tool_calls": [{"function": {"name": NAME, "arguments": "{...}"}}]}.',
    "react": "To call one, write the lines `Action: NAME` and `Action Input: {...}`; to end, `Final Answer: ...`.",
    "xml": "To call one, write <function=NAME><parameter=KEY>VALUE</parameter></function>; to end, <answer>...</answer>.",
}


def tool(method: F) -> F:
    """Mark a method of a `ToolEnv` as a tool."""
    setattr(method, _MARK, True)
    return method


class ToolEnv(Env, ABC):
    """An environment in which the policy calls the methods marked `@tool` until it answers without a call.

    Implement `begin` (the first observation) and `finish` (the reward of the final answer). A tool may end the episode by
    setting `self.done = True`.
    """

    call_style: ClassVar[str] = "hermes"
    done: bool = False

    @abstractmethod
    def begin(self, task: Mapping[str, Any] | None) -> str:
        """Start on a task, or on one drawn from `self.np_random`; gives the first observation."""

    @abstractmethod
    def finish(self, answer: str) -> tuple[float, Info]:
        """Score the final answer: reward and info."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Start a task."""
        super().reset(seed=seed)
        self.done = False
        return self.begin(self.task_of(options)), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Run the reply's calls in order and show their results; a reply without calls is the final answer."""
        if self.done:
            return "The episode is over.", 0.0, True, False, {"illegal": True}
        reply = parse(action, self.call_style)
        if reply.problems:
            return _shown([f"error: {problem}" for problem in reply.problems]), 0.0, False, False, {"illegal": True}
        if reply.calls:
            results = [self.toolbox().call(call, self) for call in reply.calls]
            info: Info = {} if all(result.ok for result in results) else {"illegal": True}
            if self.done:
                reward, more = self.finish("")
                return _shown([result.text for result in results]), reward, True, False, info | more
            return _shown([result.text for result in results]), 0.0, False, False, info
        self.done = True
        reward, info = self.finish(reply.text if reply.answer is None else reply.answer)
        return "", reward, True, False, info

    @classmethod
    def toolbox(cls) -> ToolBox:
        """The marked methods as tools, for `EnvSpec.tools` and instructions."""
        return _toolbox(cast(Any, cls))


def _shown(texts: list[str]) -> str:
    """Results as one observation: of bounded length, and without lone surrogates that a call may have carried in."""
    text = "\n".join(texts)
    if len(text) > MAX_OBSERVATION_CHARS:
        text = f"{text[:MAX_OBSERVATION_CHARS]}\n[{len(text) - MAX_OBSERVATION_CHARS} characters left out]"
    return text.encode("utf-8", "replace").decode()


@cache
def _toolbox(cls: Any) -> ToolBox:
    marked = [getattr(cls, name) for name in dir(cls) if getattr(getattr(cls, name, None), _MARK, False)]
    bare = cls.__new__(cls)
    return ToolBox(replace(Tool.of(method.__get__(bare)), function=validate_call(method)) for method in marked)


_ARG = re.compile(r"^\s{4}(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


def _described(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """The arguments' schema with the descriptions of the docstring's `Args:` section."""
    _, _, section = text.partition("Args:\n")
    for line in section.split("\n\n")[0].splitlines():
        found = _ARG.match(line)
        if found and found[1] in schema.get("properties", {}):
            schema["properties"][found[1]]["description"] = found[2]
    return schema


def _problems(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, d['loc'])) or 'arguments'}: {d['msg']}" for d in error.errors(include_url=False)[:5])
