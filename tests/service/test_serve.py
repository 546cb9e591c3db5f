"""A real server on a loopback port: its wires agree, its sessions are leases, and whatever breaks is told truly."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx
import msgpack
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as ws_connect
from websockets.typing import Subprotocol

import envhub
from envhub.envs import Env
from envhub.envs.check import check
from envhub.envs.registry import load_spec, make
from envhub.envs.vector import SyncVector
from envhub.errors import ConfigError, EnvError
from envhub.server.auth import new_token
from envhub.server.client import RemoteEnv
from envhub.server.connection import Refused
from envhub.telemetry import read_metrics
from tests.served import Served, package, serve

TROUBLE = """
import os, time
import msgpack
import numpy as np
from envhub import Env, EnvSpec, StateLevel

class Trouble(Env):
    state_level = StateLevel.STATE
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return "begin", {}
    def step(self, action):
        self.n += 1
        match action:
            case "die": os.kill(os.getpid(), 9)
            case "hang":
                while True: pass
            case "eat":
                self.held = b"x" * (400 << 20)
                time.sleep(5)
            case "raise": raise RuntimeError("so /etc/secret")
            case "wrong": return 7
            case "alien": return "", 0.0, False, False, {"x": msgpack.ExtType(9, b"x")}
            case "look":
                image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
                return "seen", np.float32(0.5), np.bool_(False), False, {"image": image, "png": b"\\x89", "at": np.int64(3)}
            case "slow": time.sleep(1.0)
        return f"{self.n} {action}", 1.0, action == "end", False, {"n": self.n}

SPEC = EnvSpec(id="t/Trouble-v1", make=Trouble, inline=True)
"""
FLEET = """
host: 127.0.0.1
fleets:
  - {id: t/Trouble-v1, workers: WORKERS, max_sessions: 6, queue: 4, step_deadline_s: 1.5, lease_s: LEASE, memory_mib: 300}
  - {id: game/FrozenLake-v1, options: OPTIONS}
