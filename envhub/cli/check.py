"""`envhub check`: is an environment what it says it is?"""

from dataclasses import asdict
from typing import Annotated

import typer

from envhub.cli.options import parse_options
from envhub.cli.output import print_json, print_table
from envhub.envs.check import check
from envhub.envs.registry import load_spec

SIGNS = {"passed": "ok", "failed": "FAILED", "skipped": "-"}


def check_command(
    env: Annotated[str, typer.Argument(help="An id of `envhub list`, or the URL of a served environment.")],
    option: Annotated[list[str], typer.Option(help="key=value for the environment.")] = [],  # noqa: B006
    deadline: Annotated[float, typer.Option(min=1, help="Seconds that one rule may take.")] = 120.0,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Try the rules of conformance and honesty on an environment; ends with 1 if it breaks one."""
    findings = check(load_spec(env), parse_options(option), deadline_s=deadline)
    if json:
        print_json({"env": env, "ok": all(f.verdict != "failed" for f in findings), "findings": [asdict(f) for f in findings]})
    else:
        print_table(env, ["rule", "", "what"], [(f.rule, SIGNS[f.verdict], f.detail or f.means) for f in findings])
    if any(f.verdict == "failed" for f in findings):
        raise typer.Exit(1)
