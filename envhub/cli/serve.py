"""`envhub serve`: environments as services."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from envhub.cli.options import parse_options


def serve_command(
    envs: Annotated[list[str] | None, typer.Argument(help="Ids of `envhub list`.")] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="A fleet file instead of ids.")] = None,
    override: Annotated[list[str], typer.Option("--set", help="key=value for the fleet file.")] = [],  # noqa: B006
    host: Annotated[str | None, typer.Option(help="Where to listen; loopback unless --auth is given.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 takes any free one.")] = None,
    option: Annotated[list[str], typer.Option(help="key=value for the environments named here.")] = [],  # noqa: B006
    workers: Annotated[int | None, typer.Option(min=1, help="Processes per environment.")] = None,
    max_sessions: Annotated[int | None, typer.Option(min=1, help="Sessions at once per environment.")] = None,
    max_workers: Annotated[int | None, typer.Option(min=1, help="With it, workers come and go with the sessions.")] = None,
    ray: Annotated[str | None, typer.Option(help="A Ray cluster for the workers: host:port, auto or local.")] = None,
    auth: Annotated[Path | None, typer.Option(help="Tenants and their tokens' hashes.")] = None,
) -> None:
    """Serve environments: OpenEnv's wire, EnvHub's own and JSON, at /envs/<id> of one address."""
    serve = import_module("envhub.runs.serve")

    def settings() -> Any:
        server = {"host": host, "port": port, "auth": auth, "ray": ray}
        fleet: dict[str, Any] = {"workers": workers, "max_workers": max_workers, "max_sessions": max_sessions}
        fleet |= {"options": parse_options(option) or None}
        return serve.serve_config(envs or [], config, override, server, fleet)

    raise typer.Exit(serve.serve(settings(), settings))
