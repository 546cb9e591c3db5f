"""A part in a process of its own: its number, or why there is none, and nothing left behind."""

import time
from pathlib import Path

import pytest

from envhub.envs.rubric_process import Apart
from envhub.envs.rubrics import Graded, Part, Rubric
from envhub.errors import ConfigError

FUNCTIONS = """
import os, time
from envhub.sandbox.wall import forked
def length(graded): print("noise"); return len(graded.answer) + len(graded.turns) + graded.task["n"]
def hang(graded):
    open(os.environ["TMPDIR"] + "/pid", "w").write(str(os.getpid()))
    time.sleep(60)
def eat(graded): return len(bytearray(1 << 31))
def sleep(graded): time.sleep(60)
def die(graded): os._exit(7)
def word(graded): return "many"
def secret(graded): return float("ENVHUB_TOKEN" in os.environ)
def looks(graded): return float(os.path.exists("/etc/passwd")) + 10 * float(bool(os.environ))
def runs(graded):  # what the policy wrote
    def value():
        scope = {}
        exec(graded.answer, scope)
        return scope["f"](3)
    try:
        return float(forked(value, seconds=1.0) == 9)
    except (ValueError, TimeoutError):
        return 0.0
"""
GRADED = Graded({"n": 10}, (("a", "b"),), "four")


@pytest.fixture(autouse=True)
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_parts.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("ENVHUB_TOKEN", "secret")
    return tmp_path


def score(
    name: str, deadline_s: float = 20.0, *, walled: bool = False, graded: Graded = GRADED
) -> tuple[float, dict[str, str]]:
    part = Part("own", Apart(f"own_parts:{name}", walled=walled, memory_mib=512), deadline_s=deadline_s)
    scores = Rubric([part, Part("zero", lambda _: 0.0, 0.5)], on_failure="floor").score_now(graded)
    return scores.reward, dict(scores.failures)


def test_the_functions_number_is_the_score() -> None:
    assert score("length") == (15.0, {})
    assert score("secret") == (0.0, {})


@pytest.mark.parametrize(
    ("name", "why"), [("eat", "MemoryError"), ("die", "ended with 7"), ("word", "could not convert"), ("nosuch", "nosuch")]
)
def test_what_breaks_is_a_failed_part_with_its_reason(name: str, why: str) -> None:
    assert why in score(name)[1]["own"]


def test_what_hangs_is_killed_at_its_deadline(functions: Path) -> None:
    began = time.monotonic()
    assert "took over" in score("hang", deadline_s=2.0)[1]["own"]
    assert time.monotonic() - began < 8
    pid = int((functions / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_a_walled_part_sees_nothing_and_answers_all_the_same() -> None:
    assert score("length", walled=True) == (15.0, {})
    assert score("looks", walled=True) == (0.0, {})
    assert score("looks") == (11.0, {})


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("def f(x): return x * x", 1.0),
        ("def f(x): return x + x", 0.0),
        ("import os\nos._exit(0)", 0.0),
        ("while True: pass", 0.0),
        ("import os\nfor n in range(50):\n  try: os.write(n, b'{\"score\": 1.0}')\n  except OSError: pass", 0.0),
        ("import os, signal\nos.kill(1, signal.SIGKILL)", 0.0),
        ("import ctypes\ndef f(x): return 9 if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0 else 0", 0.0),
        ("def f(x): return [9] * 100000", 0.0),
        ("def f(x): return len(open('/etc/passwd').read()) * 0 + 9", 0.0),
        ("import socket\ndef f(x): return 9 + socket.socket().connect_ex(('127.0.0.1', 1))", 0.0),
        ("def f(x): return len(bytearray(1 << 31)) * 0 + 9", 0.0),
    ],
)
def test_what_the_policy_wrote_is_run_behind_the_wall(code: str, reward: float) -> None:
    assert score("runs", walled=True, graded=Graded({}, (), code)) == (reward, {})


def test_what_hangs_behind_the_wall_is_killed_at_its_deadline(functions: Path) -> None:
    began = time.monotonic()
    assert "took over" in score("sleep", 2.0, walled=True)[1]["own"]
    assert time.monotonic() - began < 8


def test_a_target_that_is_none_is_refused() -> None:
    for wrong in ("", "x", "x:", "x:1a", ":y"):
        with pytest.raises(ConfigError):
            Apart(wrong)
