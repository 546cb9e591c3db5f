"""The server under load: nothing lost, doubled or mixed, nothing left behind (L1 and L16 in full)."""

import asyncio
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect

from envhub.errors import EnvError
from envhub.server.client import RemoteEnv
from envhub.server.connection import Refused
from tests.served import package, serve

ECHO = """
from envhub import Env, EnvSpec

class Echo(Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.name, self.n = seed, 0
        return f"{seed}", {}
    def step(self, action):
        self.n += 1
        return f"{self.name} {self.n} {action}", 1.0, False, False, {}

SPEC = EnvSpec(id="t/Echo-v1", make=Echo, inline=True)
"""
SESSIONS, STEPPING, STEPS = 2000, 200, 500
DROPPED = int(os.environ.get("ENVHUB_SOAK_SESSIONS", "10000"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    site = package(tmp_path_factory.mktemp("site"), "t/Echo-v1", ECHO)
    with serve("t/Echo-v1", "--workers", "2", "--max-sessions", str(SESSIONS), site=site) as served:
        yield served.url, served.process.pid


def held(pid: int) -> dict[str, int]:
    """What a process tree holds: files, threads, and resident MiB."""
    found = {"files": 0, "threads": 0, "mib": 0}
    pids = [pid, *(int(p) for t in Path(f"/proc/{pid}/task").iterdir() for p in (t / "children").read_text().split())]
    for one in pids:
        found["files"] += len(os.listdir(f"/proc/{one}/fd"))
        found["threads"] += len(os.listdir(f"/proc/{one}/task"))
        found["mib"] += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return found


def test_many_sessions_lose_double_and_mix_nothing(server: tuple[str, int]) -> None:
    url, pid = server

    async def episode(env: RemoteEnv, name: int, steps: int) -> None:
        for number in range(1, steps + 1):
            observation, *_ = await env.step(f"{name}.{number}")
            assert observation == f"{name} {number} {name}.{number}"

    async def run() -> dict[str, int]:
        envs = [RemoteEnv(url, "t/Echo-v1") for _ in range(SESSIONS)]
        async with asyncio.TaskGroup() as group:
            for name, env in enumerate(envs):
                group.create_task(env.reset(seed=name))
        over = RemoteEnv(url, "t/Echo-v1", wait_s=0.0)
        with pytest.raises(Refused, match=f"All {SESSIONS} sessions are in use"):
            await over.reset(seed=0)
        async with asyncio.TaskGroup() as group:
            for name in random.Random(1).sample(range(SESSIONS), STEPPING):
                group.create_task(episode(envs[name], name, STEPS))
        at_most = held(pid)
        async with asyncio.TaskGroup() as group:
            for env in envs:
                group.create_task(env.close())
        return at_most

    at_most = asyncio.run(run())
    assert at_most["mib"] < 1536
    state = httpx.get(f"{url}/ready").json()["fleets"]["t/Echo-v1"]
    assert (state["sessions"], state["restarts"]) == (0, 0)


async def drop(url: str, way: int) -> None:
    """Open a session and part from it in one of five ways."""
    env = RemoteEnv(url, "t/Echo-v1")
    match way % 5:
        case 0:
            await env.reset(seed=1)
            await env.close()
        case 1:  # never stepped, never reset
            await env.open()
            await env.close()
        case 2:  # OpenEnv's socket, gone without a word
            async with connect(f"{url.replace('http', 'ws')}/ws") as socket:
                await socket.send('{"type": "reset"}')
                await socket.recv()
        case 3:  # cancelled in mid-step
            await env.reset(seed=1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await env.step("x")
            await env.close()
        case 4:
            await env.reset(seed=1)
            await env.step("x")
            await env.close()
            with pytest.raises((EnvError, Refused)):
                await env._call("step", "x")


def test_sessions_dropped_in_every_way_leave_nothing(server: tuple[str, int]) -> None:
    url, pid = server

    async def many(count: int) -> None:
        room = asyncio.Semaphore(20)

        async def one(way: int) -> None:
            async with room:
                await drop(url, way)

        async with asyncio.TaskGroup() as group:
            for way in range(count):
                group.create_task(one(way))

    asyncio.run(many(100))
    time.sleep(0.5)
    before = held(pid)
    asyncio.run(many(DROPPED))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and httpx.get(f"{url}/ready").json()["fleets"]["t/Echo-v1"]["sessions"]:
        time.sleep(0.1)
    after = held(pid)
    assert httpx.get(f"{url}/ready").json()["fleets"]["t/Echo-v1"]["sessions"] == 0
    assert after["files"] <= before["files"] + 2
    assert after["threads"] <= before["threads"] + 2
    assert after["mib"] <= before["mib"] + 20
