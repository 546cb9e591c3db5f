"""`envhub setup`: build the virtual environments that environments name."""

from typing import Annotated

import typer

from envhub.envs.listing import installed
from envhub.envs.runtime.venv import build_venv
from envhub.errors import ConfigError


def setup_command(
    env: Annotated[list[str] | None, typer.Argument(help="Ids of `envhub list`; by default all that need it.")] = None,
) -> None:
    """Build the virtual environments of environments with `runtime = "venv"`. A second run does nothing."""
    known = {listed.id: listed for listed in installed() if listed.runtime == "venv"}
    unknown = [name for name in env or () if name not in known]
    if unknown:
        raise ConfigError(f"{', '.join(unknown)} need no virtual environment", mend="see `envhub list`")
    for name in env or sorted(known):
        folder = build_venv(known[name].requirements)
        typer.echo(f"{name}: {folder}")
