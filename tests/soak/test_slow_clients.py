"""Clients who are slow, silent or suddenly gone (L10, SRV-08, SRV-10, SRV-11), too few files (SRV-38), no log (SRV-43)."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgpack
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.served import PATIENCE_S, Served, package, serve
from tests.soak.line import Line, head

FULL = os.environ.get("ENVHUB_SOAK") == "1"
BAD, HOLD_S, LEASE_S = (500, 120.0, 60.0) if FULL else (240, 3.0, 3.0)
READERS, HEALTHY, GAP_S = 20, 6, 0.5
ENV = "/envs/t/Slow-v1"
pytestmark = pytest.mark.timeout(1800 if FULL else 300)

SLOW = """
import os, time
from envhub import Env, EnvSpec, StateLevel

live = 0

class Slow(Env):
    state_level = StateLevel.STATE
    def __init__(self):
        global live
        live += 1
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "begin", {}
    def step(self, action):
        match action:
            case "big": return "x" * (4 << 20), 1.0, False, False, {}
            case "loud": print("x" * 10_000, flush=True)
            case "die": os.kill(os.getpid(), 9)
            case "live": action = str(live)
        return action, 1.0, False, False, {}
    def fork(self):
        time.sleep(0.3)
        return Slow()
    def close(self):
        global live
        live -= 1

SPEC = EnvSpec(id="t/Slow-v1", make=Slow, inline=True)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package(tmp_path_factory.mktemp("slow") / "site", "t/Slow-v1", SLOW)


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[Served]:
    fleet = site / "fleet.yaml"
    fleet.write_text(f"fleets:\n  - {{id: t/Slow-v1, max_sessions: 1000, lease_s: {LEASE_S}}}\n")
    with serve("-c", str(fleet), site=site) as served:
        yield served


