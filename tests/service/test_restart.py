"""A server that is killed and started again (SRV-12, 30, 34, 45): sessions go on, or their owners are told why not."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from envhub.errors import ConfigError
from envhub.server.config import FleetConfig
from envhub.server.problems import Problem
from envhub.server.record import Record, Verb
from envhub.server.sessions import Sessions
from tests.served import package, serve
from tests.soak.inmemory import MemoryFleet

DICE = """
import os
from envhub import Env, EnvSpec, StateLevel

class Dice(Env):
    state_level = StateLevel.STATE
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return f"roll {self.np_random.integers(10**9)}", {}
    def step(self, action):
        self.n += 1
        if action == "raise": raise RuntimeError("no")
        if action == "pid": return str(os.getpid()), 0.0, False, False, {}
        with open(os.environ["DICE_LOG"], "a") as log: log.write(f"{action}\\n")
        return f"{self.n} {self.np_random.integers(10**9)}", 1.0, action == "end", False, {}

SPEC = EnvSpec(id="t/Dice-v1", make=Dice, inline=True, reward_range=(-1.0, 1.0))
"""
FLEET = "{{record: {record}, fleets: [{{id: t/Dice-v1, repeatable: {repeatable}, workers: 2, lease_s: {lease}}}]}}"


class Client:
    """A session over JSON."""

    def __init__(self, url: str, session: str = "") -> None:
        self._base = f"{url}/envs/t/Dice-v1/sessions"
        self.session = session or httpx.post(self._base).json()["session"]

    def post(self, verb: str, body: dict[str, Any], request: str = "") -> tuple[int, Any]:
        headers = {"request-id": request} if request else {}
        answer = httpx.post(f"{self._base}/{self.session}/{verb}", json=body, headers=headers)
        return answer.status_code, answer.json()

    def step(self, action: str, request: str = "") -> tuple[int, Any]:
        status, told = self.post("step", {"action": action}, request)
        return status, told["observation"] if status == 200 else told["code"]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("DICE_LOG", str(tmp_path / "log"))
    site = package(tmp_path / "site", "t/Dice-v1", DICE)

    def start(*, repeatable: bool = True, lease_s: float = 60) -> Any:
        fleet = FLEET.format(record=tmp_path / "record.sqlite", repeatable=repeatable, lease=lease_s).lower()
        (tmp_path / "fleet.yaml").write_text(fleet.replace("t/dice", "t/Dice"))
        return serve("-c", str(tmp_path / "fleet.yaml"), site=site)

    return start


def test_a_killed_server_goes_on_where_it_was(server: Callable[..., Any], tmp_path: Path) -> None:
    with server() as served:
        told, ended = Client(served.url), Client(served.url)
        other = Client(served.url)
        first = told.post("reset", {"seed": 7})[1]["observation"]
        told.post("reset", {})  # draws on: decided by what came before
        rolls = [told.step("a")[1], told.step("b", "key-b")[1]]
        assert told.step("raise") == (500, "env_error")
        other.post("reset", {"seed": 9})
        httpx.delete(f"{ended._base}/{ended.session}")
        workers = served.pids[1:]
        served.process.kill()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline
    with server() as served:
        again, fresh = Client(served.url, told.session), Client(served.url)
        assert fresh.post("reset", {"seed": 7})[1]["observation"] == first
        fresh.post("reset", {})
        assert [fresh.step("a")[1], fresh.step("b")[1]] == rolls
        before = (tmp_path / "log").read_text()
        assert again.step("b", "key-b") == (200, rolls[1])  # not a second time
        assert again.step("c", "key-b") == (422, "request_id_reused")
        assert (tmp_path / "log").read_text() == before
        assert httpx.get(f"{again._base}/{again.session}").json()["steps"] == 2
        fresh.step("raise")
        assert again.step("c") == fresh.step("c")  # one and the same future
        assert again.post("step", {"action": "d", "seq": 3})[0] == 409
        assert Client(served.url, other.session).step("x")[0] == 200
        assert Client(served.url, ended.session).step("x") == (404, "session_unknown")
        assert httpx.get(f"{served.url}/ready").json()["fleets"]["t/Dice-v1"]["sessions"] == 3
        assert again.session not in (tmp_path / "record.sqlite").read_bytes().decode("latin-1")


def test_what_cannot_be_repeated_is_told_and_its_answers_are_kept(server: Callable[..., Any]) -> None:
    with server() as served:
        pid, snap, plain = Client(served.url), Client(served.url), Client(served.url)
        for one in (pid, snap, plain):
            one.post("reset", {"seed": 1})
        pid.step("pid", "key")
        answer = snap.step("a", "key")
        snap.post("snapshot", {})
        twin, fresh = (Client(served.url, plain.post("fork", {})[1]["session"]) for _ in range(2))
        twin.step("t")
        fresh.post("reset", {"seed": 4})  # from here on it can be repeated
        rolled = fresh.step("f")
        plain.step("a")
        served.process.kill()
    with server() as served:
        pid, snap = Client(served.url, pid.session), Client(served.url, snap.session)
        twin, fresh = Client(served.url, twin.session), Client(served.url, fresh.session)
        told_why = ((pid, "did not repeat its answer to verb 2, a step"), (snap, "Forks and"), (twin, "Forks and"))
        for one, why in told_why:
            status, told = one.post("step", {"action": "x"})
            assert (status, told["code"]) == (410, "session_lost")
            assert why in told["detail"]
        assert snap.step("a", "key") == answer
        assert snap.step("b", "key") == (422, "request_id_reused")
        assert Client(served.url, plain.session).step("b")[0] == 200
        again = Client(served.url)
        again.post("reset", {"seed": 4})
        assert [again.step("f"), again.step("g")] == [rolled, fresh.step("g")]
        assert httpx.get(f"{served.url}/ready").json()["fleets"]["t/Dice-v1"]["sessions"] == 3
    with server(repeatable=False) as served:  # an orderly end keeps sessions for the next server too
        status, told = Client(served.url, plain.session).post("step", {"action": "c"})
        assert status == 410
        assert "not declared to be repeatable" in told["detail"]


def test_a_session_lost_before_the_restart_is_still_told_why(server: Callable[..., Any]) -> None:
    with server() as served:
        lost, other = Client(served.url), Client(served.url)
        for one in (lost, other):
            one.post("reset", {"seed": 1})
        answer = lost.step("a", "key")
        os.kill(int(lost.step("pid")[1]), signal.SIGKILL)
        status, told = lost.post("step", {"action": "x"})
        assert (status, told["code"]) == (410, "session_lost")
        assert httpx.get(f"{served.url}/ready").json()["fleets"]["t/Dice-v1"]["workers"] <= 2
        served.process.kill()
    with server() as served:
        again = Client(served.url, lost.session)
        status, still = again.post("step", {"action": "x"})
        assert (status, still["detail"]) == (410, told["detail"])
        assert again.step("a", "key") == answer
        assert Client(served.url, other.session).step("b")[0] == 200


def test_a_lease_that_nobody_renews_after_the_restart_runs_out(server: Callable[..., Any], tmp_path: Path) -> None:
    with server(lease_s=1) as served:
        session = Client(served.url).session
        served.process.kill()
    with server(lease_s=1) as served:
        while httpx.get(f"{served.url}/ready").json()["fleets"]["t/Dice-v1"]["sessions"]:
            pass
        assert Client(served.url, session).step("x") == (404, "session_unknown")
    assert Record(tmp_path / "record.sqlite").found == ()


def test_a_full_disk_acknowledges_nothing_and_is_got_over(tmp_path: Path) -> None:
    record = Record(tmp_path / "r.sqlite")
    problems: list[Any] = []
    record.opened(b"a", "local", "t/X-v1", problems.append)
    while not problems:
        pass
    record._base.execute("PRAGMA max_page_count = 10")  # SQLite's own way of being full
    verb = Verb(1, "", b"", "step", "x" * 100_000, None, None)
    record.answered(b"a", verb, problems.append)
    record.close()
    assert [getattr(problem, "code", None) for problem in problems] == [None, "storage_full"]
    again = Record(tmp_path / "r.sqlite")
    again.answered(b"a", verb, problems.append)
    again.close()
    assert problems[2] is None
    assert Record(tmp_path / "r.sqlite").found[0].verbs == (verb,)


def test_a_session_whose_answer_cannot_be_written_is_lost_and_says_so(tmp_path: Path) -> None:
    fleet, ended = MemoryFleet(FleetConfig(id="t/X-v1"), 1), list[Any]()
    record = Record(tmp_path / "r.sqlite")

    def settle(answer: asyncio.Future[Any], value: Any, failed: Problem | None) -> None:
        answer.set_result(failed or value[0])

    async def play() -> list[Any]:
        sessions = Sessions(cast(Any, {"t/X-v1": fleet}), asyncio.get_running_loop().time, ended.append, record)
        worker, number = fleet.open(0)
        session = sessions.add("local", "t/X-v1", cast(Any, worker), number)
        sessions.call(session, "reset", [1, None], lambda value, failed: None)
        worker.answer()
        while session.busy:  # noqa: ASYNC110  the record's thread ends it
            await asyncio.sleep(0.01)
        told = []
        for action in ("a", "b" * 500_000):
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            sessions.call(session, "step", action, partial(settle, answer))
            worker.answer()
            assert not answer.done()  # nothing goes out before it is written
            told.append(await answer)
            record._base.execute("PRAGMA max_page_count = 12")
        with pytest.raises(Problem) as caught:
            sessions.find(session.token, "local")
        return [told[0], told[1].status, caught.value.status, caught.value.detail]

    first, full, gone, detail = asyncio.run(play())
    record.close()
    assert (first, full, gone) == ("1 a", 507, 410)
    assert "could not be recorded" in detail
    assert len(ended) == 1  # its place is free


def test_a_damaged_or_used_record_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    record = Record(path)
    with pytest.raises(ConfigError, match="end the other server"):
        Record(path)
    with pytest.raises(ConfigError, match="a folder that exists"):
        Record(tmp_path / "none" / "r.sqlite")
    record.opened(b"a", "local", "t/X-v1", lambda _: None)
    record.answered(b"a", Verb(1, "", b"", "step", "NEEDLE" * 20, None, None), lambda _: None)
    record.close()
    whole = path.read_bytes()
    place = whole.index(b"NEEDLE")
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(ConfigError, match=r"does not fit its sum.*|mv .*damaged"):
        Record(path)
    for damaged in (os.urandom(5000), whole[: len(whole) // 2], b"x"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"mv .*damaged"):
            Record(path)
