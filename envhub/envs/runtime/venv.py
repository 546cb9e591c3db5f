"""Virtual environments for environments whose requirements conflict with the host's.

A venv holds what its `requirements` name; everything else (EnvHub itself, the environment's package) is taken from the host,
as `process.child_command` says. Venvs are named by their requirements and live in $ENVHUB_HOME/venvs, by default
~/.cache/envhub/venvs. They are built by `envhub setup`, never at run time.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from envhub.envs.listing import ADAPTERS, Listed
from envhub.envs.runtime.process import child_command, shared, spec_of
from envhub.envs.spec import EnvSpec
from envhub.errors import ConfigError

READY = ".envhub-ready"


def spec_in_venv(listed: Listed) -> EnvSpec:
    """The spec of an environment that runs in its own virtual environment.

    Raises:
        ConfigError: the venv is not built, or its process does not start.
    """
    python = venv_python(listed.id, listed.requirements)
    command = child_command(str(python), listed.target)
    return spec_of(lambda: shared(command, name=listed.id))


def spec_in_folder(rest: str) -> EnvSpec:
    """The adapter "venv": `venv:FOLDER:textarena:TicTacToe-v0` is textarena:TicTacToe-v0 in a virtual environment of one's own.

    Raises:
        ConfigError: FOLDER is no virtual environment, there is no such adapter, or its process does not start.
    """
    folder, _, inner = rest.partition(":")
    adapter, _, name = inner.partition(":")
    python = Path(folder) / "bin" / "python"
    points = {point.name: point.value for point in entry_points(group=ADAPTERS)}
    if not python.exists() or adapter not in points:
        what = f"no adapter {adapter!r}" if python.exists() else f"no virtual environment at {folder!r}"
        raise ConfigError(what, mend="write venv:FOLDER:ADAPTER:NAME")
    command = child_command(str(python), f"{points[adapter]}({name})")
    return spec_of(lambda: shared(command, name=inner))


def venv_folder(requirements: Sequence[str]) -> Path:
    """Where the venv of some requirements belongs; one for equal requirements and equal Pythons."""
    home = Path(os.environ.get("ENVHUB_HOME", Path.home() / ".cache" / "envhub"))
    text = "\n".join([sys.version.split()[0], sys.prefix, *sorted(requirements)])
    return home / "venvs" / hashlib.sha256(text.encode()).hexdigest()[:16]


def venv_python(env_id: str, requirements: Sequence[str]) -> Path:
    """The Python of a built venv. Raises ConfigError if it is not built."""
    folder = venv_folder(requirements)
    if not (folder / READY).exists():
        raise ConfigError(f"{env_id}: its virtual environment is not built", mend=f"envhub setup {env_id}")
    return folder / "bin" / "python"


def build_venv(requirements: Sequence[str]) -> Path:
    """Build the venv of some requirements, unless it is there; gives its folder.

    Raises:
        ConfigError: the requirements cannot be installed.
    """
    folder = venv_folder(requirements)
    if (folder / READY).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    if requirements:
        _run([str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements])
    (folder / READY).write_text("\n".join(requirements))
    return folder


def _run(command: Sequence[str]) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}  # the host's pins are not the venv's
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise ConfigError(f"{' '.join(command[1:5])} ...: {done.stderr.strip()[-2000:]}", mend="correct `requirements`")
