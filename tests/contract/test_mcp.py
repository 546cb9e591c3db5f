"""MCP as the official SDK's client speaks it, in both of its major versions, on the session that `step` uses."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import envhub
from tests.contract.adapters.peers import peer_python
from tests.served import serve

ENV = "tool/Calculator-v1"
CLIENT = """
import asyncio, json, sys
from mcp import ClientSession
try:
    from mcp.client.streamable_http import streamablehttp_client as connect
except ImportError:
    from mcp.client.streamable_http import streamable_http_client as connect

async def main():
    async with connect(sys.argv[1]) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            hello = await session.initialize()
            tools = await session.list_tools()
            begun = await session.call_tool("reset", {"seed": 3})
            sum_ = await session.call_tool("calculate", {"expression": "2 ** 10 - 1"})
            wrong = await session.call_tool("calculate", {"expresion": "1"})
            stepped = await session.call_tool("step", {"action": "no idea"})
            def text(result):
                return result.content[0].text
            info = getattr(hello, "server_info", None) or hello.serverInfo
            print(json.dumps([info.name, [t.name for t in tools.tools], text(begun), text(sum_), text(wrong), text(stepped)]))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(ENV, "--max-sessions", "3") as served:
        yield f"{served.url}/envs/{ENV}"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["mcp==1.24.0", "mcp==2.0.0"])
def test_the_official_client_plays(url: str, version: str) -> None:
    command = [peer_python([version]), "-c", CLIENT, f"{url}/mcp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    name, tools, begun, total, wrong, stepped = json.loads(done.stdout.splitlines()[-1])
    assert (name, tools) == (ENV, ["reset", "step", "calculate"])
    assert len(begun) > 40
    assert total.startswith("1023")
    assert "error" in wrong
    assert "the episode has ended" in stepped
    assert httpx.get(url.partition("/envs")[0] + "/ready").json()["fleets"][ENV]["sessions"] == 0


def rpc(
    url: str, method: str, params: Any = None, headers: dict[str, str] | None = None, *, number: int | None = 1
) -> httpx.Response:
    body = {"jsonrpc": "2.0", "method": method} | ({} if number is None else {"id": number})
    return httpx.post(f"{url}/mcp", json=body | ({} if params is None else {"params": params}), headers=headers)


def test_tools_act_on_the_session_that_step_uses(url: str) -> None:
    session = httpx.post(f"{url}/sessions").json()["session"]
    httpx.post(f"{url}/sessions/{session}/reset", json={"seed": 1})
    hello = rpc(url, "initialize", {"protocolVersion": "2025-06-18"}, {"envhub-session": session})
    talk = {"mcp-session-id": hello.headers["mcp-session-id"]}
    assert hello.json()["result"]["protocolVersion"] == "2025-06-18"
    assert rpc(url, "notifications/initialized", None, talk, number=None).status_code == 202
    called = rpc(url, "tools/call", {"name": "calculate", "arguments": {"expression": "6*7"}}, talk).json()["result"]
    assert (called["isError"], called["structuredContent"]["observation"]) == (False, "42")
    assert httpx.get(f"{url}/sessions/{session}").json()["steps"] == 1
    assert httpx.delete(f"{url}/mcp", headers=talk).status_code == 204
    assert httpx.get(f"{url}/sessions/{session}").status_code == 200  # it was not MCP's to end
    assert rpc(url, "ping", None, talk).status_code == 404
    httpx.delete(f"{url}/sessions/{session}")


def test_what_is_wrong_is_told_in_mcps_own_words(url: str) -> None:
    talk = {"mcp-session-id": rpc(url, "initialize", {}).headers["mcp-session-id"]}
    assert rpc(url, "nosuch", None, talk).json()["error"]["code"] == -32601
    for params in ({"name": "nosuch"}, {"name": "step", "arguments": {}}, {"name": "reset", "arguments": {"seed": -1}}):
        assert rpc(url, "tools/call", params, talk).json()["error"]["code"] == -32602
    early = rpc(url, "tools/call", {"name": "step", "arguments": {"action": "x"}}, talk).json()["result"]
    assert early["isError"] is True
    assert rpc(url, "initialize", {}, {"envhub-session": "not-a-session"}).json()["error"]["code"] == -32000
    assert httpx.get(f"{url}/mcp").status_code == 405
    assert httpx.post(f"{url}/mcp", content=b'{"a": 1, "a": 2}').status_code == 400
    assert httpx.delete(f"{url}/mcp", headers=talk).status_code == 204
    env = envhub.connect(url)
    env.reset(seed=1)
    env.close()
