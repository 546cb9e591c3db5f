"""`envhub`: the commands, and what their ends mean. Exit codes: 0 done, 1 failed, 2 wrong request, 130 interrupted."""

import sys
import traceback

import typer

from envhub.cli import check, doctor, eval, list_, models, new, play, setup, show, train
from envhub.errors import ConfigError, EnvHubError

app = typer.Typer(help="Agentic environments, served and learned from.", no_args_is_help=True, pretty_exceptions_enable=False)
app.command("list")(list_.list_command)
app.command("show")(show.show_command)
app.command("new")(new.new_command)
app.command("check")(check.check_command)
app.command("setup")(setup.setup_command)
app.command("play")(play.play_command)
app.command("train")(train.train_command)
app.command("eval")(eval.eval_command)
app.command("doctor")(doctor.doctor_command)
app.add_typer(models.app, name="models")


def main() -> None:
    """The console entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and give its exit code. Typer explains wrong arguments itself and ends in SystemExit, as commands do."""
    debug = "--debug" in arguments
    try:
        app(args=[a for a in arguments if a != "--debug"], prog_name="envhub")
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
