"""MCP over streamable HTTP: the environment as tools, on the same session as `step`.

    POST initialize            opens a session, or takes the one of the header `envhub-session`; `mcp-session-id` names the talk
    POST tools/list, call      "reset", "step", and the environment's own tools, which are calls in the format it reads
    DELETE                     ends what `initialize` opened

Answers are single JSON bodies; there is no server-sent stream to listen to, so GET is refused (405).
"""

import json
import secrets
from dataclasses import dataclass
from typing import Any

from envhub.server.problems import Problem
from envhub.server.service import Service
from envhub.server.sessions import Session

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MOST = 4096
RESET = {
    "name": "reset",
    "description": "Begin an episode; gives the first observation.",
    "inputSchema": {
        "type": "object",
        "properties": {"seed": {"type": "integer", "minimum": 0}, "task": {"type": "object"}},
        "additionalProperties": False,
    },
}
STEP = {
    "name": "step",
    "description": "Take one action, as text; gives the next observation, the reward and whether the episode has ended.",
    "inputSchema": {
        "type": "object",
        "properties": {"action": {"type": "string"}},
        "required": ["action"],
        "additionalProperties": False,
    },
}


class RpcError(Exception):
    """A JSON-RPC error: its code and its words."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(slots=True)
class _Talk:
    """One client's talk: whose session it uses, and whether it opened it."""

    tenant: str
    session: Session
    owned: bool


class Mcp:
    """The MCP face of one environment."""

    def __init__(self, service: Service, env_id: str) -> None:
        """Serve `env_id`."""
        self._service, self._env_id = service, env_id
        self._talks: dict[str, _Talk] = {}

    async def post(
        self, tenant: str, talk_id: str, session_token: str, asked: dict[str, Any]
    ) -> tuple[int, dict[str, Any] | None, dict[str, str]]:
        """Answer one JSON-RPC message: status, body (None for a notification), headers. Raises Problem for an unknown talk."""
        number, method = asked.get("id"), asked.get("method")
        headers: dict[str, str] = {}
        try:
            if method == "initialize":
                talk_id, result = await self._initialize(tenant, session_token, asked.get("params") or {})
                headers["mcp-session-id"] = talk_id
            elif number is None:
                self._find(tenant, talk_id)
                return 202, None, {}
            else:
                result = await self._do(self._find(tenant, talk_id), str(method), asked.get("params") or {})
            return 200, {"jsonrpc": "2.0", "id": number, "result": result}, headers
        except RpcError as error:
            return 200, {"jsonrpc": "2.0", "id": number, "error": {"code": error.code, "message": error.message}}, {}

    async def delete(self, tenant: str, talk_id: str) -> None:
        """End a talk, and the session that it opened. Raises Problem (404)."""
        talk = self._find(tenant, talk_id)
        del self._talks[talk_id]
        if talk.owned:
            await self._service.close(talk.session)

    async def _initialize(self, tenant: str, session_token: str, params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        wanted = params.get("protocolVersion")
        try:
            if session_token:
                session, owned = self._service.sessions.find(session_token, tenant), False
            else:
                session, owned = await self._service.open(tenant, self._env_id), True
        except Problem as problem:
            raise RpcError(-32000, problem.detail) from problem
        self._forget_dead()
        talk_id = secrets.token_urlsafe(24)
        self._talks[talk_id] = _Talk(tenant, session, owned)
        facts = self._service.fleets[self._env_id].facts
        return talk_id, {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self._env_id, "version": "1"},
            "instructions": str(facts.get("instructions", "")),
        }

    async def _do(self, talk: _Talk, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [RESET, STEP, *self._own_tools()]}
            case "tools/call":
                return await self._call(talk, params.get("name"), params.get("arguments") or {})
        raise RpcError(-32601, f"Method not found: {method[:80]}")

    async def _call(self, talk: _Talk, name: Any, arguments: Any) -> dict[str, Any]:
        """A tool's result; what is wrong with a call, and what the environment raises, is an error result for the model."""
        if not isinstance(arguments, dict):
            raise RpcError(-32602, "arguments must be an object")
        try:
            session = self._service.sessions.find(talk.session.token, talk.tenant)
            match name:
                case "reset":
                    options = {"task": arguments["task"]} if isinstance(arguments.get("task"), dict) else None
                    observation, info = await self._service.call(session, "reset", [_seed(arguments.get("seed")), options])
                    return _result(observation, {"observation": observation, "info": info})
                case "step":
                    if not isinstance(arguments.get("action"), str):
                        raise RpcError(-32602, "step needs an action, as text")
                    return await self._step(session, arguments["action"])
                case str() if name in {tool["name"] for tool in self._own_tools()}:
                    call = json.dumps({"name": name, "arguments": arguments})
                    return await self._step(session, f"<tool_call>{call}</tool_call>")
        except Problem as problem:
            return {"content": [{"type": "text", "text": problem.detail}], "isError": True}
        raise RpcError(-32602, f"Unknown tool: {str(name)[:80]}")

    async def _step(self, session: Session, action: str) -> dict[str, Any]:
        observation, reward, terminated, truncated, info = await self._service.call(session, "step", action)
        told = {"observation": observation, "reward": reward, "terminated": terminated, "truncated": truncated, "info": info}
        return _result(
            f"{observation}\n[reward {reward:g}{', the episode has ended' if terminated or truncated else ''}]", told
        )

    def _own_tools(self) -> list[dict[str, Any]]:
        """The environment's tools, as MCP lists them; its reserved names are ours."""
        functions = [tool["function"] for tool in self._service.fleets[self._env_id].facts.get("tools", ())]
        return [
            {"name": f["name"], "description": f.get("description", ""), "inputSchema": f["parameters"]}
            for f in functions
            if f["name"] not in ("reset", "step", "state", "close")
        ]

    def _find(self, tenant: str, talk_id: str) -> _Talk:
        talk = self._talks.get(talk_id)
        if talk is None or talk.tenant != tenant:
            raise Problem(404, "mcp_session_unknown", "There is no such MCP session.", "Initialize again.")
        return talk

    def _forget_dead(self) -> None:
        """Talks whose sessions are over would pile up with clients that never say goodbye."""
        if len(self._talks) >= MOST:
            live = {session.token for session in self._service.sessions.all()}
            self._talks = {name: talk for name, talk in self._talks.items() if talk.session.token in live}


def _seed(value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63):
        return value
    raise RpcError(-32602, "a seed is a whole number from 0")


def _result(text: str, structured: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": False}
