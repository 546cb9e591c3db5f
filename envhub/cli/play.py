"""`envhub play ID`: a person plays in the terminal."""

from typing import Annotated

import typer

from envhub.cli.options import parse_options
from envhub.runs.play import play


def play_command(
    env_id: Annotated[str, typer.Argument(help="An id of `envhub list`.")],
    option: Annotated[list[str], typer.Option(help="key=value for the environment.")] = [],  # noqa: B006
    split: Annotated[str, typer.Option(help="Task split.")] = "train",
    seed: Annotated[int, typer.Option(help="Of task and environment.")] = 0,
) -> None:
    """Play an episode yourself."""
    play(env_id, options=parse_options(option), split=split, seed=seed)
