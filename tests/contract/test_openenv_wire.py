"""Our server as OpenEnv's own client, validator and server see it: openenv 0.10 in a virtual environment of its own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.contract.adapters.peers import peer_python
from tests.contract.adapters.test_wires import OPENENV, server
from tests.served import free_port, package, serve

pytestmark = pytest.mark.slow
COUNT = """
from envhub import Env, EnvSpec

class Count(Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return f"seed {seed}", {}
    def step(self, action):
        if action == "break":
            raise RuntimeError("broken")
        self.n += 1
        return f"{self.n}: {action}", 0.5, self.n == 3, False, {}

SPEC = EnvSpec(id="t/Count-v1", make=Count, inline=True)
"""
CLIENT = """
import asyncio, json, sys
from openenv.core.generic_client import GenericEnvClient
async def main():
    client = GenericEnvClient(base_url=sys.argv[1])
    await client.connect()
    seen = []
    for _ in range(2):
        seen.append(await client.reset(seed=7))
        for text in ("a", "b", "c"):
            seen.append(await client.step({"text": text}))
    state = await client.state()
    await client.close()
    print(json.dumps([[r.observation.get("text"), r.reward, r.done] for r in seen] + [state["step_count"]]))
    held, refused = [], ""
    for _ in range(5):
        client = GenericEnvClient(base_url=sys.argv[1])
        try:
            await client.connect()
            await client.reset()
            held.append(client)
        except Exception as error:
            refused = str(error)
    print(json.dumps([len(held), refused]))
    for client in held:
        await client.close()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    site = package(tmp_path_factory.mktemp("site"), "t/Count-v1", COUNT)
    with serve("t/Count-v1", "--max-sessions", "4", site=site) as served:
        yield served.url


@pytest.mark.parametrize("path", ["", "/envs/t/Count-v1"])
def test_the_stock_client_plays_unchanged(ours: str, path: str) -> None:
    command = [peer_python(["openenv==0.10.0"]), "-c", CLIENT, ours + path]
    first, second = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    episode = [["seed 7", None, False], ["1: a", 0.5, False], ["2: b", 0.5, False], ["3: c", 0.5, True]]
    assert json.loads(first) == [*episode, *episode, 3]
    held, refused = json.loads(second)
    assert held == 4
    assert "CAPACITY_REACHED" in refused


def test_their_validator_is_content(ours: str) -> None:
    python = Path(peer_python(["openenv==0.10.0"]))
    command = [str(python.with_name("openenv")), "validate", "--url", ours, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    told = json.loads(done.stdout[done.stdout.index("{") :])
    failed = [c for c in told.get("criteria", told.get("checks", [])) if not c.get("passed", c.get("ok", True))]
    assert (done.returncode, failed) == (0, []), told


FRAMES: list[Any] = [
    *({"type": "reset", "data": {"seed": 3}}, {"type": "step", "data": {"text": "a"}}, {"type": "state"}, {"type": "reset"}),
    *({"type": "step", "data": {"text": "x"}}, {"type": "step", "data": {}}, {"type": "step", "data": {"text": None}}),
    *({"type": "step", "data": {"text": "x", "zzz": 1}}, {"type": "dance"}, {"type": "step", "data": {"text": "break"}}),
    *(
        {"type": "step", "data": {"text": "y"}},
        {"type": "step", "data": {"text": "z"}},
        {"type": "reset", "data": {"seed": -1}},
    ),
    *({"type": "reset", "data": {"episode_id": "mine"}}, {"type": "state"}, {"type": "step", "zzz": 1, "data": {"text": "q"}}),
    *("no json", {"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "initialize"}}, [1]),
]
# a number is taken as text, see test_verifiers_wire
BETTER = {  # where we answer otherwise on purpose: a negative seed is none, and a list is told so and not hung up on
    json.dumps({"type": "reset", "data": {"seed": -1}}): {"error": "VALIDATION_ERROR"},
    json.dumps([1]): {"error": "INVALID_JSON"},
}


def recorded(url: str) -> list[Any]:
    """What a server answers to every frame."""
    with connect(f"{url.replace('http', 'ws')}/ws", open_timeout=60) as socket:
        found = []
        for frame in FRAMES:
            socket.send(frame if isinstance(frame, str) else json.dumps(frame))
            try:
                found.append(json.loads(socket.recv(timeout=30)))
            except ConnectionClosed as closed:
                found.append({"closed": closed.rcvd.code if closed.rcvd else 0})
                return found
        socket.send('{"type": "close"}')
        return found


def essence(answer: Any) -> Any:
    """What clients read of an answer: not the words of errors, not our extra metadata, no random ids."""
    match answer:
        case {"type": "observation", "data": {"observation": observation, "reward": reward, "done": done}}:
            return {
                "observation": {k: v for k, v in observation.items() if k in ("text", "metadata")},
                "reward": reward,
                "done": done,
            }
        case {"type": "error", "data": data}:
            return {"error": data["code"]}
        case {"type": "state", "data": {"episode_id": episode, "step_count": count}}:
            return {"episode": episode == "mine", "count": count}
        case {"type": "mcp", "data": {"error": {"code": code}}}:
            return {"rpc": code}
    return answer


def test_frame_by_frame_we_answer_as_openenvs_own_server(ours: str) -> None:
    with server([peer_python(["openenv==0.10.0"]), "-c", OPENENV], free_port()) as theirs:
        wanted = recorded(theirs)
        schemas = [httpx.get(f"{url}/schema").json() for url in (theirs, ours)]
        missing = [httpx.post(f"{url}/step", json={"action": {}}).status_code for url in (theirs, ours)]
    mine = recorded(ours)
    for frame, our, their in zip(FRAMES, map(essence, mine), map(essence, wanted), strict=False):
        if isinstance(their, dict) and isinstance(our, dict) and their.get("reward") == 0.0 and our.get("reward") is None:
            their["reward"] = None  # their example gives a reward at reset
        assert our == BETTER.get(json.dumps(frame), their), frame
    assert schemas[0]["action"]["required"] == schemas[1]["action"]["required"]
    assert set(schemas[0]) <= set(schemas[1])
    assert missing[0] == missing[1]
    assert len(mine) == len(wanted)
