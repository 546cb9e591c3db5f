"""`/v1/chat/completions` where the "model" is an agent in its environment: a request is an episode, the answer its last words.

    {"model": "lake-walker", "messages": [{"role": "user", "content": "Cross the lake."}], "seed": 7}

What the user says goes to an agent that is a model itself, of any OpenAI-compatible server; `seed` and `task` choose the play.
The answer's field `envhub` holds reward, success and all turns; a stream gives each turn as it is played.
"""

import contextlib
import json
import os
import random
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from envhub.server.config import AgentConfig
from envhub.server.http import StrictRoute
from envhub.server.problems import Problem
from envhub.server.service import Service
from envhub.server.sessions import Session

MOST_TURNS = 1000
PATIENCE_S = 300.0
Talk = list[dict[str, str]]


class Said(BaseModel):
    """One message of the conversation."""

    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None

    def text(self) -> str:
        """Its words."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content or ())


class Asked(BaseModel):
    """What is read of a request; what agents have no use for is passed on to those that are models, or left."""

    model_config = ConfigDict(extra="ignore")
    model: str
    messages: list[Said] = Field(min_length=1, max_length=1000)
    stream: bool = False
    n: Literal[1] = 1
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    task: dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)


@dataclass(slots=True)
class Played:
    """An episode so far."""

    turns: list[dict[str, Any]] = field(default_factory=list)
    reward: float = 0.0
    success: bool | None = None
    terminated: bool = False
    truncated: bool = False
    tokens: list[int] = field(default_factory=lambda: [0, 0])


class Agents:
    """The agents of a server, by name."""

    def __init__(self, service: Service) -> None:
        """Those of the server's config."""
        self._service, self._agents = service, service.config.agents

    def names(self) -> list[str]:
        """What `/v1/models` lists."""
        return sorted(self._agents)

    async def play(self, tenant: str, asked: Asked, played: Played) -> AsyncGenerator[dict[str, Any]]:
        """Play an episode into `played`, a turn at a time. Raises Problem."""
        agent = self._agents.get(asked.model)
        if agent is None:
            raise Problem(404, "model_not_found", "There is no such agent here.", "GET /v1/models lists them.")
        session = await self._service.open(tenant, agent.env, wait_s=PATIENCE_S)
        try:
            options = None if asked.task is None else {"task": asked.task}
            seed = random.getrandbits(31) if asked.seed is None else asked.seed
            observation, info = await self._service.call(session, "reset", [seed, options])
            dice, facts = random.Random(seed), self._service.fleets[agent.env].facts
            most = min(agent.max_turns or MOST_TURNS, int(facts["max_turns"]))
            said = [{"role": m.role, "content": m.text()} for m in asked.messages if m.role != "tool"]
            talk = [{"role": "system", "content": str(facts["instructions"])}, *said]
            while not (played.terminated or played.truncated):
                talk.append({"role": "user", "content": observation})
                action = await self._act(agent, session, talk, asked, dice, played)
                talk.append({"role": "assistant", "content": action})
                observation, reward, ended, cut, info = await self._service.call(session, "step", action)
                played.reward, played.terminated = played.reward + reward, ended
                played.truncated = cut or (not ended and len(played.turns) + 1 >= most)
                played.success = info.get("success", played.success)
                turn = {"observation": talk[-2]["content"], "action": action, "reward": reward, "next": observation}
                played.turns.append(turn)
                yield turn
        finally:
            await self._service.close(session)

    async def _act(
        self, agent: AgentConfig, session: Session, talk: Talk, asked: Asked, dice: random.Random, played: Played
    ) -> str:
        deadline = self._service.fleets[agent.env].config.step_deadline_s
        if agent.policy == "model":
            return await _completed(agent, talk, asked, played)
        if agent.policy == "solver":
            assert session.worker is not None
            return str(await session.worker.do(session.number, "solve", None, deadline))
        actions = await self._service.call(session, "legal_actions", None)
        if not actions:
            raise Problem(500, "no_actions", "The environment names no actions to draw from.", "Use another agent.")
        return str(dice.choice(actions))


