"""`envhub token`: a new tenant's token."""

from typing import Annotated

import typer

from envhub.server.auth import new_token


def token_command(name: Annotated[str, typer.Argument(help="The tenant's name.")]) -> None:
    """Make a token: it goes to the tenant, and the line with its hash into the auth file."""
    token, digest = new_token()
    typer.echo(f"token for {name}, shown once: {token}", err=True)
    typer.echo(f"  {name}: {{token_sha256: {digest}}}")
