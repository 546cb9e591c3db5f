"""Adapters of served environments: a real OpenEnv server, and NeMo Gym's routes, whose package needs a newer Python."""

import asyncio
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from envhub.envs.adapters.nemo_gym import NemoGym
from envhub.envs.adapters.openenv import OpenEnv, shown
from envhub.envs.registry import load_spec
from envhub.envs.sync_face import SyncFace
from envhub.errors import ConfigError, EnvError
from tests.contract.adapters.peers import peer_python
from tests.served import free_port

OPENENV = """
import sys, uvicorn
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

class Act(Action):
    text: str

class Obs(Observation):
    text: str = ""

class Count(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    def __init__(self):
        super().__init__()
        self.s = State(step_count=0)
    def reset(self, seed=None, episode_id=None, **kw):
        self.s = State(episode_id=episode_id, step_count=0)
        return Obs(text=f"seed {seed}", done=False, reward=0.0)
    def step(self, action, timeout_s=None, **kw):
        if action.text == "break":
            raise RuntimeError("broken")
        self.s.step_count += 1
        return Obs(text=f"{self.s.step_count}: {action.text}", done=self.s.step_count == 3, reward=0.5)
    @property
    def state(self):
        return self.s

app = create_app(Count, Act, Obs, env_name="count", max_concurrent_envs=8)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""


@contextmanager
def server(command: list[str], port: int, patience_s: float = 120.0) -> Iterator[str]:
    """A process that serves a port, until the block ends."""
    with subprocess.Popen([*command, str(port)]) as process:
        try:
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline and process.poll() is None:
                with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 0.5)):
                    break
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.slow
def test_a_real_openenv_server_is_played() -> None:
    with server([peer_python(["openenv==0.10.0"]), "-c", OPENENV], free_port()) as url:
        spec = load_spec(f"openenv:{url}")
        assert (spec.id, spec.instructions.startswith("Answer with a JSON")) == (f"openenv:{url}", False)
        env: Any = SyncFace(spec.make())  # type: ignore[arg-type]
        assert env.reset(seed=7) == ("seed 7", {})
        assert env.step("a") == ("1: a", 0.5, False, False, {})
        assert env.step("\ud800\0")[0] == "2: ?\0"
        assert env.step("c") == ("3: c", 0.5, True, False, {})
        assert env.step("d")[1:3] == (0.0, True)
        assert env.reset(seed=8)[0] == "seed 8"
        with pytest.raises(EnvError, match="EXECUTION_ERROR"):
            env.step("break")
        env.close()
        env.close()
        as_json: Any = SyncFace(OpenEnv(url, None))
        as_json.reset(seed=1)
        assert as_json.step("no json")[4] == {"illegal": True}
        assert as_json.step('{"wrong": 1}')[4] == {"illegal": True}
        assert as_json.step('{"text": "right"}')[0] == "1: right"
        as_json.close()


def test_what_is_no_openenv_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="no OpenEnv server"):
        load_spec(f"openenv:http://127.0.0.1:{free_port()}")


def test_an_observation_of_one_text_is_that_text_and_others_are_json() -> None:
    assert shown({"text": "hello", "metadata": {}, "done": False, "reward": 1}) == "hello"
    assert json.loads(shown({"a": 1, "b": "x"})) == {"a": 1, "b": "x"}


class Counter(BaseHTTPRequestHandler):
    """A resources server as NeMo Gym's example `counter` is: a session by cookie, two tools, a verify."""

    counts: dict[str, int] = {}  # noqa: RUF012  shared by the handler's instances, which live for one request each
    verified: dict[str, Any] = {}  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = self.headers.get("cookie", "").partition("session=")[2]
        answer: Any = {}
        cookie = ""
        if self.path == "/seed_session":
            name = cookie = str(len(Counter.counts))
            Counter.counts[name] = int(body["initial_count"])
        elif self.path == "/increment_counter":
            Counter.counts[name] += body["count"]
            answer = {"success": True}
        elif self.path == "/get_counter_value":
            answer = {"count": Counter.counts[name]}
        elif self.path == "/verify":
            Counter.verified = body
            answer = {**body, "reward": float(Counter.counts[name] == body["expected_count"])}
        data = json.dumps(answer).encode()
        self.send_response(200)
        if cookie:
            self.send_header("set-cookie", f"session={cookie}")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None: ...


ROW = {
    "responses_create_params": {
        "input": [{"role": "user", "content": "add 1 then 2 then get the count"}],
        "tools": [{"type": "function", "name": "increment_counter"}, {"type": "function", "name": "get_counter_value"}],
    },
    "initial_count": 3,
    "expected_count": 6,
}


async def episode(url: str, amounts: list[int]) -> list[Any]:
    env = NemoGym(url)
    seen: list[Any] = [await env.reset(options={"task": ROW})]
    for amount in amounts:
        call = {"name": "increment_counter", "arguments": {"count": amount}}
        seen.append(await env.step(f"<tool_call>{json.dumps(call)}</tool_call>"))
    seen.append(await env.step('<tool_call>{"name": "rm_rf", "arguments": {}}</tool_call>'))
    seen.append(await env.step('<tool_call>{"name": "get_counter_value"}</tool_call>'))
    seen.append(await env.step("The count is there."))
    await env.close()
    return seen


def test_nemo_gyms_routes_are_played_with_their_session() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Counter) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{http.server_port}"
        seen = asyncio.run(episode(url, [1, 2]))
        assert seen[0][0] == "add 1 then 2 then get the count"
        assert json.loads(seen[1][0]) == {"success": True}
        assert seen[3][0].startswith("error: no tool 'rm_rf'")
        assert json.loads(seen[4][0]) == {"count": 6}
        assert seen[5][1:3] == (1.0, True)
        kinds = [item["type"] for item in Counter.verified["response"]["output"]]
        assert kinds == ["function_call", "function_call_output"] * 3 + ["message"]
        assert asyncio.run(episode(url, [1]))[-1][1] == 0.0
        http.shutdown()
        thread.join()
    assert load_spec(f"nemo_gym:{url}").success_reward == 1.0