async def _completed(agent: AgentConfig, talk: Talk, asked: Asked, played: Played) -> str:
    """The next words of a model behind an OpenAI-compatible server. Raises Problem (502) if it gives none."""
    wishes = {"temperature": asked.temperature, "max_tokens": asked.max_completion_tokens or asked.max_tokens}
    body = {"model": agent.model, "messages": talk} | {k: v for k, v in wishes.items() if v is not None}
    key = os.environ.get(agent.key_variable, "") if agent.key_variable else ""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as client:
            answer = await client.post(f"{agent.base_url.rstrip('/')}/chat/completions", json=body, headers=headers)
        answer.raise_for_status()
        found = answer.json()
        text = found["choices"][0]["message"]["content"]
        if not isinstance(text, str):
            raise TypeError("it answers with no text")
    except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        what = f"it answers {status}" if status else type(error).__name__
        raise Problem(502, "agent_failed", f"The agent's model gives no answer: {what}.", "See its server.") from error
    usage = found.get("usage") if isinstance(found.get("usage"), dict) else {}
    for place, name in enumerate(("prompt_tokens", "completion_tokens")):
        count = usage.get(name)
        played.tokens[place] += count if isinstance(count, int) else 0
    return text


def chat_routes(service: Service) -> APIRouter:
    """`/v1/models` and `/v1/chat/completions`."""
    routes = APIRouter(prefix="/v1", tags=["agents"], route_class=StrictRoute)
    agents = Agents(service)

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        """The agents that can be asked."""
        data = [{"id": name, "object": "model", "created": int(service.began), "owned_by": "envhub"} for name in agents.names()]
        return {"object": "list", "data": data}

    @routes.post("/chat/completions")
    async def complete(request: Request, asked: Asked) -> Any:
        """Have an agent play an episode."""
        played, name = Played(), f"chatcmpl-{uuid.uuid4().hex}"
        turns = agents.play(request.scope["tenant"], asked, played)
        try:
            first = await anext(turns)
            if not asked.stream:
                async for _ in turns:
                    pass
                return _whole(name, asked.model, played)
        except Problem as problem:
            return _refused(problem)
        return StreamingResponse(_stream(name, asked.model, first, turns, played), media_type="text/event-stream")

    return routes


async def _stream(
    name: str, model: str, first: dict[str, Any], turns: AsyncGenerator[dict[str, Any]], played: Played
) -> AsyncIterator[str]:
    """One event a turn; a failure in the middle is the last event."""

    def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        head = {"id": name, "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        return f"data: {json.dumps(head | {'choices': [choice]} | more)}\n\n"

    try:
        yield event({"role": "assistant", "content": first["action"]})
        async with contextlib.aclosing(turns):  # a client who goes away ends the episode
            async for turn in turns:
                yield event({"content": f"\n{turn['action']}"})
        yield event({}, _finish(played), envhub=_facts(played))
    except Problem as problem:
        yield f"data: {json.dumps(_error(problem))}\n\n"
    yield "data: [DONE]\n\n"


def _whole(name: str, model: str, played: Played) -> dict[str, Any]:
    message = {"role": "assistant", "content": played.turns[-1]["action"]}
    prompt, completion = played.tokens
    return {
        "id": name,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(played), "logprobs": None}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
        "envhub": _facts(played),
    }


def _finish(played: Played) -> str:
    return "stop" if played.terminated else "length"


def _facts(played: Played) -> dict[str, Any]:
    found = {"reward": played.reward, "success": played.success, "terminated": played.terminated}
    return found | {"truncated": played.truncated, "turns": played.turns}


def _error(problem: Problem) -> dict[str, Any]:
    words = f"{problem.detail} {problem.hint}".strip()
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    return {"error": {"message": words, "type": kind, "param": None, "code": problem.code}}


def _refused(problem: Problem) -> JSONResponse:
    later = {} if problem.retry_after_s is None else {"retry-after": str(max(1, round(problem.retry_after_s)))}
    return JSONResponse(_error(problem), problem.status, later)
