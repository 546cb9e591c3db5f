"""OpenEnv's HTTP and WebSocket contract (openenv 0.10), so that its stock clients work unchanged.

The action is {"text": ...}, the observation {"text": ..., "metadata": {}}. `done` is terminated or truncated; which of the two
stands in `metadata`. Over HTTP each call has an environment of its own, as in OpenEnv; episodes are for the WebSocket.
"""

import asyncio
import contextlib
import json
import math
import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envhub.server.http import strict_json
from envhub.server.mcp import Mcp
from envhub.server.problems import Problem
from envhub.server.service import Service
from envhub.server.sessions import Session


class ResetRequest(BaseModel):
    """OpenEnv's reset; further keys go to the environment's options."""

    model_config = ConfigDict(extra="allow")
    seed: Annotated[int, Field(ge=0)] | None = None
    episode_id: Annotated[str, Field(max_length=255)] | None = None


class TextAction(BaseModel):
    """What a policy wrote."""

    # a policy that writes 8 is read as JSON by some clients, and sent as a number: OpenEnv's own server refuses it, we take it
    model_config = ConfigDict(extra="forbid", validate_assignment=True, coerce_numbers_to_str=True)
    metadata: dict[str, Any] = Field(default_factory=dict, description="Additional metadata for the action")
    text: str


class StepRequest(BaseModel):
    """OpenEnv's step over HTTP."""

    model_config = ConfigDict(extra="allow")
    action: dict[str, Any]
    timeout_s: Annotated[float, Field(gt=0)] | None = None
    request_id: Annotated[str, Field(max_length=255)] | None = None


class TextObservation(BaseModel):
    """What a policy reads."""

    model_config = ConfigDict(extra="forbid")
    done: bool = False
    reward: bool | int | float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    text: str


class State(BaseModel):
    """Where an episode is."""

    model_config = ConfigDict(extra="allow")
    episode_id: str | None = None
    step_count: int = Field(default=0, ge=0)


def openenv_routes(service: Service, env_id: str) -> APIRouter:  # noqa: C901  a small function a route
    """The routes of one environment as OpenEnv's clients know them."""
    routes = APIRouter(tags=["OpenEnv"])
    facts = service.fleets[env_id].facts

    @routes.get("/health")
    async def health() -> dict[str, str]:
        """Whether it answers."""
        return {"status": "healthy"}

    @routes.get("/metadata")
    async def metadata() -> dict[str, Any]:
        """What the environment is."""
        text = str(facts.get("summary") or env_id)
        return {
            "name": env_id,
            "description": text,
            "readme_content": facts.get("instructions") or None,
            "version": "1.0.0",
            "author": None,
            "documentation_url": None,
        }

    @routes.get("/schema")
    async def schema() -> dict[str, Any]:
        """JSON Schemas of action, observation and state."""
        return {
            "action": TextAction.model_json_schema(),
            "observation": TextObservation.model_json_schema(),
            "reset_observation": TextObservation.model_json_schema(),
            "state": State.model_json_schema(),
        }

    @routes.get("/state")
    async def state() -> State:
        """The state of a fresh environment, since HTTP keeps none."""
        return State(episode_id=None, step_count=0)

    @routes.get("/list_environments")
    async def names() -> list[str]:
        """The one environment mounted here."""
        return [env_id]

    @routes.post("/reset")
    async def reset(request: Request, body: ResetRequest) -> dict[str, Any]:
        """The first observation of an environment that is closed again."""
        async with _borrowed(service, request.scope["tenant"], env_id) as session:
            observation, info = await service.call(session, "reset", _reset(body))
        return _observed(observation, None, False, False, info)

    @routes.post("/step")
    async def step(request: Request, body: StepRequest) -> Any:
        """One step of a fresh environment, which is closed again."""
        try:
            action = TextAction(**body.action)
        except ValidationError as error:
            return JSONResponse({"detail": json.loads(error.json(include_url=False))}, 422)
        async with _borrowed(service, request.scope["tenant"], env_id) as session:
            await service.call(session, "reset", [None, None])
            given = await service.call(session, "step", action.text)
        return _observed(*given)

    face = Mcp(service, env_id)

    @routes.post("/mcp")
    async def mcp(request: Request) -> Response:
        """MCP over streamable HTTP; without a talk, the few methods that OpenEnv's clients ask."""
        asked = strict_json(await request.body())
        talk, token = request.headers.get("mcp-session-id", ""), request.headers.get("envhub-session", "")
        if not isinstance(asked, dict):
            return JSONResponse(rpc(b"[]"), 400)
        if not talk and asked.get("method") != "initialize":
            return JSONResponse(rpc(json.dumps(asked).encode()))
        status, body, headers = await face.post(request.scope["tenant"], talk, token, asked)
        return Response(status_code=status) if body is None else JSONResponse(body, status, headers)

    @routes.delete("/mcp", status_code=204)
    async def end_mcp(request: Request) -> None:
        """End an MCP session."""
        await face.delete(request.scope["tenant"], request.headers.get("mcp-session-id", ""))

    @routes.websocket("/ws")
    async def socket(websocket: WebSocket) -> None:
        """An episode, or several one after the other."""
        await websocket.accept()
        await _Talk(service, env_id, websocket).run()

    return routes


