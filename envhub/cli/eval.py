"""`envhub eval ENV --policy POLICY`: measure a policy."""

from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from envhub.cli.options import parse_options
from envhub.cli.output import print_json, print_table
from envhub.runs.stage import PlayerOptions


def eval_command(
    env: Annotated[str, typer.Argument(help="An id of `envhub list`.")],
    policy: Annotated[str, typer.Option(help="random, solver, scripted:FILE or hf:FOLDER.")],
    option: Annotated[list[str], typer.Option(help="key=value for the environment.")] = [],  # noqa: B006
    tasks: Annotated[Path | None, typer.Option(help="A JSON lines or Parquet file, or a dataset folder, of tasks.")] = None,
    split: Annotated[str, typer.Option(help="Task split.")] = "test",
    episodes: Annotated[int, typer.Option(min=1, help="Different tasks.")] = 100,
    samples: Annotated[int, typer.Option(min=1, help="Plays of each task.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of environments and sampler.")] = 0,
    temperature: Annotated[float, typer.Option(min=0.01, help="Of sampling.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of one reply.")] = 256,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Of one episode.")] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for the episodes.")] = None,
    opponent: Annotated[list[str], typer.Option(help="A policy for another seat of a game; none plays against itself.")] = [],  # noqa: B006
    seat: Annotated[int | None, typer.Option(min=0, help="Where the policy sits; by default it takes turns.")] = None,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Play a split's tasks and report success and reward with 95 % intervals."""
    summary = import_module("envhub.runs.evaluate").evaluate(
        env,
        policy,
        options=parse_options(option),
        split=split,
        episodes=episodes,
        samples=samples,
        seed=seed,
        player=PlayerOptions(temperature, max_tokens),
        max_turns=max_turns,
        out=out,
        opponents=opponent,
        seat=seat,
        tasks=tasks,
    )
    if json:
        print_json(asdict(summary))
    else:
        rows = [
            ("success", f"{summary.success_rate:.3f}", f"[{summary.success_low:.3f}, {summary.success_high:.3f}]"),
            ("reward", f"{summary.reward_mean:.3f}", f"[{summary.reward_low:.3f}, {summary.reward_high:.3f}]"),
            ("turns", f"{summary.turns_mean:.2f}", ""),
            ("episodes", str(summary.episodes), f"{summary.failed} failed"),
        ]
        print_table(f"{env}, {policy}, split {split}", ["measure", "mean", "95 %"], rows)
    if summary.episodes == 0:
        raise typer.Exit(1)
