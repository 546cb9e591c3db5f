"""`envhub list`: what can be played here."""

from dataclasses import asdict, replace
from typing import Annotated

import typer

from envhub.cli.output import print_json, print_table
from envhub.envs.listing import Listed
from envhub.envs.registry import list_environments, load_spec
from envhub.errors import ConfigError


def list_command(
    check: Annotated[bool, typer.Option("--check", help="Import every package, and list what is wrong with it.")] = False,
    tag: Annotated[list[str], typer.Option(help="Only environments with this tag.")] = [],  # noqa: B006
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """List the environments that installed packages offer; nothing is imported unless --check is given.

    Ends with 1 if --check finds a broken package, or if two packages claim one id.
    """
    found = [_imported(listed) if check else listed for listed in list_environments()]
    shown = [listed for listed in found if set(tag) <= set(listed.tags)]
    if json:
        print_json([asdict(listed) for listed in shown])
    else:
        columns = ["id", "what", "tags", "isolation", "package"]
        print_table("", columns, [_row(listed) for listed in shown])
    if any("claimed by" in listed.problem or (check and listed.problem) for listed in shown):
        raise typer.Exit(1)


def _row(listed: Listed) -> tuple[str, ...]:
    what = f"BROKEN: {listed.problem}" if listed.problem else listed.summary
    runtime = "" if listed.runtime == "process" else f", {listed.runtime}"
    return listed.id, what, " ".join(listed.tags), f"{listed.isolation}{runtime}", f"{listed.package} {listed.version}"


def _imported(listed: Listed) -> Listed:
    """The listing with what only an import tells."""
    if listed.problem:
        return listed
    try:
        spec = load_spec(listed.id)
    except ConfigError as error:
        return replace(listed, problem=f"{error.what} ({error.mend})")
    return replace(listed, summary=spec.summary, tags=spec.tags, isolation=spec.isolation.value)
