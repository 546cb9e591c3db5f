"""Environments by name: found through entry points, imported only when asked for.

Three forms of ids: "game/FrozenLake-v1", named by an installed package or by `register`; "gymnasium:CartPole-v1", an adapter's
name and what it adapts; "http://host/envs/game/FrozenLake-v1", a served environment, which is the adapter "remote".
"""

import difflib
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.listing import ADAPTERS, Listed, entry_point, find, installed
from envhub.envs.runtime.venv import spec_in_venv
from envhub.envs.spec import EnvSpec, Isolation
from envhub.errors import ConfigError

_local: dict[str, EnvSpec] = {}


def register(spec: EnvSpec) -> EnvSpec:
    """Make an environment of one's own known in this process."""
    _local[spec.id] = spec
    return spec


def list_environments() -> tuple[Listed, ...]:
    """Every environment that installed packages name, and the registered ones, by id; nothing is imported."""
    own = {
        Listed(spec.id, "(this process)", "", spec.make.__module__, spec.summary, spec.tags, spec.isolation.value)
        for spec in _local.values()
    }
    return tuple(sorted({*installed(), *own}, key=lambda listed: (listed.id, listed.package)))


def load_spec(env_id: str) -> EnvSpec:
    """Give an environment's spec; imports its package, or asks the process that has a virtual environment for it.

    Raises:
        ConfigError: no package names the id, two do, or its package does not import.
    """
    if env_id in _local:
        return _local[env_id]
    if env_id.startswith(("http://", "https://", "ws://", "wss://")):
        env_id = f"remote:{env_id}"
    adapter, colon, rest = env_id.partition(":")
    if colon:
        return _adapted(adapter, rest)
    claims = find(env_id)
    if not claims:
        near = difflib.get_close_matches(env_id, [e.id for e in list_environments()], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "install its package; `envhub list` shows what is there"
        raise ConfigError(f"no environment {env_id!r}", mend=hint)
    if len(claims) > 1:
        names = " and ".join(sorted(listed.package for listed in claims))
        raise ConfigError(f"{env_id!r} is claimed by {names}", mend="uninstall one of the packages")
    (listed,) = claims
    return spec_in_venv(listed) if listed.runtime == "venv" else import_spec(listed)


def import_spec(listed: Listed) -> EnvSpec:
    """Import a listed environment's spec into this process. Raises ConfigError."""
    if listed.problem:
        raise ConfigError(f"{listed.id}: package {listed.package} is broken: {listed.problem}", mend="mend the package")
    try:
        spec = entry_point(listed).load()
    except (Exception, SystemExit) as error:  # foreign code enters here
        raise ConfigError(
            f"{listed.id}: package {listed.package} does not import: {type(error).__name__}: {error}",
            mend="mend the package",
        ) from error
    if not isinstance(spec, EnvSpec) or spec.id != listed.id:
        raise ConfigError(f"{listed.id}: {listed.target} is no EnvSpec of that id", mend="mend the package's entry point")
    return replace(
        spec,
        summary=spec.summary or listed.summary,
        tags=spec.tags or listed.tags,
        isolation=spec.isolation if spec.isolation is not Isolation.NONE else Isolation(listed.isolation),
    )


def _adapted(adapter: str, rest: str) -> EnvSpec:
    points = {point.name: point for point in entry_points(group=ADAPTERS)}
    if adapter not in points:
        raise ConfigError(f"no adapter {adapter!r}", mend=f"use one of: {', '.join(sorted(points))}")
    try:
        adapt = points[adapter].load()
    except ImportError as error:
        raise ConfigError(f"adapter {adapter} needs {error.name}", mend=f"pip install 'envhub-rl[{adapter}]'") from error
    spec = adapt(rest)
    assert isinstance(spec, EnvSpec), f"adapter {adapter} gives no EnvSpec"
    return spec


def make(env_id: str, **options: Any) -> Env | AsyncEnv:
    """A fresh environment. Raises ConfigError as `load_spec` and `build` do."""
    return build(load_spec(env_id), options)


def build(spec: EnvSpec, options: Mapping[str, Any]) -> Env | AsyncEnv:
    """A fresh environment of a spec. Raises ConfigError if it refuses the options."""
    try:
        return spec.make(**{**spec.default_options, **options})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{spec.id} refuses its options: {error}", mend="see `envhub show`") from error


def package_version(env_id: str) -> str:
    """Version of the package that names the environment; "local" for registered and adapted ones."""
    return next((listed.version for listed in find(env_id) if listed.version), "local")
