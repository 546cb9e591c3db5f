"""SIGTERM under load, again and again: no acknowledged step is lost, no process is left, the exit code is 0 (L11)."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from envhub.errors import EnvError
from envhub.server.client import RemoteEnv
from tests.served import Served, package, serve
from tests.soak.line import Line

FULL = os.environ.get("ENVHUB_SOAK") == "1"
TIMES, PLAYERS, GRACE_S = 100 if FULL else 3, 16, 1.0
pytestmark = pytest.mark.timeout(1800 if FULL else 300)

DIARY = """
import os, time
from envhub import Env, EnvSpec

class Diary(Env):
    def __init__(self, *, path):
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.name, self.n = seed, 0
        return "begin", {}
    def step(self, action):
        self.n += 1
        if action == "slow":
            time.sleep(0.6)
        os.write(self.file, f"{self.name}.{action}\\n".encode())
        return f"{self.n}", 1.0, False, False, {}
    def close(self):
        os.close(self.file)

SPEC = EnvSpec(id="t/Diary-v1", make=Diary, inline=True)
"""


async def play(url: str, name: int, acknowledged: Counter[int]) -> None:
    """Step for as long as somebody answers."""
    env = RemoteEnv(url, "t/Diary-v1")
    await env.reset(seed=name)
    try:
        while True:
            number = acknowledged[name] + 1
            observation, *_ = await env.step(str(number))
            assert observation == str(number)
            acknowledged[name] = number
    except EnvError:
        return  # its session was ended


async def refused(url: str) -> tuple[int, str]:
    """What newcomers are told, once the server says that it is not ready any more; at most a second from now."""
    async with Line(url) as line, asyncio.timeout(1.0):
        while (await line.ask("GET", "/ready")).status != 503:  # noqa: ASYNC110  another process's
            await asyncio.sleep(0.01)
        answer = await line.ask("POST", "/envs/t/Diary-v1/sessions")
    return answer.status, answer.json()["code"]


async def drained(served: Served, after_s: float, acknowledged: Counter[int]) -> tuple[tuple[int, str], int, float]:
    """Load, SIGTERM, and the end: what newcomers were told, steps acknowledged since the signal, seconds it took."""
    slow = RemoteEnv(served.url, "t/Diary-v1")
    await slow.reset(seed=PLAYERS)
    players = [asyncio.create_task(play(served.url, name, acknowledged)) for name in range(PLAYERS)]
    async with asyncio.timeout(20):
        while len(acknowledged) < PLAYERS and not any(player.done() for player in players):  # noqa: ASYNC110  all at it
            await asyncio.sleep(0.01)
    await asyncio.sleep(after_s)
    last = asyncio.create_task(slow.step("slow"))
    await asyncio.sleep(0.1)
    before, began = acknowledged.total(), time.monotonic()
    served.process.send_signal(signal.SIGTERM)
    told = await refused(served.url)
    await asyncio.to_thread(served.process.wait, 20)
    took = time.monotonic() - began
    assert (await last)[0] == "1"
    for player in players:
        player.cancel()
    ends = await asyncio.gather(*players, return_exceptions=True)
    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends), ends
    return told, acknowledged.total() - before, took


def test_a_drain_under_load_loses_no_acknowledged_step_and_no_process(tmp_path: Path) -> None:
    draw = random.Random(3)
    site = package(tmp_path / "site", "t/Diary-v1", DIARY)
    for time_ in range(TIMES):
        diary, fleet = tmp_path / f"{time_}.txt", tmp_path / f"{time_}.yaml"
        options = f"{{path: {diary}}}"
        fleet.write_text(f"fleets:\n  - {{id: t/Diary-v1, workers: 2, options: {options}}}\nport: 0\ngrace_s: {GRACE_S}\n")
        acknowledged: Counter[int] = Counter()
        with serve("-c", str(fleet), site=site) as served:
            pids = served.pids
            told, since, took = asyncio.run(drained(served, draw.uniform(0.0, 0.3), acknowledged))
        assert served.process.returncode == 0
        assert len(pids) == 3
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        assert told == (503, "draining")
        assert since > 0  # steps went on within the grace
        assert took < GRACE_S + 5
        written = Counter(diary.read_text().split())
        for name in range(PLAYERS):
            steps = [written[f"{name}.{number}"] for number in range(1, acknowledged[name] + 3)]
            assert steps[: acknowledged[name]] == [1] * acknowledged[name]
            assert steps[acknowledged[name] :] in ([0, 0], [1, 0])  # at most one was on its way
