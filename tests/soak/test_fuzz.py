"""Every route of the server's own description with nearly right and quite wrong requests, by three kinds of callers (L12).

Schemathesis makes the requests, in a virtual environment of its own. Where a session's token belongs it is mostly one that
tenant "a" holds at that moment, so that requests get past the door.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from envhub.server.auth import new_token
from tests.contract.adapters.peers import peer_python
from tests.served import serve

FULL = os.environ.get("ENVHUB_SOAK") == "1"
EXAMPLES = 1000 if FULL else 15
LAKE = "game/FrozenLake-v1"
pytestmark = pytest.mark.timeout(3600 if FULL else 300)

HOOKS = """
import os, random, re
import requests, schemathesis

BASE, OWNER = os.environ["FUZZ_BASE"], {"authorization": "Bearer " + os.environ["FUZZ_OWNER"]}
OTHERS = ("/reset", "/step", "/mcp", "/v1/chat/completions")  # OpenEnv's, MCP's and OpenAI's errors have their own shapes
draw, held = random.Random(1), []

def session():
    if not held:
        token = requests.post(BASE + "/sessions", headers=OWNER).json()["session"]
        assert requests.post(f"{BASE}/sessions/{token}/reset", headers=OWNER, json={}).status_code == 200
        held.append(token)
    return held[0]

@schemathesis.hook
def before_call(context, case, kwargs):
    if "token" in case.path_parameters and draw.random() < 0.8:
        case.path_parameters["token"] = session()
        if case.method == "DELETE":
            held.clear()

@schemathesis.check
def refused_well(ctx, response, case):
    status, who = response.status_code, os.environ["FUZZ_WHO"]
    if who == "nobody" and case.path not in ("/health", "/ready"):
        assert status == 401, status
    if who == "b" and "{token}" in case.path:
        assert 400 <= status < 500, status
    assert status < 500 or status in (503, 507), (status, response.text[:300])
    if status >= 400 and case.path not in OTHERS:
        assert response.headers["content-type"] == ["application/problem+json"], response.headers
        told = response.json()
        assert {"type", "title", "status", "code", "detail", "retryable"} <= set(told), told
        assert told["status"] == status
    assert not re.search(r"File [^ ]+, line [0-9]+, in ", response.text)  # no word that the fuzzer could send back itself
"""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """A server, its tenants' tokens, and a folder."""

    url: str
    tokens: dict[str, str]
    folder: Path

    def run(self, base: str, who: str) -> dict[str, Any]:
        """Fuzz what is described at `base` as somebody; schemathesis's report."""
        owner = {"authorization": f"Bearer {self.tokens['a']}"}
        described, report = self.folder / "openapi.json", self.folder / f"{who}.json"
        described.write_text(httpx.get(f"{base}/openapi.json", headers=owner).text)
        command = [str(Path(peer_python(["schemathesis>=4.30,<5"])).with_name("st")), "run", str(described), "--url", base]
        command += ["--checks", "refused_well,response_schema_conformance", "--max-examples", str(EXAMPLES), "--seed", "1"]
        command += ["--no-shrink", "--continue-on-failure", "--warnings", "off", "--report-json-path", str(report)]
        command += ["-H", f"authorization:Bearer {self.tokens[who]}"] if who in self.tokens else []
        env = os.environ | {"SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(self.folder), "FUZZ_BASE": base}
        env |= {"FUZZ_OWNER": self.tokens["a"], "FUZZ_WHO": who}
        done = subprocess.run(command, env=env, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        found: dict[str, Any] = json.loads(report.read_text())
        return found


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "hooks.py").write_text(HOOKS)
    tokens = {name: new_token() for name in "ab"}
    auth, fleet = folder / "tokens.yaml", folder / "fleet.yaml"
    auth.write_text("tenants:\n" + "".join(f"  {name}: {{token_sha256: '{h}'}}\n" for name, (_, h) in tokens.items()))
    auth.chmod(0o600)
    fleet.write_text(f"fleets:\n  - {{id: {LAKE}}}\n  - {{id: game/Sokoban-v1}}\nauth: {auth}\n")
    with serve("-c", str(fleet)) as served:
        yield Fuzzed(served.url, {name: token for name, (token, _) in tokens.items()}, folder)


def accepted(report: dict[str, Any]) -> dict[str, int]:
    """How many requests of each operation with a session were answered with success."""
    rates = report["valid_rates"].items()
    return {name: sum(phase["accepted"] for phase in phases.values()) for name, phases in rates if "{token}" in name}


@pytest.mark.parametrize("who", ["a", "b", "nobody"])
def test_no_request_to_an_environment_breaks_the_server(fuzzed: Fuzzed, who: str) -> None:
    report = fuzzed.run(f"{fuzzed.url}/envs/{LAKE}", who)
    assert report["operations"]["tested"] == report["operations"]["total"] >= 20
    assert report["test_cases"]["generated"] > 10 * EXAMPLES
    got_in = accepted(report)
    if who == "a":  # the fuzz gets past the door
        assert all(got_in[f"POST /sessions/{{token}}/{verb}"] for verb in ("reset", "step", "snapshot", "fork"))
    else:
        assert sum(got_in.values()) == 0
    assert httpx.get(f"{fuzzed.url}/ready").json()["fleets"][LAKE]["restarts"] == 0


@pytest.mark.parametrize("who", ["a", "nobody"])
def test_no_request_to_the_server_itself_breaks_it(fuzzed: Fuzzed, who: str) -> None:
    report = fuzzed.run(fuzzed.url, who)
    assert report["operations"]["tested"] == report["operations"]["total"] >= 4


@pytest.fixture
def a(fuzzed: Fuzzed) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {fuzzed.tokens['a']}"}
    with httpx.Client(base_url=f"{fuzzed.url}/envs/{LAKE}", headers=headers, timeout=10) as client:
        yield client


def opened(client: httpx.Client, *, reset: bool = True) -> str:
    mine = f"/sessions/{client.post('/sessions').json()['session']}"
    assert not reset or client.post(f"{mine}/reset", json={"seed": 1}).status_code == 200
    return mine


def test_a_step_before_a_reset_is_the_callers_fault(a: httpx.Client) -> None:
    mine = opened(a, reset=False)
    assert a.post(f"{mine}/step", json={"action": "left"}).status_code == 409
    a.post(f"{mine}/reset", json={})
    assert a.post(f"{mine}/step", json={"action": "left"}).status_code == 200


def test_a_snapshot_that_never_was_is_the_callers_fault(a: httpx.Client) -> None:
    assert a.post(f"{opened(a)}/restore", json={"snapshot": 12345}).status_code == 404


def test_a_snapshot_of_another_tenant_is_as_unknown_as_one_that_never_was(fuzzed: Fuzzed, a: httpx.Client) -> None:
    """SRV-22: snapshots are small numbers, and all tenants share the workers."""
    snapshot = a.post(f"{opened(a)}/snapshot").json()["snapshot"]
    twin = opened(a)
    assert a.post(f"{twin}/restore", json={"snapshot": snapshot}).status_code == 200  # one's own is another thing
    headers = {"authorization": f"Bearer {fuzzed.tokens['b']}"}
    with httpx.Client(base_url=a.base_url, headers=headers, timeout=10) as b:
        mine = opened(b)
        foreign, unknown = (b.post(f"{mine}/restore", json={"snapshot": number}) for number in (snapshot, 12345))
    assert (foreign.status_code, foreign.content) == (404, unknown.content)
