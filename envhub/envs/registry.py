"""Environments by name: found through entry points, imported only when asked for."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from envhub.envs.core import AsyncEnv, Env
from envhub.envs.spec import EnvSpec
from envhub.errors import ConfigError

GROUP = "envhub.environments"
_local: dict[str, EnvSpec] = {}


@dataclass(frozen=True, slots=True)
class Listed:
    """What is known of an environment without importing it."""

    id: str
    package: str
    version: str
    target: str


def register(spec: EnvSpec) -> EnvSpec:
    """Make an environment of one's own known in this process."""
    _local[spec.id] = spec
    return spec


def list_environments() -> tuple[Listed, ...]:
    """Every environment that installed packages name, and the registered ones, by id; nothing is imported."""
    found = [_listed(point) for point in entry_points(group=GROUP)]
    own = [Listed(spec.id, "(this process)", "", spec.make.__module__) for spec in _local.values()]
    return tuple(sorted({*found, *own}, key=lambda listed: (listed.id, listed.package)))


def load_spec(env_id: str) -> EnvSpec:
    """Import an environment's package and give its spec.

    Raises:
        ConfigError: no package names the id, two do, or its package does not import.
    """
    if env_id in _local:
        return _local[env_id]
    points = {_listed(point): point for point in entry_points(group=GROUP, name=env_id)}
    if not points:
        near = difflib.get_close_matches(env_id, [e.id for e in list_environments()], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "install its package; `envhub list` shows what is there"
        raise ConfigError(f"no environment {env_id!r}", mend=hint)
    if len(points) > 1:
        names = " and ".join(sorted(listed.package for listed in points))
        raise ConfigError(f"{env_id!r} is claimed by {names}", mend="uninstall one of the packages")
    ((listed, point),) = points.items()
    try:
        spec = point.load()
    except Exception as error:  # foreign code enters here
        raise ConfigError(
            f"{env_id}: package {listed.package} does not import: {type(error).__name__}: {error}",
            mend="mend the package",
        ) from error
    if not isinstance(spec, EnvSpec) or spec.id != env_id:
        raise ConfigError(f"{env_id}: {listed.target} is no EnvSpec of that id", mend="mend the package's entry point")
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
    """Version of the package that names the environment; "local" for registered ones."""
    return next((e.version for e in list_environments() if e.id == env_id and e.version), "local")


def _listed(point: EntryPoint) -> Listed:
    package, version = ("?", "") if point.dist is None else (point.dist.name, point.dist.version)
    return Listed(point.name, package, version, point.value)
