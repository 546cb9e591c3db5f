"""What serving costs: CPU time per step of the server's processes, measured alternately in one run.

    python benchmarks/serve.py [--openenv PYTHON] [--sessions 64] [--rounds 5] [--seconds 2]

Servers: EnvHub's with a trivial environment (through the client, one socket), a bare WebSocket echo on the same stack (uvicorn,
one socket a session), and OpenEnv's own server with its own client where `--openenv` names a Python that has openenv 0.10. CPU
time is that of the whole process tree, from /proc, and is robust on a busy machine.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from envhub.server.client import RemoteEnv

ECHO = """
from envhub import Env, EnvSpec

class Echo(Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return "ready", {}
    def step(self, action):
        self.n += 1
        return action, 1.0, False, False, {}

SPEC = EnvSpec(id="bench/Echo-v1", make=Echo, inline=True, summary="Says what it hears.")
"""
BARE = """
import json, socket, sys, uvicorn
async def app(scope, receive, send):
    if scope["type"] != "websocket":
        return
    await receive()
    await send({"type": "websocket.accept"})
    n = 0
    while (message := await receive())["type"] == "websocket.receive":
        n += 1
        text = json.loads(message["text"])["text"]
        told = {"observation": {"text": text, "n": n}, "reward": 1.0, "done": False}
        await send({"type": "websocket.send", "text": json.dumps(told)})
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), ws="websockets-sansio", loop="uvloop", log_level="error",
            access_log=False, ws_per_message_deflate=False, lifespan="off")
"""
OPENENV = """
import sys, uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
class Act(Action):
    text: str
class Obs(Observation):
    text: str = ""
class Echo(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        super().__init__()
        self.s = State(step_count=0)
    def reset(self, seed=None, episode_id=None, **kw):
        self.s = State(episode_id=episode_id, step_count=0)
        return Obs(text="ready", done=False, reward=0.0)
    def step(self, action, timeout_s=None, **kw):
        self.s.step_count += 1
        return Obs(text=action.text, done=False, reward=1.0)
    @property
    def state(self):
        return self.s
app = create_app(Echo, Act, Obs, env_name="bench", max_concurrent_envs=4096)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
"""
OPENENV_CLIENT = """
import asyncio, json, sys, time
from openenv.core.generic_client import GenericEnvClient
async def main():
    port, sessions, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    clients = [GenericEnvClient(base_url=f"http://127.0.0.1:{port}", connect_timeout_s=60) for _ in range(sessions)]
    for c in clients:
        await c.connect()
        await c.reset()
    print("ready", flush=True)
    sys.stdin.readline()
    steps, began, cpu = 0, time.perf_counter(), time.process_time()
    async def one(c):
        nonlocal steps
        while time.perf_counter() - began < seconds:
            await c.step({"text": "right"})
            steps += 1
    await asyncio.gather(*[one(c) for c in clients])
    print(json.dumps([steps, time.perf_counter() - began, time.process_time() - cpu]), flush=True)
    for c in clients:
        await c.close()
asyncio.run(main())
"""


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process and its living children."""
    total = 0.0
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(map(tree_cpu, map(int, (task / "children").read_text().split())))
    return total


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], port: int, env: dict[str, str] | None = None) -> Iterator[int]:
    """A server's process id, once its port answers."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
                break
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def closed_loop(step: list[Callable[[], Any]], seconds: float) -> tuple[int, float]:
    """Every session steps as fast as it is answered; steps and seconds."""
    steps, began = 0, time.perf_counter()

    async def one(act: Callable[[], Any]) -> None:
        nonlocal steps
        while time.perf_counter() - began < seconds:
            await act()
            steps += 1

    async with asyncio.TaskGroup() as group:
        for act in step:
            group.create_task(one(act))
    return steps, time.perf_counter() - began


async def ours(port: int, pid: int, sessions: int, seconds: float) -> dict[str, float]:
    """EnvHub's client, one socket."""
    envs = [RemoteEnv(f"http://127.0.0.1:{port}", "bench/Echo-v1") for _ in range(sessions)]
    began = time.perf_counter()
    cpu = tree_cpu(pid)
    for env in envs:
        await env.reset(seed=1)
    opened = (time.perf_counter() - began, tree_cpu(pid) - cpu)
    server, client = tree_cpu(pid), time.process_time()
    steps, took = await closed_loop([lambda e=env: e.step("right") for env in envs], seconds)
    found = _row(steps, took, tree_cpu(pid) - server, time.process_time() - client)
    for env in envs:
        await env.close()
    return found | {"open_us": opened[0] / sessions * 1e6, "open_server_cpu_us": opened[1] / sessions * 1e6}


