"""HTTP and JSON for people and other languages: sessions of one environment, under /envs/<id>.

Bodies are read strictly: an unknown key, a duplicate key, NaN, or a number out of range is refused with its place.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Query, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from envhub.server.problems import Problem
from envhub.server.service import Service
from envhub.server.sessions import Session


class Strict(BaseModel):
    """A body without unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True)


class OpenBody(Strict):
    """How a session is opened."""

    wait_s: float = Field(default=0.0, ge=0, le=600)
    """How long to wait in the queue; 0 is refused at once when all places are taken."""


class ResetBody(Strict):
    """How an episode begins."""

    seed: int | None = Field(default=None, ge=0, lt=2**63)
    options: dict[str, Any] | None = None
    """{"task": data} plays that task."""


class StepBody(Strict):
    """One action."""

    action: str
    seq: int | None = Field(default=None, ge=1)
    """The step's number in the episode, from 1; refused if it is not the next."""


class RestoreBody(Strict):
    """Which snapshot."""

    snapshot: int


class Opened(BaseModel):
    """A new session: its token is the right to use it."""

    session: str
    lease_s: float


class Begun(BaseModel):
    """The first observation."""

    observation: str
    info: dict[str, Any]


class Stepped(BaseModel):
    """What a step gave."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    steps: int


class SessionState(BaseModel):
    """Where a session is."""

    steps: int
    over: bool
    lease_s: float


OPEN, RESET = Body(default=OpenBody()), Body(default=ResetBody())
Index = Annotated[int, Query(ge=0, lt=2**62)]
RequestId = Annotated[str, Header(max_length=200, description="Repeat it to get the same answer without a second run.")]


class _StrictRequest(Request):
    async def json(self) -> Any:
        """The body, read strictly."""
        return strict_json(await self.body())


class StrictRoute(APIRoute):
    """A route whose JSON bodies are read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, with our reading."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


def session_routes(service: Service, env_id: str) -> APIRouter:  # noqa: C901  a small function a route
    """The routes of one environment."""
    routes = APIRouter(tags=["sessions"], route_class=StrictRoute)

    def session_of(request: Request, token: str, request_id: str = "") -> Session:
        session = service.sessions.find(token, request.scope["tenant"], request_id)
        if session.env_id != env_id:
            raise Problem(404, "session_unknown", "There is no such session.", "Open a new one.")
        return session

    @routes.get("/describe")
    async def describe() -> dict[str, Any]:
        """What the environment says of itself."""
        found: dict[str, Any] = await service.about(env_id, "describe", {})
        return found

    @routes.get("/tasks")
    async def tasks() -> dict[str, int | None]:
        """The splits of the task set and their sizes; null is endless."""
        found: dict[str, int | None] = await service.about(env_id, "tasks", {})
        return found

    @routes.get("/tasks/{split}")
    async def some_tasks(split: str, start: Index, count: Annotated[int, Query(ge=1, le=256)] = 1) -> list[dict[str, Any]]:
        """Tasks from a place on; fewer at the end of a finite split."""
        size = (await service.about(env_id, "tasks", {})).get(split, 0)
        places = range(start, start + count if size is None else max(start + 1, min(start + count, size)))
        return [await service.about(env_id, "task", {"split": split, "index": place}) for place in places]

    @routes.post("/sessions", status_code=201)
    async def open_session(request: Request, body: OpenBody = OPEN) -> Opened:
        """Open a session on a fresh environment."""
        session = await service.open(request.scope["tenant"], env_id, wait_s=body.wait_s)
        return Opened(session=session.token, lease_s=service.fleets[env_id].config.lease_s)

    @routes.get("/sessions/{token}")
    async def show_session(request: Request, token: str) -> SessionState:
        """Where a session is; renews its lease."""
        session = session_of(request, token)
        return SessionState(steps=session.steps, over=session.over, lease_s=service.fleets[env_id].config.lease_s)

    @routes.delete("/sessions/{token}", status_code=204)
    async def close_session(request: Request, token: str) -> None:
        """End a session."""
        await service.close(session_of(request, token))

    @routes.post("/sessions/{token}/reset")
    async def reset(request: Request, token: str, body: ResetBody = RESET, request_id: RequestId = "") -> Begun:
        """Begin an episode."""
        session = session_of(request, token, request_id)
        observation, info = await service.call(session, "reset", [body.seed, body.options], request=request_id)
        return Begun(observation=observation, info=info)

    @routes.post("/sessions/{token}/step")
    async def step(request: Request, token: str, body: StepBody, request_id: RequestId = "") -> Stepped:
        """Take one action."""
        session = session_of(request, token, request_id)
        given = await service.call(session, "step", body.action, request=request_id, seq=body.seq)
        names = ("observation", "reward", "terminated", "truncated", "info")
        return Stepped(**dict(zip(names, given, strict=True)), steps=session.steps)

    @routes.post("/sessions/{token}/snapshot")
    async def snapshot(request: Request, token: str) -> dict[str, int]:
        """Keep the state, where the environment can."""
        return {"snapshot": await service.call(session_of(request, token), "snapshot", None)}

    @routes.post("/sessions/{token}/restore")
    async def restore(request: Request, token: str, body: RestoreBody) -> dict[str, bool]:
        """Go back to a snapshot."""
        await service.call(session_of(request, token), "restore", body.snapshot)
        return {"restored": True}

    @routes.post("/sessions/{token}/fork", status_code=201)
    async def fork(request: Request, token: str) -> Opened:
        """A second session in the same state."""
        twin = await service.fork(session_of(request, token))
        return Opened(session=twin.token, lease_s=service.fleets[env_id].config.lease_s)

    return routes


def strict_json(raw: bytes) -> Any:
    """JSON as it must be: UTF-8, no duplicate keys, no NaN, bounded depth and digits. Raises Problem (400) with the place."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise Problem(400, "not_utf8", f"The body is no UTF-8 at byte {error.start}.") from error
    except RecursionError as error:
        raise Problem(400, "too_deep", "The body is nested too deep.") from error
    except ValueError as error:
        raise Problem(400, "not_json", f"The body is no JSON: {str(error)[:200]}.") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
