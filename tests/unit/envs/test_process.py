"""Environments in a process of their own: the same answers, honest errors, and nothing left when either side dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from envhub.envs.check import check
from envhub.envs.registry import load_spec
from envhub.envs.runtime.process import EnvProcess, child_command, spec_of
from envhub.errors import ConfigError, EnvError

TROUBLE = """
import os, sys, time
from envhub import Env, EnvSpec
from envhub.envs.core import StateLevel

class Trouble(Env):
    state_level = StateLevel.STATE
    def __init__(self, *, bad=False):
        if bad:
            raise ValueError("bad option")
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return "begin", {}
    def step(self, action):
        self.n += 1
        print("noise on standard output")
        given = ("seen", 1.0, False, False, {"n": self.n})
        match action:
            case "raise": raise RuntimeError("so")
            case "die": os._exit(3)
            case "hang": time.sleep(60)
            case "short": return given[:4]
            case "number": return (7, *given[1:])
            case "nan": return ("x", float("nan"), *given[2:])
            case "object": return (*given[:4], {"x": object()})
        return given

SPEC = EnvSpec(id="t/Trouble-v1", make=Trouble, inline=INLINE)
"""


@pytest.fixture(params=[True, False], ids=["inline", "threads"])
def process(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "trouble.py").write_text(TROUBLE.replace("INLINE", str(request.param)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    running = EnvProcess(child_command(sys.executable, "trouble:SPEC"), name="trouble")
    yield running
    running.close()


def test_a_hosted_environment_keeps_every_rule_that_it_keeps_at_home() -> None:
    target = "envhub_games.duel_tic_tac_toe:SPEC"
    running = EnvProcess(child_command(sys.executable, target), name="duel")
    findings = check(spec_of(lambda: running), {})
    assert [(f.rule, f.detail) for f in findings if f.verdict == "failed"] == []
    assert {f.rule for f in findings if f.verdict == "passed"} >= {"state", "seeds", "hostile", "instances", "close"}
    running.close()


def test_a_hosted_spec_says_what_the_spec_says() -> None:
    running = EnvProcess(child_command(sys.executable, "envhub_games.frozen_lake:SPEC"), name="lake")
    there, here = spec_of(lambda: running), load_spec("game/FrozenLake-v1")
    for name in ("id", "instructions", "max_turns", "success_reward", "reward_range", "reward_kind", "players", "baselines"):
        assert getattr(there, name) == getattr(here, name)
    assert there.tasks is not None
    assert here.tasks is not None
    assert there.tasks(size=3).get("test", 5) == here.tasks(size=3).get("test", 5)
    running.close()


@pytest.mark.parametrize(
    ("action", "part"),
    [
        ("raise", "RuntimeError: so"),
        ("short", "ContractError: step gave tuple"),
        ("number", "ContractError: the observation is int, not text"),
        ("nan", "ContractError: the reward is nan"),
        ("object", "ContractError: the answer holds no plain values"),
    ],
)
def test_a_broken_step_is_named_and_the_environment_lives(process: EnvProcess, action: str, part: str) -> None:
    env: Any = spec_of(lambda: process).make()
    env.reset(seed=1)
    with pytest.raises(EnvError) as caught:
        env.step(action)
    assert part in caught.value.what
    assert env.step("go")[4] == {"n": 2}


def test_options_that_it_refuses_are_refused_here(process: EnvProcess) -> None:
    with pytest.raises(ValueError, match="bad option"):
        spec_of(lambda: process).make(bad=True)


def test_a_dead_child_is_an_error_at_once_in_every_session(process: EnvProcess) -> None:
    one, other = spec_of(lambda: process).make(), spec_of(lambda: process).make()
    one.reset(seed=1), other.reset(seed=1)
    began = time.monotonic()
    for env, action in ((one, "die"), (other, "go")):
        with pytest.raises(EnvError, match="process died"):
            env.step(action)
    assert time.monotonic() - began < 2
    one.close(), other.close()


def test_a_hung_verb_has_a_deadline(process: EnvProcess) -> None:
    session = process.session()
    process.call(session, "make", {})
    process.call(session, "reset", [0, None])
    with pytest.raises(EnvError, match=r"step took over 0.2 s"):
        process.call(session, "step", "hang", deadline_s=0.2)


def test_what_does_not_start_is_a_wrong_request() -> None:
    for target, part in (("no_such_module:SPEC", "no_such_module"), ("json:loads", "no EnvSpec")):
        with pytest.raises(ConfigError, match=part):
            EnvProcess(child_command(sys.executable, target), name="x")


def test_a_child_never_outlives_its_parent(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom envhub.envs.runtime.process import EnvProcess, child_command\n"
        "p = EnvProcess(child_command(sys.executable, 'envhub_games.frozen_lake:SPEC'), name='x')\n"
        "print(p._process.pid, flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _alive(child):
        time.sleep(0.02)
    assert not _alive(child)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
