"""Settings: strict, frozen, each owned by the room it configures; read from YAML with errors that name file and line."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from envhub.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
SECRETS = ("token", "secret", "password", "api_key")
WORDS = {
    "model_type": "a section of keys belongs here",
    "dict_type": "a section of keys belongs here",
    "string_type": "text belongs here: quote it",
}


class Settings(BaseModel):
    """Base of every config section: a misspelt key is an error, not a default; values never change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


S = TypeVar("S", bound=Settings)
Key = tuple[str | int, ...]
Where = Callable[[int], str]  # a line, as errors name it


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-6 is a number, a date is text, and nothing refers to anything else or nests without end."""

    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        problem = "aliases are not allowed" if self.check_event(yaml.AliasEvent) else ""
        if self._depth > MAX_DEPTH:
            problem = f"nested deeper than {MAX_DEPTH}"
        if problem:
            raise yaml.composer.ComposerError(None, None, problem, self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_CONTAINERS = (yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, yaml.resolver.BaseResolver.DEFAULT_SEQUENCE_TAG)
_FLOAT = r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(_FLOAT), list("-+0123456789"))
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
    for first, known in _Loader.yaml_implicit_resolvers.items()
}


def load_settings(model: type[S], path: Path, overrides: Sequence[str] = ()) -> S:
    """Read a config file and apply `key.sub=value` overrides.

    Raises:
        ConfigError: the file cannot be read, or keys or values are wrong; every problem is listed with its line.
    """
    lines: dict[Key, str] = {}
    data = _read(path, lines)
    for override in overrides:
        _override(data, override, lines)
    return _validated(model, data, lines, str(path))


def checked(model: type[S], data: dict[str, Any], *, source: str) -> S:
    """Settings of values that were put together elsewhere, as on a command line. Raises ConfigError, which names `source`."""
    return _validated(model, data, {}, source)


def _validated(model: type[S], data: dict[str, Any], lines: dict[Key, str], source: str) -> S:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = error.errors(include_url=False)
        inner = {d["loc"][:-1] for d in found} | {d["loc"][:-2] for d in found}  # a list of wrong items counts as too short
        shown = [d for d in found if d["type"] != "too_short" or d["loc"] not in inner]
        problems = "\n".join(_problem(model, dict(detail), lines, source) for detail in shown)
        mend = "correct the lines named above" if lines else "correct what is named above"
        raise ConfigError(f"the config is wrong:\n{problems}", mend=mend) from None


def parse_value(text: str, *, source: str) -> Any:
    """One value as it would stand in a config; `source` says in errors where it came from. Raises ConfigError."""
    return _parse(text, (), lambda _: source, {})


def to_yaml(settings: Settings) -> str:
    """The settings as YAML, defaults included."""
    return str(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def redacted(settings: S) -> S:
    """The same settings with every secret replaced by "***", in free options too."""
    return settings.model_copy(update={name: _hidden(name, value) for name, value in settings})


def _hidden(name: str, value: Any) -> Any:
    match value:
        case Settings():
            return redacted(value)
        case dict():
            return {key: _hidden(str(key), inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(_hidden(name, inner) for inner in value)
        case str() if name.lower().endswith(SECRETS):
            return "***"
    return value


def _read(path: Path, lines: dict[Key, str]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES} bytes", mend="is it a config?")
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", mend="give a UTF-8 YAML file") from error
    data = _parse(text, (), lambda line: f"{path}:{line}", lines)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no sections", mend="write `run:`, `env:` and so on at the top level")
    return data


def _parse(text: str, key: Key, where: Where, lines: dict[Key, str]) -> Any:
    """The value that `text` writes down for `key`; remembers where every key below it stands."""
    try:
        node = yaml.compose(text, Loader=_Loader)
        return None if node is None else _plain(node, key, where, lines)
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise ConfigError(f"{where(line)} is no YAML: {error.problem}", mend="correct the place named above") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where(1)} is no YAML: {error}", mend="correct the place named above") from error


def _plain(node: yaml.Node, key: Key, where: Where, lines: dict[Key, str]) -> Any:
    lines[key] = where(node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, lines[key])
    if node.tag not in _CONTAINERS:
        raise ConfigError(f"{lines[key]}: tag {node.tag!r} is not allowed", mend="write plain values")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*key, place), where, lines) for place, item in enumerate(node.value)]
    found: dict[str, Any] = {}
    for name_node, value in node.value:
        name, line = str(name_node.value), where(name_node.start_mark.line + 1)
        if not isinstance(name_node, yaml.ScalarNode):
            raise ConfigError(f"{line}: a key is a list or a section", mend="write a word before the colon")
        if name in found:
            raise ConfigError(f"{line}: {name!r} stands twice", mend="keep one of them")
        found[name] = _plain(value, (*key, name), where, lines)
    return found


def _scalar(node: yaml.ScalarNode, where: str) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_object(node)
    except (ValueError, LookupError, AttributeError) as error:  # how yaml's constructors refuse, as in 0x_ or !!bool x
        kind = node.tag.rpartition(":")[2]
        raise ConfigError(f"{where}: {node.value[:40]!r} cannot be read as {kind}", mend="quote it to make it text") from error
    finally:
        loader.dispose()


def _override(data: dict[str, Any], override: str, lines: dict[Key, str]) -> None:
    name, equals, text = override.partition("=")
    parts = tuple(name.split("."))
    if not equals or not all(parts):
        raise ConfigError(f"cannot read {override[:80]!r}", mend="write overrides as section.key=value")
    place = data
    for part in parts[:-1]:
        if place.get(part) is None:  # an empty section is written as null
            place[part] = {}
        place = place[part]
        if not isinstance(place, dict):
            raise ConfigError(f"{override[:80]!r}: {part} is no section", mend="check the key")
    for key in [key for key in lines if key[: len(parts)] == parts]:
        del lines[key]
    source = f"override {override[:80]!r}"
    lines[parts] = source
    place[parts[-1]] = _parse(text, parts, lambda _: source, lines)


def _problem(model: type[BaseModel], detail: dict[str, Any], lines: dict[Key, str], source: str) -> str:
    key: Key = tuple(detail["loc"])
    where = next((lines[key[:n]] for n in range(len(key), -1, -1) if key[:n] in lines), source)
    name = ".".join(map(str, key)) or "the config"
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(key[-1]), list(_fields(model, key[:-1])), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(_fields(model, key[:-1]))}"
        return f"  {where}: unknown key {name!r}{hint}"
    message = WORDS.get(detail["type"], str(detail["msg"]).removeprefix("Value error, "))
    given = "" if detail["type"] in ("missing", "value_error") else f", got {detail['input']!r}"
    return f"  {where}: {name}: {message[0].lower()}{message[1:]}{given}"


def _fields(model: type[BaseModel], key: Key) -> Iterator[str]:
    """Names of the fields of the section at `key`."""
    for part in key:
        kinds = [model.model_fields[str(part)].annotation] if str(part) in model.model_fields else []
        inner = [k for kind in kinds for k in (kind, *getattr(kind, "__args__", ())) if isinstance(k, type)]
        model = next((k for k in inner if issubclass(k, BaseModel)), BaseModel)
    yield from model.model_fields
