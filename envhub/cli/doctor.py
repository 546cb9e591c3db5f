"""`envhub doctor`: what this machine can run."""

from dataclasses import asdict
from typing import Annotated

import typer

from envhub.cli.output import print_json, print_table
from envhub.runs.doctor import examine


def doctor_command(json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False) -> None:
    """Say what this machine can run, and how to mend what it cannot."""
    found = examine()
    if json:
        print_json([asdict(line) for line in found])
    else:
        rows = [("ok" if line.ok else "missing", line.what, line.found, "" if line.ok else line.mend) for line in found]
        print_table("", ["", "what", "found", "mend"], rows)