grace_s: 5
AUTH
"""
LAKE = "game/FrozenLake-v1"
SERVERS: dict[str, Served] = {}


@contextmanager
def serving(
    folder: Path, *, workers: int = 1, lease_s: float = 60.0, auth: str = "", options: str = "{size: 3}"
) -> Iterator[str]:
    """A server of two fleets; its address."""
    fleet = FLEET.replace("WORKERS", str(workers)).replace("LEASE", str(lease_s)).replace("AUTH", auth)
    site = package(folder / "site", "t/Trouble-v1", TROUBLE)
    (folder / "fleet.yaml").write_text(fleet.replace("OPTIONS", options))
    with serve("-c", str(folder / "fleet.yaml"), site=site) as served:
        SERVERS[served.url] = served
        yield served.url


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("serve"), workers=2) as address:
        yield address


def trouble(url: str) -> Any:
    return envhub.connect(f"{url}/envs/t/Trouble-v1")


def children(url: str) -> set[int]:
    return set(SERVERS[url].pids[1:])


def test_a_served_environment_answers_as_the_local_one_on_every_wire(url: str) -> None:
    local: Any = make(LAKE, size=3)
    remote = envhub.connect(f"{url}/envs/{LAKE}")
    client = httpx.Client(base_url=f"{url}/envs/{LAKE}")
    with client, ws_connect(f"{url.replace('http', 'ws')}/envs/{LAKE}/ws") as openenv:
        session = client.post("/sessions").json()["session"]
        openenv.send(json.dumps({"type": "reset", "data": {"seed": 5}}))
        told = json.loads(openenv.recv())["data"]
        assert (told["observation"]["text"], told["reward"], told["done"]) == (local.reset(seed=5)[0], None, False)
        assert remote.reset(seed=5) == local.reset(seed=5)
        begun = client.post(f"/sessions/{session}/reset", json={"seed": 5}).json()
        assert (begun["observation"], begun["info"]) == local.reset(seed=5)
        for number, action in enumerate(("right", "nonsense", "down", "down", "right", "right", "down"), 1):
            wanted = local.step(action)
            assert remote.step(action) == wanted
            openenv.send(json.dumps({"type": "step", "data": {"text": action}}))
            data = json.loads(openenv.recv())["data"]
            assert (data["observation"]["text"], data["reward"], data["done"]) == (*wanted[:2], wanted[2] or wanted[3])
            stepped = client.post(f"/sessions/{session}/step", json={"action": action, "seq": number}).json()
            assert [stepped[k] for k in ("observation", "reward", "terminated", "truncated", "info", "steps")] == [
                *wanted,
                number,
            ]
            if wanted[2]:
                break
        assert client.delete(f"/sessions/{session}").status_code == 204
        assert client.get(f"/sessions/{session}").status_code == 404
    remote.close()


def test_a_served_environment_keeps_the_rules_of_the_kit(url: str) -> None:
    findings = {f.rule: (f.verdict, f.detail) for f in check(load_spec(f"{url}/envs/{LAKE}"), {})}
    assert {rule: found for rule, found in findings.items() if found[0] == "failed"} == {}
    assert findings["seeds"][0] == findings["hostile"][0] == findings["instances"][0] == "passed"


def test_evaluation_over_the_wire_is_that_at_home(url: str) -> None:
    def evaluated(where: str, *more: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "envhub.cli.main", "eval", where, "--policy", "scripted:/dev/stdin", *more, "--json"]
        done = subprocess.run(command, input="right\ndown\n" * 50, capture_output=True, text=True, check=True, timeout=120)
        found: dict[str, Any] = json.loads(done.stdout)
        return {k: v for k, v in found.items() if k != "seconds"}

    assert evaluated(f"{url}/envs/{LAKE}", "--episodes", "40") == evaluated(LAKE, "--episodes", "40", "--option", "size=3")


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_of_sessions_answers_as_a_local_one(url: str, mode: AutoresetMode) -> None:
    remote = envhub.connect_vector(f"{url}/envs/{LAKE}", num_envs=5, autoreset=mode)
    local = SyncVector([lambda: cast(Env, make(LAKE, size=3))] * 5, autoreset=mode)
    assert remote.reset(seed=2)[0] == local.reset(seed=2)[0]
    for turn in range(25):
        actions = [("right", "down")[(turn + i) % 2] for i in range(5)]
        mine, wanted = remote.step(actions), local.step(actions)
        for ours, theirs in zip(mine[1:4], wanted[1:4], strict=True):
            assert np.array_equal(cast(Any, ours), cast(Any, theirs))
        done = mine[2] | mine[3]
        if mode is AutoresetMode.DISABLED and done.any():
            remote.reset(options={"reset_mask": done}), local.reset(options={"reset_mask": done})
        if done.any():
            break  # a reset without a seed draws another map on either side
        assert mine[0] == wanted[0]
    assert done.any()
    remote.close()
    local.close()


def test_random_players_know_the_legal_actions_over_the_wire(url: str) -> None:
    command = [sys.executable, "-m", "envhub.cli.main", "eval", f"{url}/envs/{LAKE}", "--policy", "random", "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert (found["episodes"], found["failed"]) == (100, 0)
    assert 0.02 < found["success_rate"] < 0.6


@pytest.mark.slow
def test_training_over_the_wire_learns_what_it_learns_at_home(small_config: Path, tmp_path: Path) -> None:
    """The same tasks, seeds and actions; answers come in another order, so weights agree to rounding."""
    options = "{size: 3, style: cells, legal: safe}"
    with serving(tmp_path / "s", options=options) as url:
        runs = {"home": [], "away": [f"env.url={url}/envs/{LAKE}"]}
        for name, more in runs.items():
            command = [sys.executable, "-m", "envhub.cli.main", "train", str(small_config), f"run.name={name}", *more]
            subprocess.run(command, check=True, capture_output=True, timeout=200)
        other = [*command, "env.options.size=4", "run.name=other"]
        refused = subprocess.run(other, capture_output=True, text=True, check=False, timeout=100)
        assert (refused.returncode, "serve with the same options" in refused.stderr) == (2, True)
    folders = [small_config.parent / "runs" / name for name in runs]
    rewards = [[row["reward/mean"] for row in read_metrics(folder / "metrics.jsonl")] for folder in folders]
    assert rewards[0] == rewards[1]
    home, away = (load_file(folder / "model" / "model.safetensors") for folder in folders)
    for name, weight in home.items():
        assert np.allclose(weight.numpy(), away[name].numpy(), atol=1e-4)


def test_a_repeated_request_runs_once(url: str) -> None:
    with httpx.Client(base_url=f"{url}/envs/t/Trouble-v1", timeout=30) as client:
        session = client.post("/sessions").json()["session"]
        client.post(f"/sessions/{session}/reset", json={})

        def step(action: str, name: str) -> httpx.Response:
            return client.post(f"/sessions/{session}/step", json={"action": action}, headers={"request-id": name})

        with ThreadPoolExecutor(3) as pool:
            first = list(pool.map(lambda _: step("slow", "one"), range(3)))
        assert {r.json()["observation"] for r in first} == {"1 slow"}
        assert step("slow", "one").json()["observation"] == "1 slow"
        again = step("fast", "one")
        assert (again.status_code, again.json()["code"]) == (422, "request_id_reused")
        assert step("fast", "two").json()["observation"] == "2 fast"
        wrong = client.post(f"/sessions/{session}/step", json={"action": "x", "seq": 9})
        assert (wrong.status_code, wrong.json()["code"]) == (409, "seq_conflict")
        client.delete(f"/sessions/{session}")


@pytest.mark.parametrize(
    ("action", "cause"),
    [("die", "killed by signal 9"), ("hang", "hung"), ("eat", "out of memory"), ("alien", "another language")],
)
def test_a_lost_worker_is_told_within_two_seconds_and_replaced(url: str, action: str, cause: str) -> None:
    """SRV-01, SRV-04, SRV-05."""
    env, other = trouble(url), envhub.connect(f"{url}/envs/{LAKE}")
    env.reset(seed=1), other.reset(seed=1)
    env.step("fine")
    before, began = children(url), time.monotonic()
    with pytest.raises(Refused) as caught:
        env.step(action)
    assert time.monotonic() - began < 1.5 + 2.0  # the step's own deadline, and two seconds
    assert (caught.value.status, caught.value.code) == (410, "session_lost")
    assert cause in caught.value.what
    with pytest.raises(Refused, match="Its last answered step was 1"):
        env.step("more")
    assert other.step("right")[1] == 0.0  # another fleet's worker never noticed
    env.close(), other.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and (len(children(url)) < len(before) or children(url) == before):
        time.sleep(0.05)
    fresh = trouble(url)
    assert fresh.reset(seed=1)[0] == "begin"
    fresh.close()


def test_an_environment_that_raises_or_lies_is_named_and_lives(url: str) -> None:
    """SRV-02, SRV-03; nothing internal is told but the first line."""
    env = trouble(url)
    env.reset(seed=1)
    for action, status, part in (("raise", 500, "RuntimeError: so"), ("wrong", 502, "step gave int")):
        with pytest.raises(Refused) as caught:
            env.step(action)
        assert caught.value.status == status
        assert part in caught.value.what
        assert "Traceback" not in caught.value.what
    # the steps that failed were no steps
    assert env.step("fine")[0].endswith(" fine")
    env.close()


def test_snapshots_and_forks_have_futures_of_their_own(url: str) -> None:
    async def play() -> tuple[Any, ...]:
        env = RemoteEnv(url, "t/Trouble-v1")
        await env.reset(seed=1)
        await env.step("a")
        mark = await env.snapshot()
        twin = await env.fork()
        seen = (await env.step("b"), await env.step("c"), await twin.step("d"))
        await env.restore(mark)
        restored = await env._call("step", "e")
        await env.close()
        await twin.close()
        return (*seen, tuple(restored))

    assert [step[0] for step in asyncio.run(play())] == ["2 b", "3 c", "2 d", "2 e"]


def test_the_cap_is_never_passed_and_refusals_say_when_to_come_back(url: str) -> None:
    """SRV-14: 40 callers at once for 6 places."""

    def create(_: int) -> httpx.Response:
        return httpx.post(f"{url}/envs/t/Trouble-v1/sessions", timeout=30)

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(create, range(40)))
    opened = [r.json()["session"] for r in answers if r.status_code == 201]
    refused = [r for r in answers if r.status_code != 201]
    assert len(opened) == len(set(opened)) == 6
    assert {r.status_code for r in refused} == {503}
    assert all(int(r.headers["retry-after"]) >= 1 and r.json()["code"] == "capacity_exhausted" for r in refused)
    waiting = threading.Thread(target=lambda: opened.append(_open(url, 10.0)))
    waiting.start()
    time.sleep(0.3)
    assert httpx.get(f"{url}/ready").json()["fleets"]["t/Trouble-v1"]["waiting"] == 1
    httpx.delete(f"{url}/envs/t/Trouble-v1/sessions/{opened.pop(0)}")
    waiting.join(10)
    assert len(set(opened)) == 6
    for session in opened:
        assert httpx.delete(f"{url}/envs/t/Trouble-v1/sessions/{session}").status_code == 204
    assert httpx.get(f"{url}/ready").json()["fleets"]["t/Trouble-v1"]["sessions"] == 0


def _open(url: str, wait_s: float) -> str:
    return str(httpx.post(f"{url}/envs/t/Trouble-v1/sessions", json={"wait_s": wait_s}, timeout=30).json()["session"])


def test_images_and_arrays_come_whole_over_every_wire(url: str) -> None:
    env = trouble(url)
    env.reset(seed=1)
    observation, reward, *_, info = env.step("look")
    assert (observation, reward, info["png"], info["at"]) == ("seen", 0.5, b"\x89", 3)
    assert info["image"].dtype == np.uint8
    assert info["image"].tolist() == np.arange(12).reshape(2, 2, 3).tolist()
    session = _open(url, 0.0)
    base = f"{url}/envs/t/Trouble-v1"
    httpx.post(f"{base}/sessions/{session}/reset", json={"seed": 1})
    told = httpx.post(f"{base}/sessions/{session}/step", json={"action": "look"}).json()["info"]
    image = {"dtype": "|u1", "shape": [2, 2, 3], "base64": "AAECAwQFBgcICQoL"}
    assert told == {"image": image, "png": {"base64": "iQ=="}, "at": 3}
    httpx.delete(f"{base}/sessions/{session}")
    with ws_connect(f"{base.replace('http', 'ws')}/ws") as openenv:
        for kind, data in (("reset", {"seed": 1}), ("step", {"action": "look", "text": "look"})):
            openenv.send(json.dumps({"type": kind, "data": data if kind == "reset" else {"text": "look"}}))
            answer = json.loads(openenv.recv())
        assert answer["data"]["metadata"]["info"]["image"] == image
    env.close()


def test_a_hostile_extension_is_no_frame_and_costs_the_worker_nothing(url: str) -> None:
    workers = children(url)
    with ws_connect(f"{url.replace('http', 'ws')}/wire", subprotocols=[Subprotocol("envhub.1")]) as socket:
        socket.send(msgpack.packb([[1, "open", None, {"env": "t/Trouble-v1"}]]))
        session = msgpack.unpackb(socket.recv())[0][2]["session"]
        hostile = msgpack.ExtType(1, b"\xc1")
        socket.send(msgpack.packb([[2, "reset", session, [1, {"task": hostile}]]]))
        with pytest.raises(ConnectionClosed):
            socket.recv()
    assert children(url) == workers


@pytest.mark.parametrize(
    ("body", "status"),
    [
        *(
            (b"{", 400),
            (b"[]", 422),
            (b'{"action": 1}', 422),
            (b'{"action": "x", "zzz": 1}', 422),
            (b'{"action": "\xff"}', 400),
        ),
        *(
            (b'{"action": "x", "seq": -1}', 422),
            (b'{"action": "x", "seq": 1e400}', 422),
            (b'{"a": ' + b'{"a": ' * 100_000, 400),
        ),
        (b"x" * (9 << 20), 413),
        *((b'{"action": "x", "action": "y"}', 400), (b'{"action": "x", "seq": NaN}', 400)),
        *((b'\xef\xbb\xbf{"action": "x"}', 400), (b'{"action": "x", "seq": ' + b"9" * 5000 + b"}", 400)),
    ],
)
def test_a_hostile_body_is_refused_with_a_problem(url: str, body: bytes, status: int) -> None:
    """SRV-17 to SRV-20."""
    session = httpx.post(f"{url}/envs/{LAKE}/sessions").json()["session"]
    path = f"{url}/envs/{LAKE}/sessions/{session}/step"
    answer = httpx.post(path, content=body, headers={"content-type": "application/json"}, timeout=30)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "code"} <= set(answer.json())
    assert "Traceback" not in answer.text
    httpx.delete(f"{url}/envs/{LAKE}/sessions/{session}")


def wire_frames() -> st.SearchStrategy[bytes]:
    """Frames of requests that are nearly right, and bytes that are nothing at all."""
    numbers = st.integers(-(2**63), 2**64 - 1) | st.floats()
    plain = st.none() | st.booleans() | numbers | st.text(max_size=5) | st.binary(max_size=5)
    value = st.recursive(
        plain, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=2), max_leaves=5
    )
    verb = st.sampled_from(["open", "attach", "reset", "step", "close", "fork", "task", "tasks", "describe"]) | value
    known = {"env": st.just(LAKE) | value, "wait_s": value, "split": value, "index": value}
    argument = st.fixed_dictionaries({}, optional=known) | value
    request = st.tuples(st.integers(0, 9) | value, verb, st.just("no-such-token") | value, argument).map(list) | value
    return st.lists(request, max_size=4).map(msgpack.packb) | st.binary(max_size=20)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=wire_frames())
def test_no_frame_hurts_the_server(url: str, frame: bytes) -> None:
    address = f"{url.replace('http', 'ws')}/wire"
    with ws_connect(address, subprotocols=[Subprotocol("envhub.1")]) as socket, suppress(ConnectionClosed):
        socket.send(frame)
        socket.send(msgpack.packb([[77, "describe", None, {"env": LAKE}]]))
        while all(answer[0] != 77 for answer in msgpack.unpackb(cast(bytes, socket.recv(timeout=10)))):
            pass
    assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize(
    "headers", [{"host": "evil.test"}, {"origin": "http://evil.test"}, {"host": "127.0.0.1.evil.test"}, {"host": ""}]
)
def test_foreign_hosts_and_origins_are_refused_on_every_verb(url: str, headers: dict[str, str]) -> None:
    """SRV-27."""
    for method in ("GET", "POST", "DELETE"):
        assert httpx.request(method, f"{url}/envs/{LAKE}/sessions", headers=headers).status_code == 403
    assert httpx.get(f"{url}/health", headers=headers).status_code == 403


def test_ready_metrics_and_docs_are_there(url: str) -> None:
    env = envhub.connect(f"{url}/envs/{LAKE}")
    env.reset(seed=1)
    env.step("left")
    env.close()
    assert httpx.get(f"{url}/health").json() == {"status": "healthy"}
    assert httpx.get(f"{url}/ready").json()["ready"] is True
    text = httpx.get(f"{url}/metrics").text
    assert re.search(r'envhub_verb_seconds_count\{env="game/FrozenLake-v1",verb="step"\} [1-9]', text)
    assert 'envhub_workers{env="t/Trouble-v1"} 2' in text
    assert "/sessions/{token}/step" in httpx.get(f"{url}/envs/{LAKE}/openapi.json").text
    assert [e["id"] for e in httpx.get(f"{url}/envs").json()] == ["t/Trouble-v1", LAKE]


def test_a_lease_ends_when_nothing_renews_it(tmp_path: Path) -> None:
    """SRV-09: and the client's own keeps while it thinks."""
    with serving(tmp_path, lease_s=0.6) as url:
        abandoned = _open(url, 0.0)
        env = trouble(url)
        env.reset(seed=1)
        time.sleep(2.0)
        assert httpx.get(f"{url}/envs/t/Trouble-v1/sessions/{abandoned}").status_code == 404
        assert env.step("still here")[0] == "1 still here"
        env.close()