def state(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/ready", timeout=10).json()["fleets"]["t/Slow-v1"]
    return found


def files(served: Served) -> int:
    """How many files the server holds open."""
    return len(os.listdir(f"/proc/{served.process.pid}/fd"))


async def trickle(url: str, data: bytes) -> None:
    """Send the first half at once, and from then on a byte at a time."""
    parts = urlsplit(url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(data[: len(data) // 2])
        for byte in data[len(data) // 2 :]:
            await asyncio.sleep(GAP_S)
            writer.write(bytes([byte]))
            await writer.drain()
        await asyncio.Event().wait()  # never the end of it
    except ConnectionError:
        return  # cut
    finally:
        writer.transport.abort()


async def read_slowly(url: str) -> None:
    """Ask for 4 MiB and take a byte at a time."""
    async with Line(url) as line:
        mine = f"{ENV}/sessions/{(await line.ask('POST', f'{ENV}/sessions')).json()['session']}"
        await line.ask("POST", f"{mine}/reset", {})
    parts, body = urlsplit(url), json.dumps({"action": "big"}).encode()
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        plain.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(plain, (parts.hostname, parts.port))
        await loop.sock_sendall(plain, head(url, "POST", f"{mine}/step", len(body)) + body)
        while await loop.sock_recv(plain, 1):  # noqa: ASYNC110  a slow reader it is
            await asyncio.sleep(GAP_S)


async def half_open(url: str, path: str, opening: bytes | str) -> ClientConnection:
    """A WebSocket with a session whose client hears and says nothing any more, not even pongs."""
    protocols = [Subprotocol("envhub.1")] if path == "/wire" else None
    opened = await connect(f"{url.replace('http', 'ws')}{path}", subprotocols=protocols, ping_interval=None)
    await opened.send(opening)
    await opened.recv()
    opened.transport.pause_reading()
    return opened


def half_opens(url: str, count: int) -> list[Coroutine[Any, Any, ClientConnection]]:
    asked = msgpack.packb([[1, "open", None, {"env": "t/Slow-v1"}]])
    ways: list[tuple[str, bytes | str]] = [("/wire", asked), (f"{ENV}/ws", '{"type": "reset"}')]
    return [half_open(url, *ways[number % 2]) for number in range(count)]


@dataclass(slots=True)
class Healthy:
    """Clients who do nothing wrong, and every status that they were answered."""

    url: str
    statuses: set[int] = field(default_factory=set)
    episodes: int = 0

    async def play(self, until: float) -> None:
        async with Line(self.url) as line:
            while time.monotonic() < until:
                opened = await line.ask("POST", f"{ENV}/sessions")
                mine = f"{ENV}/sessions/{opened.json()['session']}"
                asks = [("POST", f"{mine}/reset", {}), ("POST", f"{mine}/step", {"action": "a"}), ("DELETE", mine, None)]
                self.statuses |= {opened.status, *[(await line.ask(*ask)).status for ask in asks]}
                self.episodes += 1
                await asyncio.sleep(0.02)


def test_slow_and_silent_clients_hurt_nobody_and_keep_nothing(server: Served) -> None:
    """L10: four kinds at once, and those who never say a word."""
    url, healthy = server.url, Healthy(server.url)
    kinds = [
        head(url, "POST", f"{ENV}/sessions", 0),
        head(url, "POST", f"{ENV}/sessions", 1000) + b" " * 1000,
        b"",
    ]

    async def run() -> tuple[int, float]:
        async with asyncio.TaskGroup() as group:
            bad = [group.create_task(trickle(url, kinds[number % 3])) for number in range(BAD // 2)]
            bad += [group.create_task(read_slowly(url)) for _ in range(READERS)]
            opening = [group.create_task(half) for half in half_opens(url, BAD // 2 - READERS)]
            until = time.monotonic() + HOLD_S
            playing = [group.create_task(healthy.play(until)) for _ in range(HEALTHY)]
            sockets = [await one for one in opening]
            most, began = (await asyncio.to_thread(state, url))["sessions"], time.monotonic()
            await asyncio.wait(playing)
            async with asyncio.timeout(HOLD_S + LEASE_S + 30):
                while (await asyncio.to_thread(state, url))["sessions"]:  # noqa: ASYNC110  another process's
                    await asyncio.sleep(0.1)
            gone = time.monotonic() - began
            for task in bad:
                task.cancel()
            for one in sockets:
                one.transport.abort()
        return most, gone

    most, gone = asyncio.run(run())
    assert most >= BAD // 2 - READERS  # they did hold sessions
    assert gone <= max(LEASE_S, HOLD_S) + 5
    assert healthy.episodes > HEALTHY
    assert healthy.statuses == {200, 201, 204}


@pytest.mark.slow
def test_half_open_sockets_are_closed_by_the_server(server: Served) -> None:
    """SRV-11: pings go out every 20 s, and 20 s later nobody is there."""

    async def run() -> None:
        before = files(server)
        sockets = await asyncio.gather(*half_opens(server.url, 50))
        assert files(server) >= before + 50
        began = time.monotonic()
        while files(server) > before + 2:
            assert time.monotonic() - began < 60 + 5
            await asyncio.sleep(0.5)
        for one in sockets:
            one.transport.abort()

    asyncio.run(run())


def test_a_request_that_never_ends_is_cut(site: Path) -> None:
    """SRV-10: slow heads, slow bodies, slow readers and those who say nothing, each within its time."""
    fleet = site / "patience.yaml"
    fleet.write_text("fleets:\n  - {id: t/Slow-v1}\npatience_s: 1.0\n")
    with serve("-c", str(fleet), site=site) as served:
        url, parts = served.url, urlsplit(served.url)

        async def cut(data: bytes) -> float:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            began = time.monotonic()
            writer.write(data)
            with suppress(ConnectionError):
                async with asyncio.timeout(10):
                    await reader.read()
            writer.transport.abort()
            return time.monotonic() - began

        async def run() -> tuple[float, ...]:
            whole, before = head(url, "POST", f"{ENV}/sessions", 1000), files(served)
            reading, began = asyncio.create_task(read_slowly(url)), time.monotonic()
            times = await asyncio.gather(cut(b""), cut(whole[:-4]), cut(whole + b" "))
            async with asyncio.timeout(10):
                while files(served) > before:  # noqa: ASYNC110  another process's
                    await asyncio.sleep(0.1)
            reading.cancel()
            return *times, time.monotonic() - began

        assert max(asyncio.run(run())) < 1.0 + 3.0
        assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize("verb", ["open", "fork"])
def test_callers_who_go_in_the_middle_leave_nothing(site: Path, verb: str) -> None:
    """SRV-08: whoever goes while the worker makes or forks its environment gives back its place, and the environment."""
    fleet = site / f"{verb}.yaml"
    fleet.write_text("fleets:\n  - {id: t/Slow-v1, max_sessions: 8, lease_s: 1.5}\n")
    with serve("-c", str(fleet), site=site) as served:

        async def leave() -> None:
            async with connect(f"{served.url.replace('http', 'ws')}/wire", subprotocols=[Subprotocol("envhub.1")]) as wire:
                asked = {"env": "t/Slow-v1"}
                await wire.send(msgpack.packb([[1, "open", None, asked]]))
                session = msgpack.unpackb(bytes(await wire.recv(decode=False)))[0][2]["session"]
                if verb == "fork":
                    await wire.send(msgpack.packb([[2, "fork", session, None]]))
                else:  # the worker is busy with a fork while it should make
                    await wire.send(msgpack.packb([[2, "fork", session, None], [3, "open", None, asked]]))
                await asyncio.sleep(0.1)
                wire.transport.abort()

        async def run() -> None:
            for _ in range(3):
                await leave()

        asyncio.run(run())
        assert settled(served.url) == (0, 1)


def settled(url: str) -> tuple[int, int]:
    """Sessions when leases have run out, and live environments as one that is opened then counts them, itself included."""
    deadline, found = time.monotonic() + 5, (-99, -99)
    while time.monotonic() < deadline and found != (0, 1):
        time.sleep(0.2)
        held = state(url)["sessions"]
        with httpx.Client(base_url=f"{url}{ENV}", timeout=10) as client:
            answer = stepped(client, "live")
            found = held, int(answer.json()["observation"])
            client.delete(str(answer.url).removesuffix("/step"))
    return found


def processor_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_server_out_of_files_backs_off_and_recovers(site: Path) -> None:
    """SRV-38: those who are in are served, nobody spins, a worker that dies meanwhile is replaced later."""
    with serve("t/Slow-v1", site=site) as served, httpx.Client(base_url=served.url, timeout=10) as inside:
        own = served.process.pid
        assert inside.get("/health").status_code == 200
        _, most = resource.prlimit(own, resource.RLIMIT_NOFILE)
        resource.prlimit(own, resource.RLIMIT_NOFILE, (files(served) + 10, most))
        port = urlsplit(served.url).port
        crowd = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        try:
            used, began = processor_s(own), time.monotonic()
            os.kill(served.pids[1], signal.SIGKILL)
            while time.monotonic() - began < 1.5:
                assert inside.get("/health").status_code == 200
                time.sleep(0.05)
            assert processor_s(own) - used < 0.75
            assert served.process.poll() is None
        finally:
            for one in crowd:
                one.close()
        deadline = time.monotonic() + 20
        while (found := state(served.url))["workers"] != 1 or found["canary"] != "ok":
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


@contextmanager
def unheard(site: Path, way: str) -> Iterator[str]:
    """A server whose stderr is closed, a pipe that nobody holds, or a full disk."""
    read, write = os.pipe()
    stderr = os.open("/dev/full", os.O_WRONLY) if way == "full" else write
    command = [sys.executable, "-m", "envhub.cli.main", "serve", "t/Slow-v1", "--port", "0"]
    closing = ["sh", "-c", 'exec "$@" 2>&-', "sh"] if way == "closed" else []
    env = os.environ | {"PYTHONPATH": str(site)}
    with subprocess.Popen(closing + command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env) as process:
        for descriptor in {read, write, stderr}:
            os.close(descriptor)
        assert process.stdout is not None
        found = re.search(r"http://127.0.0.1:\d+", process.stdout.readline())
        try:
            assert found is not None
            yield found[0]
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("way", ["closed", "broken", "full"])
def test_a_server_that_nobody_hears_lives_and_answers(site: Path, way: str) -> None:
    """SRV-43: what it has to say is an error of a client's and of a worker's."""
    with unheard(site, way) as url, httpx.Client(base_url=f"{url}{ENV}", timeout=10) as client:
        garbage(url, 20)
        assert stepped(client, "die").status_code == 410
        deadline = time.monotonic() + 10
        while client.post("/sessions").status_code != 201:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert stepped(client, "a").json()["observation"] == "a"


@pytest.mark.parametrize("way", ["closed", "broken", "full"])
def test_an_environment_that_nobody_hears_may_print(site: Path, way: str) -> None:
    """SRV-43: where nobody listens, a step is the same."""
    with unheard(site, way) as url, httpx.Client(base_url=f"{url}{ENV}", timeout=10) as client:
        assert stepped(client, "loud").json().get("observation") == "loud"


def stepped(client: httpx.Client, action: str) -> httpx.Response:
    """The first step of a new session."""
    mine = f"/sessions/{client.post('/sessions').json()['session']}"
    assert client.post(f"{mine}/reset", json={}).status_code == 200
    return client.post(f"{mine}/step", json={"action": action})


def garbage(url: str, count: int) -> None:
    """Requests that are none."""
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", urlsplit(url).port)) as one:
            one.sendall(b"nonsense\r\n\r\n")
            one.recv(100)


def test_the_same_error_a_thousand_times_is_no_thousand_lines(site: Path, tmp_path: Path) -> None:
    """SRV-43: anybody can send what is no request."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "envhub.cli.main", "serve", "t/Slow-v1", "--port", "0"]
    env = os.environ | {"PYTHONPATH": str(site)}
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=env) as process,
    ):
        assert process.stdout is not None
        found = re.search(r"http://127.0.0.1:\d+", process.stdout.readline())
        assert found is not None
        garbage(found[0], 1000)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert 1 <= len(log.read_text().splitlines()) < 100
