"""What installed packages say of their environments before anything is imported.

A package names an environment by an entry point, `"game/FrozenLake-v1" = "envhub_games.frozen_lake:SPEC"`, and may tell more
in a file `envhub.toml` beside its `__init__.py`:

    ["game/FrozenLake-v1"]
    summary = "Cross a frozen lake to the goal without falling into a hole."
    tags = ["game", "navigation"]
    isolation = "none"
    runtime = "venv"                    # the environment runs in a process with a virtual environment of its own,
    requirements = ["numpy==1.26.4"]    # which holds these
"""

import importlib.util
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

GROUP, ADAPTERS = "envhub.environments", "envhub.adapters"  # of entry points
FACTS = "envhub.toml"
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """What is known of an environment without importing it. `problem` says why it cannot be played, if that is known."""

    id: str
    package: str
    version: str
    target: str
    summary: str = ""
    tags: tuple[str, ...] = ()
    isolation: str = "none"
    runtime: str = "process"
    requirements: tuple[str, ...] = ()
    problem: str = ""


def installed() -> tuple[Listed, ...]:
    """Every environment that installed packages name, by id. A broken package is listed with its problem."""
    found = {_listed(point) for point in entry_points(group=GROUP)}
    claims = Counter(listed.id for listed in found)
    packages = {id_: " and ".join(sorted(f.package for f in found if f.id == id_)) for id_, n in claims.items() if n > 1}
    named = [f if f.id not in packages else replace(f, problem=f"claimed by {packages[f.id]}") for f in found]
    return tuple(sorted(named, key=lambda listed: (listed.id, listed.package)))


def find(env_id: str) -> tuple[Listed, ...]:
    """Every package's claim on one id."""
    return tuple({_listed(point) for point in entry_points(group=GROUP, name=env_id)})


def entry_point(listed: Listed) -> EntryPoint:
    """The entry point behind a listing."""
    return EntryPoint(name=listed.id, value=listed.target, group=GROUP)


def _listed(point: EntryPoint) -> Listed:
    package, version = ("?", "") if point.dist is None else (point.dist.name, point.dist.version)
    plain = Listed(point.name, package, version, point.value)
    root = point.module.partition(".")[0]
    home, problem = _home(root)
    if home is None:
        return replace(plain, problem=problem)
    facts, problem = _facts(home)
    told = facts.get(point.name, {})
    try:
        listed = replace(plain, **_checked(told), problem=problem)
    except (TypeError, ValueError) as error:
        return replace(plain, problem=f"{FACTS}: {error}")
    return listed if problem else replace(listed, problem=_missing(home, root, point.module))


@cache
def _home(root: str) -> tuple[Path | None, str]:
    """The folder of a top-level package, found and not imported."""
    try:
        found = importlib.util.find_spec(root)
    except (ImportError, ValueError) as error:
        return None, f"{type(error).__name__}: {error}"
    if found is None:
        return None, f"no module named {root!r}"
    folders = list(found.submodule_search_locations or [])
    return Path(folders[0]) if folders else Path(str(found.origin)).parent, ""


@cache
def _facts(home: Path) -> tuple[Mapping[str, Any], str]:
    try:
        with (home / FACTS).open("rb") as file:
            raw = file.read(MAX_BYTES)
        return tomllib.loads(raw.decode("utf-8")), ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError) as error:  # tomllib's and the decoder's errors are ValueErrors
        return {}, f"{FACTS}: {error}"


def _checked(told: Mapping[str, Any]) -> dict[str, Any]:
    """A table of envhub.toml as fields of `Listed`. Raises ValueError or TypeError."""
    known = {"summary": str, "isolation": str, "runtime": str, "tags": list, "requirements": list}
    facts: dict[str, Any] = {}
    for name, value in told.items():
        if name not in known:
            raise ValueError(f"unknown key {name!r}; known: {', '.join(known)}")
        if not isinstance(value, known[name]) or (isinstance(value, list) and not all(isinstance(v, str) for v in value)):
            raise ValueError(f"{name} must be {'text' if known[name] is str else 'a list of texts'}")
        facts[name] = tuple(value) if isinstance(value, list) else value
    if facts.get("runtime", "process") not in ("process", "venv"):
        raise ValueError("runtime must be 'process' or 'venv'")
    if facts.get("isolation", "none") not in ("none", "local", "docker"):
        raise ValueError("isolation must be 'none', 'local' or 'docker'")
    return facts


def _missing(home: Path, root: str, module: str) -> str:
    """A problem that the files alone tell: the module is not there."""
    if module == root:
        return ""
    place = home.joinpath(*module.split(".")[1:])
    there = place.with_name(place.name + ".py").exists() or place.is_dir()
    return "" if there else f"no module named {module!r}"