def test_tenants_never_see_one_another(tmp_path: Path) -> None:
    """SRV-21, SRV-22: every route with a session in it, from the server's own table."""
    tokens = {name: new_token() for name in ("a", "b")}
    auth = tmp_path / "tokens.yaml"
    entries = "".join(f"  {name}: {{token_sha256: '{digest}'}}\n" for name, (_, digest) in tokens.items())
    auth.write_text(f"tenants:\n{entries}")
    auth.chmod(0o644)
    with pytest.raises(AssertionError, match="can be read by others"), serving(tmp_path / "1", auth=f"auth: {auth}"):
        pass
    auth.chmod(0o600)
    with serving(tmp_path / "2", auth=f"auth: {auth}") as url:
        as_a, as_b = ({"authorization": f"Bearer {tokens[name][0]}"} for name in ("a", "b"))
        base = f"{url}/envs/t/Trouble-v1"
        assert httpx.get(f"{url}/health").status_code == 200
        for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": tokens["a"][0]}):
            assert httpx.post(f"{base}/sessions", headers=wrong).status_code == 401
        session = httpx.post(f"{base}/sessions", headers=as_a).json()["session"]
        table = httpx.get(f"{base}/openapi.json", headers=as_a).json()["paths"]
        routes = [(verb, path) for path, verbs in table.items() if "{token}" in path for verb in verbs]
        assert len(routes) >= 7
        bodies = {"step": {"action": "x"}, "restore": {"snapshot": 1}}
        for verb, path in routes:
            body = bodies.get(path.rpartition("/")[2], {})
            answers = [
                httpx.request(verb, base + path.replace("{token}", token), headers=as_b, json=body)
                for token in (session, "no-such-session-at-all")
            ]
            assert [r.status_code for r in answers] == [404, 404], (verb, path)
            assert answers[0].content == answers[1].content
        assert httpx.get(f"{base}/sessions/{session}", headers=as_a).status_code == 200
        with pytest.raises(ConfigError, match="No valid token"):
            envhub.connect(base)
        env: Any = envhub.connect(base, token=tokens["b"][0])
        assert env.reset(seed=1)[0] == "begin"
        env._env._session = session  # b's socket, a's session
        with pytest.raises(EnvError, match="There is no such session"):
            env.step("x")


