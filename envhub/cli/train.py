"""`envhub train CONFIG`: teach a policy."""

from contextlib import closing
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from envhub.cli.output import print_json, print_table
from envhub.settings import load_settings, to_yaml
from envhub.types import EvalSummary
from envhub.viewer.live import open_display


def train_command(
    config: Annotated[Path, typer.Argument(help="A YAML file, as in configs/.")],
    overrides: Annotated[list[str], typer.Argument(help="section.key=value ...")] = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show config and schedule; load and write nothing.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run of this name stopped.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Results as JSON.")] = False,
) -> None:
    """Train a policy as a config says."""
    run = import_module("envhub.runs.train")  # torch and deepspeed, which the other commands never need
    settings = load_settings(run.TrainConfig, config, overrides)
    if dry_run:
        schedule = import_module("envhub.runs.plan").describe(settings)
        if json:
            print_json({"config": settings.model_dump(mode="json"), "schedule": schedule})
        else:
            typer.echo(to_yaml(settings))
            print_table("schedule", ["what", "value"], [(k, f"{v:,}") for k, v in schedule.items()])
        return
    with closing(open_display()) as display:  # however the run ends, the terminal gets its cursor back
        result = run.train(settings, resume=resume, display=display)
    if json:
        print_json(asdict(result))
    elif not result.interrupted:
        _show(result.before, result.after, result.replay)
        typer.echo(f"\nreport: {result.report}")
    if result.interrupted:
        typer.echo(f"interrupted after update {result.updates}; go on with --resume", err=True)
        raise typer.Exit(143 if result.terminated else 130)


def _show(before: EvalSummary | None, after: EvalSummary | None, replay: str) -> None:
    if after is not None:
        rows = import_module("envhub.viewer.report").comparison_rows(before, after)
        print_table("held-out tasks", ["", "before", "after"], rows)
        typer.echo(f"\none episode:\n{replay}")
