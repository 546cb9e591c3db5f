"""verifiers' OpenEnv task set, unchanged, plays our server: its evaluator, a model of ours, the environment's rewards."""

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.contract.adapters.peers import peer_python
from tests.served import package, serve

ADDER = """
from envhub import Env, EnvSpec

class Adder(Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = int(seed)
        return f"{self.n}", {}
    def step(self, action):
        right = action == str(self.n + 1)
        self.n += 1
        return f"{self.n}", float(right), self.n % 10 == 0, False, {}

SPEC = EnvSpec(id="t/Adder-v1", make=Adder, inline=True, reward_range=(0.0, 1.0), max_turns=20)
"""
CONFIG = """
model = "adder"
push = false
output_dir = "{out}"
[client]
base_url = "{model}/v1"
api_key_var = "STUB_KEY"
[env.taskset]
id = "openenv"
base_url = "{url}/envs/t/Adder-v1"
resets = [{{seed = 7}}, {{seed = 15}}]
[env.player.harness]
id = "null"
[env.player.runtime]
type = "subprocess"
"""


class Model(BaseHTTPRequestHandler):
    """Adds one to what it is shown; streams, as the evaluator asks."""

    def do_POST(self) -> None:
        asked: Any = json.loads(self.rfile.read(int(self.headers["content-length"])))
        shown = json.loads(asked["messages"][-1]["content"])
        assert list(shown["action_schema"]["required"]) == ["text"]
        answer = str(int(shown["observation"]["text"]) + 1) if shown["observation"]["text"] != "8" else "no"
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "adder"}
        choices = [({"role": "assistant", "content": answer}, None), ({}, "stop")]
        events = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in choices]
        told = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.mark.slow
def test_the_evaluator_plays_and_sums_the_rewards(tmp_path: Path) -> None:
    python = Path(peer_python(["verifiers[openenv]==0.4.0"]))
    site = package(tmp_path / "site", "t/Adder-v1", ADDER)
    with serve("t/Adder-v1", site=site) as served, ThreadingHTTPServer(("127.0.0.1", 0), Model) as model:
        threading.Thread(target=model.serve_forever, daemon=True).start()
        config = CONFIG.format(out=tmp_path / "out", model=f"http://127.0.0.1:{model.server_port}", url=served.url)
        (tmp_path / "eval.toml").write_text(config)
        command = [str(python.with_name("vf-eval")), "@", str(tmp_path / "eval.toml")]
        env = os.environ | {"STUB_KEY": "x"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env, cwd=tmp_path)
        model.shutdown()
    (traces,) = (tmp_path / "out").glob("*/traces.jsonl")
    episodes = [trace for line in traces.read_text().splitlines() for trace in _traces(json.loads(line))]
    rewards = sorted(trace["rewards"]["openenv_reward"]["score"] for trace in episodes)
    assert rewards == [2.0, 5.0], done.stdout  # 7, 8 (where the model says no), 9; 15 to 19
    assert all(trace["ok"] for trace in episodes)


def _traces(line: Any) -> list[Any]:
    """The players' traces of an episode, wherever they stand in it."""
    if isinstance(line, dict):
        own = [line] if "rewards" in line and "ok" in line else []
        return own + [trace for value in line.values() for trace in _traces(value)]
    return [trace for value in line for trace in _traces(value)] if isinstance(line, list) else []
