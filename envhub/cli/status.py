"""`envhub status RUN`: what a run is doing, what it waits for, and what went wrong so far."""

from pathlib import Path
from typing import Annotated

import typer

from envhub.cli.output import print_json, print_table
from envhub.runs.status import read_status

STALE_S = 10.0


def status_command(
    run: Annotated[Path, typer.Argument(help="A run's folder, as in runs/NAME.")],
    json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Show what a run is doing, its oldest episodes and why they last, and its failures by cause."""
    status, alive, age_s = read_status(run)
    if json:
        print_json({"alive": alive, "seen_s_ago": age_s, **status.model_dump()})
        return
    if not alive:
        state = "no process holds the run any more" if status.doing != "ended" else "the run has ended"
    else:
        state = f"{status.doing} for {status.doing_s:.0f} s" + ("; it has not been heard of since" if age_s > STALE_S else "")
    dropped = ", ".join(f"{count} {why}" for why, count in status.dropped.items() if count)
    print_table(
        "",
        ["", str(run)],
        [
            ("state", f"{state} (seen {age_s:.0f} s ago, process {status.pid})"),
            ("update", f"{status.update} of {status.updates}"),
            ("episodes", f"{status.in_flight} in flight, {status.waiting} waiting, {status.started} started"),
            ("groups", f"{status.ready} ready" + (f"; dropped: {dropped}" if dropped else "")),
            ("usual duration", "not known yet" if status.usual_s is None else f"{status.usual_s:.1f} s (95th percentile)"),
            ("failed episodes", str(status.failed)),
        ],
    )
    if status.oldest:
        rows = [(e.id, "slow" if e.slow else "", e.why(status.usual_s)) for e in status.oldest]
        print_table("\noldest episodes", ["lease", "", "why"], rows)
    if status.causes:
        causes = sorted(status.causes.items(), key=lambda item: -item[1])
        print_table("\nfailures", ["count", "cause"], [(str(count), cause) for cause, count in causes])