async def bare(port: int, pid: int, sessions: int, seconds: float) -> dict[str, float]:
    """A WebSocket a session against an app that only echoes."""
    async with contextlib.AsyncExitStack() as stack:
        sockets = [
            await stack.enter_async_context(connect(f"ws://127.0.0.1:{port}", compression=None)) for _ in range(sessions)
        ]

        async def step(ws: Any) -> Any:
            await ws.send('{"text": "right"}')
            return json.loads(await ws.recv())

        server, client = tree_cpu(pid), time.process_time()
        steps, took = await closed_loop([lambda w=ws: step(w) for ws in sockets], seconds)
        return _row(steps, took, tree_cpu(pid) - server, time.process_time() - client)


def openenv(python: str, port: int, pid: int, sessions: int, seconds: float) -> dict[str, float]:
    """OpenEnv's own client in a process of its own Python."""
    command = [python, "-c", OPENENV_CLIENT, str(port), str(sessions), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdout.readline()
        server = tree_cpu(pid)
        client.stdin.write("\n")
        client.stdin.flush()
        steps, took, cpu = json.loads(client.stdout.readline())
        return _row(steps, took, tree_cpu(pid) - server, cpu)


def _row(steps: int, took: float, server: float, client: float) -> dict[str, float]:
    return {"steps_s": steps / took, "server_cpu_us": server / steps * 1e6, "client_cpu_us": client / steps * 1e6}


def main() -> None:
    """Measure and print medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--openenv", default="")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as site, contextlib.ExitStack() as stack:
        home, info = Path(site, "bench_echo"), Path(site, "bench_echo-1.0.dist-info")
        home.mkdir(), info.mkdir()
        (home / "__init__.py").write_text(ECHO)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-echo\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[envhub.environments]\nbench/Echo-v1 = bench_echo:SPEC\n")
        env = os.environ | {"PYTHONPATH": site}
        port = {"envhub": free_port(), "bare": free_port(), "openenv": free_port()}
        serve = [sys.executable, "-m", "envhub.cli.main", "serve", "bench/Echo-v1", "--port", str(port["envhub"])]
        pids = {"envhub": stack.enter_context(running(serve, port["envhub"], env))}
        pids["bare"] = stack.enter_context(running([sys.executable, "-c", BARE, str(port["bare"])], port["bare"]))
        if asked.openenv:
            pids["openenv"] = stack.enter_context(
                running([asked.openenv, "-c", OPENENV, str(port["openenv"])], port["openenv"])
            )
        rows: dict[str, list[dict[str, float]]] = {}
        for _ in range(asked.rounds):
            for name, pid in pids.items():
                if name == "openenv":
                    row = openenv(asked.openenv, port[name], pid, asked.sessions, asked.seconds)
                else:
                    row = asyncio.run((ours if name == "envhub" else bare)(port[name], pid, asked.sessions, asked.seconds))
                rows.setdefault(name, []).append(row)
    for name, found in rows.items():
        medians = {k: statistics.median(r[k] for r in found) for k in found[0]}
        low, high = min(r["server_cpu_us"] for r in found), max(r["server_cpu_us"] for r in found)
        numbers = "  ".join(f"{k} {v:,.1f}" for k, v in medians.items())
        sys.stdout.write(f"{name:8} sessions {asked.sessions}  {numbers}  (server CPU {low:.1f} to {high:.1f})\n")


if __name__ == "__main__":
    main()