def rpc(raw: bytes) -> dict[str, Any]:
    """The answer to a JSON-RPC request of OpenEnv's `/mcp`."""
    try:
        asked = json.loads(raw)
        method, number = asked.get("method"), asked.get("id")
    except (ValueError, AttributeError, RecursionError):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
    if method == "tools/list":
        return {"jsonrpc": "2.0", "id": number, "result": {"tools": []}}
    error = {"code": -32601, "message": f"Method not found: {str(method)[:80]}"}
    return {"jsonrpc": "2.0", "id": number, "error": error}


class _Talk:
    """One WebSocket: strictly one message in, one out."""

    def __init__(self, service: Service, env_id: str, websocket: WebSocket) -> None:
        self._service, self._env_id, self._socket = service, env_id, websocket
        self._session: Session | None = None
        self._episode: str | None = None

    async def run(self) -> None:
        """Serve until either side ends it; the session ends with the socket."""
        try:
            if not await self._open():
                return
            while True:
                answer = await self._answer(await self._socket.receive_text())
                if answer is None:
                    await self._socket.close(1000)
                    return
                await self._socket.send_text(json.dumps(answer, allow_nan=False))
        except (WebSocketDisconnect, KeyError, RuntimeError):
            return  # gone, or sent bytes where text belongs
        finally:
            if self._session is not None:
                self._service.sessions.end(self._session, "socket closed")

    async def _open(self) -> bool:
        tenant = self._socket.scope["tenant"]
        try:
            self._session = await self._service.open(tenant, self._env_id, wait_s=0.0)
            return True
        except Problem as problem:
            data: dict[str, Any] = {"message": problem.detail, "code": "FACTORY_ERROR"}
            if problem.status in (429, 503):
                gate = self._service.gates[self._env_id]
                data |= {"code": "CAPACITY_REACHED", "active_sessions": gate.held, "max_sessions": gate.capacity}
            await self._socket.send_text(json.dumps({"type": "error", "data": data}))
            await self._socket.close(1000)
            return False

    async def _answer(self, raw: str) -> dict[str, Any] | None:
        """The answer to one message; None ends the talk."""
        try:
            message = json.loads(raw)
        except (ValueError, RecursionError) as error:
            return _error(f"Invalid JSON: {str(error)[:200]}", "INVALID_JSON")
        if not isinstance(message, dict):
            return _error("Invalid JSON: an object belongs here", "INVALID_JSON")
        kind = message.get("type")
        if kind == "close":
            return None
        if kind not in ("reset", "step", "state", "mcp"):
            return _error(f"Unknown message type: {str(kind)[:80]}", "UNKNOWN_TYPE")
        extra = set(message) - {"type", "data"}
        if extra:
            return _error(
                "Invalid message", "VALIDATION_ERROR", [{"type": "extra_forbidden", "loc": [e]} for e in sorted(extra)]
            )
        try:
            return await self._do(kind, message.get("data", {}))
        except ValidationError as error:
            return _error("Invalid message", "VALIDATION_ERROR", json.loads(error.json(include_url=False)))
        except Problem as problem:
            return _error(problem.detail, "SESSION_ERROR" if problem.status in (404, 410) else "EXECUTION_ERROR")

    async def _do(self, kind: str, data: Any) -> dict[str, Any]:
        assert self._session is not None
        session = self._service.sessions.find(self._session.token, self._session.tenant)
        if kind == "state":
            return {"type": "state", "data": {"episode_id": self._episode, "step_count": session.steps}}
        if kind == "mcp":
            return {"type": "mcp", "data": rpc(json.dumps(data).encode())}
        if kind == "reset":
            body = ResetRequest.model_validate(data)
            self._episode = body.episode_id or str(uuid.uuid4())
            observation, info = await self._service.call(session, "reset", _reset(body))
            return {"type": "observation", "data": _observed(observation, None, False, False, info)}
        action = TextAction.model_validate(data)
        return {"type": "observation", "data": _observed(*await self._service.call(session, "step", action.text))}


def _reset(body: ResetRequest) -> list[Any]:
    options = dict(body.model_extra or {})
    return [body.seed, options or None]


def _observed(
    observation: str, reward: float | None, terminated: bool, truncated: bool, info: dict[str, Any]
) -> dict[str, Any]:
    told: dict[str, Any] = {"info": _finite(info)}
    if reward is not None:
        told |= {"terminated": terminated, "truncated": truncated}
    shown = {"metadata": {}, "text": observation}
    return {"observation": shown, "reward": reward, "done": terminated or truncated, "metadata": told}


def _finite(value: Any) -> Any:
    """JSON's numbers only: what is not finite becomes null."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {str(k): _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
        case bytes():
            return value.hex()
    return value


def _error(message: str, code: str, errors: Any = None) -> dict[str, Any]:
    data = {"message": message, "code": code} | ({} if errors is None else {"errors": errors})
    return {"type": "error", "data": data}


@contextlib.asynccontextmanager
async def _borrowed(service: Service, tenant: str, env_id: str) -> Any:
    """A session for one HTTP call."""
    session = await service.open(tenant, env_id)
    try:
        yield session
    finally:
        await asyncio.shield(service.close(session))
