"""Real peers, each in a virtual environment of its own that is built once a machine and kept."""

from collections.abc import Sequence
from pathlib import Path

from envhub.envs.runtime.process import child_command, shared, spec_of
from envhub.envs.runtime.venv import build_venv
from envhub.envs.spec import EnvSpec


def peer_python(requirements: Sequence[str]) -> str:
    """The Python of a venv with a peer."""
    return str(Path(build_venv(tuple(requirements))) / "bin" / "python")


def adapted(requirements: Sequence[str], adapter: str, name: str) -> EnvSpec:
    """The spec of an adapter's environment, hosted in the peer's venv."""
    command = child_command(peer_python(requirements), f"envhub.envs.adapters.{adapter}:spec({name})")
    return spec_of(lambda: shared(command, name=f"{adapter}:{name}"))
