"""The wall: what is tried inside fails, what is asked is answered, nothing outlives it. Each attack works without the wall."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from envhub.sandbox import wall

PROGRAM = """
import json, os, signal, socket, sys, time
sys.path.insert(0, sys.argv[1])
walled, told = sys.argv[2] == "walled", json.loads(sys.argv[3])
if walled:
    import wall
    wall.shut_in(memory_bytes=512 << 20, cpu_s=5)

def tried(attack):
    try:
        return repr(attack())
    except BaseException as error:
        return type(error).__name__

def forks():
    made = 0
    for _ in range(told["forks"]):
        if os.fork() == 0:
            time.sleep(3)
            os._exit(0)
        made += 1
    return made

def write(path):
    with open(path, "w") as file:
        return file.write("x")

attacks = {
    "answer": lambda: 6 * 7,
    "read": lambda: open(told["secret"]).read(),
    "passwd": lambda: len(open("/etc/passwd").read()) > 0,
    "list": lambda: sorted(os.listdir("/")),
    "write": lambda: write(told["victim"]),
    "create": lambda: write("/tmp/x") or write("/x"),
    "connect": lambda: socket.socket().connect(("127.0.0.1", told["port"])),
    "kill": lambda: os.kill(told["pid"], 0),
    "proc": lambda: len(os.listdir("/proc")),
    "root": lambda: os.setuid(0),
    "mount": lambda: os.chroot("/"),
    "environ": lambda: os.environ.get("SECRET"),
    "exec": lambda: os.execv("/bin/true", ["true"]) if walled else "ran",
    "memory": lambda: len(bytearray(1 << 30)),
    "pid": lambda: os.getpid() == 1,
    "forks": forks,
}
print(json.dumps({name: tried(attacks[name]) for name in told["attacks"]}), flush=True)
"""
HARMLESS = {"answer": "42", "list": "[]", "pid": "True", "environ": "None"}
REFUSED = {
    **{"read": "FileNotFoundError", "passwd": "FileNotFoundError", "write": "FileNotFoundError", "connect": "OSError"},
    **{"kill": "ProcessLookupError", "proc": "FileNotFoundError", "root": "PermissionError", "mount": "PermissionError"},
    **{"exec": "FileNotFoundError", "memory": "MemoryError"},
}


@pytest.fixture
def canary(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "secret").write_text("canary")
    (tmp_path / "victim").write_text("whole")
    listener = socket.create_server(("127.0.0.1", 0))
    return {"secret": str(tmp_path / "secret"), "victim": str(tmp_path / "victim"), "listener": listener, "forks": 0}


def run(canary: dict[str, Any], attacks: list[str], *, how: str = "walled", python: str = sys.executable, **more: Any) -> Any:
    told = {k: v for k, v in canary.items() if k != "listener"} | {"attacks": attacks, "pid": os.getpid()}
    told |= {"port": canary["listener"].getsockname()[1]} | more
    home = str(Path(wall.__file__).parent)
    command = [python, "-c", PROGRAM, home, how, json.dumps(told)]
    env = {"SECRET": "s", "PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    return json.loads(done.stdout) if done.stdout else done.stderr


def test_every_attack_is_refused_inside_and_works_outside(canary: dict[str, Any]) -> None:
    names = list({**HARMLESS, **REFUSED})
    inside = run(canary, names)
    found = {name: inside[name] for name in REFUSED if name != "create"}
    assert {name: inside[name] for name in HARMLESS} == HARMLESS
    assert found.pop("connect") in ("OSError", "ConnectionRefusedError")  # its own loopback is down, or empty
    assert found == {name: kind for name, kind in REFUSED.items() if name != "connect"}
    assert run(canary, ["create"])["create"] in ("OSError", "FileNotFoundError", "PermissionError")
    canary["listener"].settimeout(0.2)
    with pytest.raises(TimeoutError):
        canary["listener"].accept()  # no packet came through
    assert Path(canary["victim"]).read_text() == "whole"
    outside = run(canary, ["read", "passwd", "connect", "kill", "proc", "memory", "environ", "write"], how="open")
    assert not {name for name, told in outside.items() if told.endswith("Error")}
    assert Path(canary["victim"]).read_text() == "x"
    canary["listener"].close()


def test_a_fork_bomb_is_bounded_and_gone(canary: dict[str, Any]) -> None:
    told = run(canary, ["forks"], forks=400)
    canary["listener"].close()
    assert told["forks"] == "BlockingIOError"
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _walls():
        time.sleep(0.05)
    assert _walls() == []


def _walls() -> list[int]:
    """Processes with an id that only walls give."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                uid = int(next(x for x in (folder / "status").read_text().splitlines() if x.startswith("Uid:")).split()[1])
            except (OSError, StopIteration):
                continue
            found += [int(folder.name)] if uid >= wall.FIRST_NOBODY else []
    return found


RUNAWAY = """
import ctypes, os, sys, time
sys.path.insert(0, sys.argv[1])
import wall
wall.shut_in(memory_bytes=512 << 20, cpu_s=30)
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)  # would rather not die with its parent
os.setsid()
if os.fork() == 0:
    os.setsid()
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("number", [15, 9])
def test_a_runaway_is_taken_along_however_its_keeper_ends(number: int) -> None:
    """A keeper that is killed outright takes its prisoner along too, by the end of its own parent's wait."""
    command = [sys.executable, "-c", RUNAWAY, str(Path(wall.__file__).parent)]
    outer = f"import subprocess, sys, time; p = subprocess.Popen({command!r}); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        assert _walls()
        parent.send_signal(number)
        parent.wait()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and _walls():
        time.sleep(0.05)
    assert _walls() == []


def test_an_ordinary_user_is_shut_in_by_a_user_namespace(canary: dict[str, Any], tmp_path: Path) -> None:
    python, setpriv = "/usr/bin/python3", shutil.which("setpriv")
    assert setpriv is not None
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(wall.__file__, home / "wall.py")
    for folder in (home, *home.resolve().parents):
        if folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o755 if folder == home else folder.stat().st_mode | 0o011)
    told = {
        "attacks": ["answer", "passwd", "list", "connect", "root", "kill", "memory", "mount"],
        "pid": os.getpid(),
        "forks": 0,
    }
    told |= {"port": canary["listener"].getsockname()[1]}
    command = [setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", python, "-c", PROGRAM, str(home), "walled"]
    done = subprocess.run([*command, json.dumps(told)], capture_output=True, text=True, timeout=60, check=False)
    canary["listener"].close()
    found = json.loads(done.stdout)
    assert found.pop("connect") in ("OSError", "ConnectionRefusedError")
    assert found.pop("root") == "OSError"  # there is no such id inside
    names = ("passwd", "kill", "memory", "mount")
    assert found == {"answer": "42", "list": "[]"} | {name: REFUSED[name] for name in names}


def test_what_this_machine_does_not_allow_is_told_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    with pytest.raises(wall.WallError, match="needs Linux"):
        wall.shut_in(memory_bytes=1 << 30, cpu_s=1)
