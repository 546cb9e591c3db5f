"""Agents as models: a chat completion is an episode, for plain HTTP and for OpenAI's own client."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from envhub.errors import ConfigError
from envhub.server.config import ServeConfig
from envhub.settings import load_settings
from tests.contract.adapters.peers import peer_python
from tests.served import serve

FLEET = """
fleets:
  - {{id: game/FrozenLake-v1, options: {{size: 4, p: 0.9}}, max_sessions: 4}}
agents:
  walker: {{env: game/FrozenLake-v1, policy: solver}}
  drunkard: {{env: game/FrozenLake-v1, policy: random, max_turns: 5}}
  model: {{env: game/FrozenLake-v1, policy: model, base_url: "{url}/v1/", model: right-goer, key_variable: CHAT_TEST_KEY}}
"""


class Upstream(BaseHTTPRequestHandler):
    """A model that always goes right, and keeps what it was asked."""

    asked: list[tuple[str | None, Any]] = []  # noqa: RUF012  of the one test server
    answer: tuple[int, Any] = (200, "right")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.headers["authorization"], body))
        status, text = Upstream.answer
        usage = {"prompt_tokens": 10, "completion_tokens": 2}
        told = json.dumps({"choices": [{"message": {"content": text}}], "usage": usage}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as upstream:
        patch.setenv("CHAT_TEST_KEY", "sesame")
        threading.Thread(target=upstream.serve_forever, daemon=True).start()
        path = tmp_path_factory.mktemp("chat") / "fleet.yaml"
        path.write_text(FLEET.format(url=f"http://127.0.0.1:{upstream.server_port}"))
        with serve("-c", str(path)) as served:
            yield served.url
        upstream.shutdown()


def ask(url: str, agent: str, **more: Any) -> httpx.Response:
    body = {"model": agent, "messages": [{"role": "user", "content": "Cross the lake."}], "seed": 3} | more
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30)


def test_a_solver_crosses_the_lake_and_a_stream_tells_the_same(url: str) -> None:
    whole = ask(url, "walker").json()
    turns = whole["envhub"]["turns"]
    assert (whole["envhub"]["reward"], whole["envhub"]["success"], whole["envhub"]["terminated"]) == (1.0, True, True)
    assert whole["choices"][0]["message"]["content"] == turns[-1]["action"]
    assert whole["choices"][0]["finish_reason"] == "stop"
    lines = ask(url, "walker", stream=True).text.strip().split("\n\n")
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    said = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert said.split("\n") == [turn["action"] for turn in turns]
    assert events[-1]["envhub"] == whole["envhub"]
    assert httpx.get(f"{url}/ready").json()["fleets"]["game/FrozenLake-v1"]["sessions"] == 0


def test_a_random_agent_is_cut_at_its_turns(url: str) -> None:
    told = [ask(url, "drunkard", seed=seed).json()["envhub"] for seed in range(8)]
    assert all(len(one["turns"]) <= 5 and one["truncated"] != one["terminated"] for one in told)
    assert ask(url, "drunkard", seed=1).json()["envhub"] == told[1]


def test_a_model_is_the_agent_and_hears_the_user_and_the_environment(url: str) -> None:
    Upstream.asked.clear()
    parts = [{"type": "text", "text": "Cross "}, {"type": "text", "text": "it."}]
    told = ask(url, "model", messages=[{"role": "user", "content": parts}], temperature=0.5, max_completion_tokens=9).json()
    turns = told["envhub"]["turns"]
    count = len(turns)
    assert told["usage"] == {"prompt_tokens": 10 * count, "completion_tokens": 2 * count, "total_tokens": 12 * count}
    (key, first), last = Upstream.asked[0], Upstream.asked[-1][1]
    assert (key, first["model"], first["temperature"], first["max_tokens"]) == ("Bearer sesame", "right-goer", 0.5, 9)
    assert [m["role"] for m in first["messages"]] == ["system", "user", "user"]
    assert [m["content"] for m in first["messages"][1:]] == ["Cross it.", turns[0]["observation"]]
    assert [m["content"] for m in last["messages"] if m["role"] == "assistant"] == ["right"] * (count - 1)


@pytest.mark.parametrize("answer", [(500, "right"), (200, None), (200, 7)])
def test_a_model_that_gives_nothing_is_told(url: str, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any]) -> None:
    monkeypatch.setattr(Upstream, "answer", answer)
    told = ask(url, "model")
    assert (told.status_code, told.json()["error"]["code"]) == (502, "agent_failed")
    assert "sesame" not in told.text
    assert httpx.get(f"{url}/ready").json()["fleets"]["game/FrozenLake-v1"]["sessions"] == 0


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"model": "nobody"}, 404),
        ({"messages": []}, 422),
        ({"n": 2}, 422),
        ({"seed": -1}, 422),
        ({"task": {"map": 7}}, 500),
        ({"messages": [{"role": "king", "content": "x"}]}, 422),
    ],
)
def test_wrong_requests_are_refused(url: str, more: dict[str, Any], status: int) -> None:
    assert ask(url, "walker", **more).status_code == status


CLIENT = """
import json, sys
from openai import NotFoundError, OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
names = [model.id for model in client.models.list()]
asked = {"messages": [{"role": "user", "content": "go"}], "seed": 3}
whole = client.chat.completions.create(model="walker", **asked)
parts = [c.choices[0].delta.content or "" for c in client.chat.completions.create(model="walker", stream=True, **asked)]
try:
    client.chat.completions.create(model="nobody", **asked)
except NotFoundError as error:
    code = error.code
print(json.dumps([names, whole.choices[0].message.content, whole.model_extra["envhub"]["reward"], "".join(parts), code]))
"""


@pytest.mark.slow
def test_openais_own_client_is_served(url: str) -> None:
    done = subprocess.run([peer_python(["openai==2.8.1"]), "-c", CLIENT, url], capture_output=True, text=True, timeout=120)
    names, last, reward, streamed, code = json.loads(done.stdout or done.stderr)
    assert (names, reward, code) == (["drunkard", "model", "walker"], 1.0, "model_not_found")
    assert streamed.split("\n")[-1] == last


def test_agents_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    for agent, part in (
        ("{env: b/B-v1}", "not served"),
        ("{env: a/A-v1, policy: model}", "base_url"),
        ("{env: a/A-v1, model: m, base_url: http://x}", "base_url"),
        ("{env: a/A-v1, policy: genius}", "policy"),
    ):
        path.write_text(f"{{fleets: [{{id: a/A-v1}}], agents: {{x: {agent}}}}}")
        with pytest.raises(ConfigError, match=part):
            load_settings(ServeConfig, path, [])