def test_a_drained_server_ends_running_steps_and_leaves_no_process(tmp_path: Path) -> None:
    """SRV-29: SIGTERM with a step in flight."""
    with serving(tmp_path) as url:
        env = trouble(url)
        env.reset(seed=1)
        workers, answers = children(url), []
        stepping = threading.Thread(target=lambda: answers.append(env.step("slow")))
        stepping.start()
        time.sleep(0.3)
        SERVERS[url].process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        stepping.join(10)
        assert answers[0][0] == "1 slow"
    assert len(workers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_workers_come_with_the_callers_and_go_after_a_calm_while(tmp_path: Path) -> None:
    """From 1 to 3 workers of 2 places each: never more sessions than places, and nobody who waits goes away empty."""
    fleet = "{id: t/Trouble-v1, workers: 1, max_workers: 3, calm_s: 0.5, max_sessions: 6, queue: 16}"
    (tmp_path / "fleet.yaml").write_text(f"fleets: [{fleet}]")
    site = package(tmp_path / "site", "t/Trouble-v1", TROUBLE)
    with serve("-c", str(tmp_path / "fleet.yaml"), site=site) as served:

        def state() -> dict[str, int]:
            found: dict[str, int] = httpx.get(f"{served.url}/ready").json()["fleets"]["t/Trouble-v1"]
            return {name: found[name] for name in ("workers", "wanted", "sessions", "max_sessions")}

        def until(wanted: dict[str, int]) -> None:
            deadline = time.monotonic() + 20
            while state() != wanted:
                assert time.monotonic() < deadline, state()
                time.sleep(0.05)

        until({"workers": 1, "wanted": 1, "sessions": 0, "max_sessions": 2})
        with ThreadPoolExecutor(6) as pool:
            opened = list(pool.map(lambda _: _open(served.url, 20.0), range(6)))
        assert len(set(opened)) == 6
        until({"workers": 3, "wanted": 3, "sessions": 6, "max_sessions": 6})
        assert len(served.pids) == 4
        served.process.send_signal(signal.SIGHUP)  # the file is read again, and the fleet stays as large as it has grown
        time.sleep(0.5)
        assert state() == {"workers": 3, "wanted": 3, "sessions": 6, "max_sessions": 6}
        assert len(served.pids) == 4
        for session in opened:
            assert httpx.delete(f"{served.url}/envs/t/Trouble-v1/sessions/{session}").status_code == 204
        until({"workers": 1, "wanted": 1, "sessions": 0, "max_sessions": 2})
        deadline = time.monotonic() + 10
        while len(served.pids) > 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_fleet_file_is_read_again_without_losing_a_session(tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        env = trouble(url)
        env.reset(seed=1)
        env.step("a")
        fleet = tmp_path / "fleet.yaml"
        good = fleet.read_text()

        def reloaded(text: str, wanted: dict[str, int]) -> None:
            fleet.write_text(text)
            SERVERS[url].process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 15
            while time.monotonic() < deadline:
                state = httpx.get(f"{url}/ready").json()["fleets"]["t/Trouble-v1"]
                if {k: state[k] for k in wanted} == wanted:
                    return
                time.sleep(0.1)
            raise AssertionError(state)

        reloaded(good.replace("workers: 1, max_sessions: 6", "workers: 3, max_sessions: 9"), {"workers": 3, "max_sessions": 9})
        reloaded(good.replace("workers: 1", "workers: nonsense"), {"workers": 3, "max_sessions": 9})
        reloaded(good.replace("{size: 3}", "{size: 4}"), {"workers": 3, "max_sessions": 9})
        reloaded(good.replace("max_sessions: 6", "max_sessions: 2"), {"workers": 1, "max_sessions": 2})
        assert env.step("b")[0] == "2 b"
        env.close()


def test_no_worker_outlives_a_killed_server(tmp_path: Path) -> None:
    workers: set[int] = set()
    with serving(tmp_path) as url:  # it does not end with 0
        workers |= children(url)
        SERVERS[url].process.kill()
    assert workers
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in workers):
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "name environments"),
        (["no/Such-v1"], "not installed"),
        (["game/FrozenLake-v1", "--host", "0.0.0.0"], "can be reached from outside"),
        (["game/FrozenLake-v1", "game/FrozenLake-v1"], "an id twice"),
        (["-c", "/no/such.yaml"], "cannot read"),
    ],
)
def test_a_server_that_makes_no_sense_does_not_start(arguments: list[str], part: str) -> None:
    command = [sys.executable, "-m", "envhub.cli.main", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert part in done.stderr


def test_a_dropped_socket_is_picked_up_and_a_dead_server_is_told_of_at_once(tmp_path: Path) -> None:
    """The session outlives its socket; nothing that was sent twice runs twice."""
    with serving(tmp_path) as url:
        env: Any = trouble(url)
        env.reset(seed=1)
        assert env.step("a")[0] == "1 a"
        held: Any = env._env._connection
        held._loop.call_soon_threadsafe(held._transport.abort)  # the line is cut
        assert env.step("b")[0] == "2 b"
        answers: list[Any] = []
        stepping = threading.Thread(target=lambda: answers.append(env.step("slow")))
        stepping.start()
        time.sleep(0.3)
        held._loop.call_soon_threadsafe(held._transport.abort)  # in mid-step
        stepping.join(15)
        assert answers[0][0] == "3 slow"
        assert env.step("c")[0] == "4 c"
        other = trouble(url)
        other.reset(seed=1)
        SERVERS[url].process.kill()
        SERVERS[url].process.wait()
        began = time.monotonic()
        env.close()
        other.close()
        assert time.monotonic() - began < 2
