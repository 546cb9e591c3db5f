"""How commands end: their exit codes, and what they leave on the terminal."""

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from envhub.cli.main import run
from envhub.cli.options import parse_options
from envhub.errors import ConfigError

COMMAND = [sys.executable, "-m", "envhub.cli.main"]


def envhub(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False, input=given)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nosuch"], "nosuch"),
        (["show"], "Missing argument"),
        (["eval", "game/FrozenLake-v1"], "--policy"),
        (["eval", "game/FrozenLake-v1", "--policy", "random", "--episodes", "0"], "greater than or equal to 1"),
        (["list", "--nosuch"], "--nosuch"),
    ],
)
def test_a_wrong_argument_is_a_wrong_request_without_a_traceback(arguments: list[str], part: str) -> None:
    done = envhub(*arguments)
    assert done.returncode == 2
    assert part in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_help_and_success_end_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert (run(["--help"]), run(["list", "--json"])) == (0, 0)
    assert "game/FrozenLake-v1" in capsys.readouterr().out


def test_debug_adds_the_traceback_and_changes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "no/Such-v1"]) == 2
    plain = capsys.readouterr().err
    assert run(["show", "no/Such-v1", "--debug"]) == 2
    assert capsys.readouterr().err.endswith(plain)
    assert "Traceback" not in plain


def test_the_command_line_needs_no_package_that_nobody_declares() -> None:
    program = "import sys; sys.modules['click'] = None; from envhub.cli.main import run; sys.exit(run(['list']))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


def test_options_are_read_as_in_a_config() -> None:
    assert parse_options(["p=1e-1", "slippery=false", "map=[[1, 2]]"]) == {"p": 0.1, "slippery": False, "map": [[1, 2]]}
    for wrong in ("p", "=1", "p=0x_", "p=[", "p=" + "[" * 100_000):
        with pytest.raises(ConfigError, match="--option"):
            parse_options([wrong])


def test_playing_with_options_that_make_no_game_is_a_wrong_request() -> None:
    done = envhub("play", "game/FrozenLake-v1", "--option", "zzz=1")
    assert done.returncode == 2
    assert "refuses its options" in done.stderr


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = envhub("eval", "no/Such-v1", "--policy", "random", "--out", str(tmp_path / "file" / "out"))
    assert (done.returncode, "choose another --out" in done.stderr) == (2, True)


@pytest.mark.slow
def test_an_interrupted_run_gives_the_cursor_back(small_config: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = [*COMMAND, "train", str(small_config), "run.updates=5000"]
    shown, seen = bytearray(), threading.Event()
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        reader = threading.Thread(target=_drain, args=(ours, shown, seen))
        reader.start()
        try:
            assert seen.wait(120)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        finally:
            process.kill()
            reader.join(10)
            os.close(ours)
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") >= 0


def _drain(terminal: int, shown: bytearray, seen: threading.Event) -> None:
    """Read what the terminal shows until its last writer is gone; `seen` is set at the first update."""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # Linux ends a pseudo-terminal so
            return
        if b"reward" in shown:
            seen.set()
