"""`envhub list`: what can be played here."""

from dataclasses import asdict
from typing import Annotated

import typer

from envhub.cli.output import print_json, print_table
from envhub.envs.registry import list_environments


def list_command(json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False) -> None:
    """List the environments that installed packages offer; nothing is imported."""
    found = list_environments()
    if json:
        print_json([asdict(listed) for listed in found])
    else:
        print_table("", ["id", "package", "version"], [(e.id, e.package, e.version) for e in found])
