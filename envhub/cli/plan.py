"""`envhub plan CONFIG`: what a run would take, before any device is taken."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from envhub.cli.options import parse_options
from envhub.cli.output import print_json, print_table
from envhub.errors import ConfigError
from envhub.settings import load_settings


def plan_command(
    config: Annotated[Path, typer.Argument(help="A YAML file, as in configs/.")],
    overrides: Annotated[list[str], typer.Argument(help="section.key=value ...")] = [],  # noqa: B006
    simulate: Annotated[bool, typer.Option("--simulate", help="Run its scheduler on a virtual clock.")] = False,
    recorded: Annotated[Path | None, typer.Option("--recorded", help="Replay the durations of this run's folder.")] = None,
    assume: Annotated[
        list[str], typer.Option("--assume", help="mean_s=2, sigma=1, train_s=1, slots=64, fail_slow=0.02 ...")
    ] = [],  # noqa: B006
    json: Annotated[bool, typer.Option("--json", help="Results as JSON.")] = False,
) -> None:
    """Show the schedule of a config, and what it costs against others."""
    found = import_module("envhub.runs.plan")
    settings = load_settings(import_module("envhub.runs.config").TrainConfig, config, overrides)
    if (recorded is not None or assume) and not simulate:
        raise ConfigError("--recorded and --assume are for simulation", mend="add --simulate")
    schedule = found.describe(settings)
    if not simulate:
        if json:
            print_json({"schedule": schedule})
        else:
            print_table("schedule", ["what", "value"], [(k, f"{v:,}") for k, v in schedule.items()])
        return
    recording = None if recorded is None else found.read_recording(recorded)
    workload, planned = found.plan(settings, assumed=parse_options(assume, name="--assume"), recording=recording)
    if json:
        shown = workload.model_dump(mode="json", exclude={"recorded_s"})
        print_json({"schedule": schedule, "assumed": shown, "simulated": found.as_json(planned)})
        return
    print_table("schedule", ["what", "value"], [(k, f"{v:,}") for k, v in schedule.items()])
    lasts = f"{workload.mean_s:g} s on average, spread {workload.sigma:g} of the logarithm"
    if workload.recorded_s:
        lasts = f"as {len(workload.recorded_s):,} recorded ones"
    hint = "" if recording or assume else "; give --recorded RUN or --assume key=value for your own"
    typer.echo(
        f"\nsimulated: {workload.updates} updates on {workload.slots} slots; episodes last {lasts}; an update takes "
        f"{workload.train_s:.3g} s{hint}"
    )
    print_table("", found.COLUMNS, found.table(planned))
