"""A NeMo Gym resources server: `nemo_gym:http://127.0.0.1:9000`. A task is a row of its data set:

    {"responses_create_params": {"input": [...], "tools": [...]}, ...}

`/seed_session` begins an episode and its cookie keeps it; a reply's calls go to the tools' routes, a reply without calls ends
the episode and `/verify` gives the reward. Rows come from a file (`env.tasks`, `envhub eval --tasks`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from envhub.envs.core import Info
from envhub.envs.parsers import parse
from envhub.envs.spec import EnvSpec
from envhub.errors import ConfigError, EnvError

DEADLINE_S = 120.0
MAX_BYTES = 16 << 20


class NemoGym:
    """One session of a resources server."""

    def __init__(self, url: str, *, style: str = "hermes") -> None:
        """Play at `url`; `style` is the format of the replies' calls."""
        self._url, self._style = url, style
        self._client: httpx.AsyncClient | None = None
        self._row: dict[str, Any] = {}
        self._output: list[dict[str, Any]] = []
        self._over = True

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        """Begin the task. Raises EnvError."""
        await self.close()
        self._client = httpx.AsyncClient(base_url=self._url, timeout=DEADLINE_S)
        self._row = dict((options or {}).get("task") or {"responses_create_params": {"input": "begin"}})
        self._output, self._over = [], False
        await self._post("/seed_session", self._row)
        return _shown(self._row.get("responses_create_params", {}).get("input", "")), {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Run the reply's calls, or end the episode with it. Raises EnvError."""
        if self._over:
            return "The episode is over.", 0.0, True, False, {"illegal": True}
        reply = parse(action.encode("utf-8", "replace").decode(), self._style)
        if reply.problems:
            return "\n".join(f"error: {p}" for p in reply.problems), 0.0, False, False, {"illegal": True}
        if reply.calls:
            return (
                "\n".join([await self._call(c.name, c.arguments, i) for i, c in enumerate(reply.calls)]),
                0.0,
                False,
                False,
                {},
            )
        self._over = True
        text = {"type": "output_text", "text": reply.text, "annotations": []}
        self._output.append({"id": "msg", "type": "message", "role": "assistant", "status": "completed", "content": [text]})
        response = {
            **{"id": "resp", "object": "response", "created_at": 0.0, "model": "envhub", "tool_choice": "auto"},
            **{"parallel_tool_calls": True, "output": self._output, "tools": self._row_tools()},
        }
        given = await self._post("/verify", {**self._row, "response": response})
        reward = given.get("reward")
        if not isinstance(reward, int | float) or not math.isfinite(reward):
            raise EnvError(f"{self._url}/verify gave the reward {reward!r}", mend="mend the server")
        return "", float(reward), True, False, {"success": float(reward) >= 1.0}

    async def close(self) -> None:
        """End the session. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _call(self, name: str, arguments: Mapping[str, Any], place: int) -> str:
        """A tool's answer; a bad call is answered in words."""
        known = [tool.get("name") for tool in self._row_tools()]
        if name not in known or not name.isidentifier():
            return f"error: no tool {name[:80]!r}; there are: {', '.join(map(str, known))}"
        number = f"call_{len(self._output)}_{place}"
        asked = {"type": "function_call", "name": name, "call_id": number, "arguments": json.dumps(dict(arguments))}
        assert self._client is not None
        answer = await self._client.post(f"/{name}", json=dict(arguments))
        text = answer.text[:MAX_BYTES]
        self._output += [asked, {"type": "function_call_output", "call_id": number, "output": text}]
        return text if answer.status_code == 200 else f"error: {answer.status_code}: {text[:1000]}"

    def _row_tools(self) -> Sequence[Mapping[str, Any]]:
        return self._row.get("responses_create_params", {}).get("tools") or []

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert self._client is not None
        try:
            answer = await self._client.post(path, json=dict(body))
            answer.raise_for_status()
            found = answer.json() if answer.content else {}
        except (httpx.HTTPError, ValueError) as error:
            raise EnvError(f"{self._url}{path}: {type(error).__name__}: {error}", mend="see the server's log") from error
        return found if isinstance(found, dict) else {}


def _shown(given: Any) -> str:
    if isinstance(given, str):
        return given
    return "\n\n".join(str(message.get("content", "")) for message in given if isinstance(message, dict))


def spec(rest: str) -> EnvSpec:
    """The spec of a resources server. Raises ConfigError for what is no URL."""
    if not rest.startswith(("http://", "https://")):
        raise ConfigError(f"{rest!r} is no URL", mend="write nemo_gym:http://host:port")
    url = rest.rstrip("/")
    return EnvSpec(
        id=f"nemo_gym:{url}",
        make=lambda **options: NemoGym(url, **options),
        summary="A NeMo Gym resources server.",
        max_turns=64,
        success_reward=1.0,
        reward_range=(-1e6, 1e6),
        inline=True,
        tags=("nemo-gym",),
    )
