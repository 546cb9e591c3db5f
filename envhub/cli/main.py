"""`envhub`: the commands, and what their ends mean. Exit codes: 0 done, 1 failed, 2 wrong request, 130 interrupted."""

import sys
import traceback
from importlib import import_module

import typer

from envhub.errors import ConfigError, EnvHubError

COMMANDS = {
    "list": "envhub.cli.list_:list_command",
    "show": "envhub.cli.show:show_command",
    "new": "envhub.cli.new:new_command",
    "check": "envhub.cli.check:check_command",
    "setup": "envhub.cli.setup:setup_command",
    "serve": "envhub.cli.serve:serve_command",
    "token": "envhub.cli.token:token_command",
    "play": "envhub.cli.play:play_command",
    "plan": "envhub.cli.plan:plan_command",
    "train": "envhub.cli.train:train_command",
    "status": "envhub.cli.status:status_command",
    "eval": "envhub.cli.eval:eval_command",
    "doctor": "envhub.cli.doctor:doctor_command",
    "models": "envhub.cli.models:app",
}


def build_app(wanted: str) -> typer.Typer:
    """The command line with the command `wanted` alone, so that it starts as fast as it can; with all of them if it is none."""
    app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False)
    app.callback()(_commands)
    for name, place in COMMANDS.items():
        if wanted in COMMANDS and name != wanted:
            continue
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


HELP = "Agentic environments, served and learned from."


def _commands() -> None: ...


def main() -> None:
    """The console entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code. Typer explains wrong arguments itself and ends in SystemExit, as commands do."""
    debug = "--debug" in arguments
    try:
        given = [a for a in arguments if a != "--debug"]
        build_app(next(iter(given), ""))(args=given, prog_name="envhub")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except EnvHubError as error:
        if debug:
            traceback.print_exc()
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    return 0


if __name__ == "__main__":
    main()
