"""Settings: strict, frozen, each owned by the room it configures; read from YAML with errors that name file and line."""

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from envhub.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
SECRETS = ("token", "secret", "password", "api_key")


class Settings(BaseModel):
    """Base of every config section: a misspelt key is an error, not a default; values never change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


S = TypeVar("S", bound=Settings)
Key = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-6 is a number, a key stands once, and nothing refers to anything else."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not allowed", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


_SEQUENCE = yaml.resolver.BaseResolver.DEFAULT_SEQUENCE_TAG
_FLOAT = r"^[-+]?(\d[\d_]*)(\.[\d_]*)?[eE][-+]?\d+$"
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(_FLOAT), list("-+0123456789"))


def load_settings(model: type[S], path: Path, overrides: Sequence[str] = ()) -> S:
    """Read a config file and apply `key.sub=value` overrides.

    Raises:
        ConfigError: the file cannot be read, or keys or values are wrong; every problem is listed with its line.
    """
    lines: dict[Key, str] = {}
    data = _read(path, lines)
    for override in overrides:
        _override(data, override, lines)
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = "\n".join(_problem(model, dict(detail), lines, path) for detail in error.errors(include_url=False))
        raise ConfigError(f"the config is wrong:\n{problems}", mend="correct the lines named above") from None


def to_yaml(settings: Settings) -> str:
    """The settings as YAML, defaults included."""
    return str(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def redacted(settings: S) -> S:
    """The same settings with every secret replaced by "***"."""
    changes: dict[str, Any] = {}
    for name, value in settings:
        if isinstance(value, Settings):
            changes[name] = redacted(value)
        elif isinstance(value, str) and name.endswith(SECRETS):
            changes[name] = "***"
    return settings.model_copy(update=changes)


def _read(path: Path, lines: dict[Key, str]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES} bytes", mend="is it a config?")
        node = yaml.compose(raw.decode("utf-8"), Loader=_Loader)
        data = {} if node is None else _plain(node, (), path, lines)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", mend="give a UTF-8 YAML file") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}", mend="correct the place named above") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no sections", mend="write `run:`, `env:` and so on at the top level")
    return data


def _plain(node: yaml.Node, key: Key, path: Path, lines: dict[Key, str]) -> Any:
    """A node's value; remembers the line of every key."""
    lines[key] = f"{path}:{node.start_mark.line + 1}"
    if len(key) > MAX_DEPTH:
        raise ConfigError(f"{lines[key]}: nested deeper than {MAX_DEPTH}", mend="flatten it")
    if not isinstance(node, yaml.ScalarNode) and node.tag not in (yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _SEQUENCE):
        raise ConfigError(f"{lines[key]}: tag {node.tag!r} is not allowed", mend="write plain values")
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for name_node, value in node.value:
            name = str(name_node.value)
            if name in found:
                raise ConfigError(f"{path}:{name_node.start_mark.line + 1}: {name!r} stands twice", mend="keep one of them")
            found[name] = _plain(value, (*key, name), path, lines)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*key, place), path, lines) for place, item in enumerate(node.value)]
    return _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_object(node)
    finally:
        loader.dispose()


def _override(data: dict[str, Any], override: str, lines: dict[Key, str]) -> None:
    name, equals, text = override.partition("=")
    parts = name.split(".")
    if not equals or not all(parts):
        raise ConfigError(f"cannot read {override!r}", mend="write overrides as section.key=value")
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"cannot read the value of {override!r}: {error}", mend="quote it") from error
    place = data
    for part in parts[:-1]:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise ConfigError(f"{override!r}: {part} is no section", mend="check the key")
    place[parts[-1]] = value
    lines[tuple(parts)] = f"override {override!r}"


def _problem(model: type[BaseModel], detail: dict[str, Any], lines: dict[Key, str], path: Path) -> str:
    key: Key = tuple(detail["loc"])
    where = next((lines[key[:n]] for n in range(len(key), -1, -1) if key[:n] in lines), str(path))
    name = ".".join(map(str, key)) or "the config"
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(key[-1]), list(_fields(model, key[:-1])), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(_fields(model, key[:-1]))}"
        return f"  {where}: unknown key {name!r}{hint}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    given = "" if detail["type"] in ("missing", "value_error") else f", got {detail['input']!r}"
    return f"  {where}: {name}: {message[0].lower()}{message[1:]}{given}"


def _fields(model: type[BaseModel], key: Key) -> Iterator[str]:
    """Names of the fields of the section at `key`."""
    for part in key:
        kinds = [model.model_fields[str(part)].annotation] if str(part) in model.model_fields else []
        inner = [k for kind in kinds for k in (kind, *getattr(kind, "__args__", ())) if isinstance(k, type)]
        model = next((k for k in inner if issubclass(k, BaseModel)), BaseModel)
    yield from model.model_fields
