"""The application: every environment mounted at /envs/<id>, our own wire at /wire, and what operators look at."""

import logging
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.routing import WebSocketRoute

from envhub.server.chat import chat_routes
from envhub.server.guard import App, Guard
from envhub.server.http import session_routes
from envhub.server.openenv import openenv_routes
from envhub.server.problems import Problem
from envhub.server.service import Service
from envhub.server.wire import Wire

log = logging.getLogger(__name__)
PAGE = Path(__file__).with_name("ui.html")


def build_app(service: Service) -> App:
    """The ASGI application of a running service."""
    config = service.config
    app = FastAPI(title="EnvHub", version="1", docs_url="/docs", redoc_url=None)
    _problems(app)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """Whether the server answers."""
        return {"status": "healthy"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        """Whether a reset and a step go all the way through; 503 if not."""
        found = service.health()
        return JSONResponse(found, 200 if found["ready"] else 503)

    @app.get("/envs")
    async def environments() -> list[dict[str, Any]]:
        """The environments served here."""
        facts = {name: fleet.facts for name, fleet in service.fleets.items()}
        return [{"id": name, "summary": f.get("summary"), "path": f"/envs/{name}"} for name, f in facts.items()]

    @app.get("/ui", include_in_schema=False)
    async def ui() -> HTMLResponse:
        """A page with the fleets, and a playground to step an environment by hand."""
        rules = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
        return HTMLResponse(PAGE.read_text("utf-8"), headers={"content-security-policy": rules, "x-frame-options": "DENY"})

    @app.get("/metrics")
    async def metrics(request: Request) -> PlainTextResponse:
        """Prometheus' text format. Counts by tenant are shown to that tenant, and to operators."""
        gauges: dict[str, dict[str, float]] = {"sessions": {}, "waiting": {}, "workers": {}, "worker_restarts": {}}
        for name, fleet in service.fleets.items():
            gauges["sessions"][name] = service.gates[name].held
            gauges["waiting"][name] = service.gates[name].waiting
            gauges["workers"][name] = sum(w.alive for w in fleet.workers)
            gauges["worker_restarts"][name] = fleet.restarts
        seen = service.tenants.seen_by(request.scope["tenant"])
        return PlainTextResponse(service.metrics.text(gauges, seen), media_type="text/plain; version=0.0.4")

    app.include_router(chat_routes(service))
    for fleet in config.fleets:
        app.mount(f"/envs/{fleet.id}", env_app(service, fleet.id))
    app.router.routes.append(WebSocketRoute("/wire", Wire(service)))
    if len(config.fleets) == 1:  # OpenEnv's clients and its validator look at the root of a server of one environment
        app.mount("/", env_app(service, config.fleets[0].id))
    return Guard(app, config, service.tenants)


def env_app(service: Service, env_id: str) -> FastAPI:
    """One environment's own application."""
    app = FastAPI(title=env_id, version="1.0.0", redoc_url=None)
    _problems(app)
    app.include_router(session_routes(service, env_id))
    app.include_router(openenv_routes(service, env_id))
    return app


def _problems(app: FastAPI) -> None:
    """Every refusal as problem+json, and nothing internal in any."""

    @app.exception_handler(Problem)
    async def refused(request: Request, problem: Problem) -> JSONResponse:
        later = {} if problem.retry_after_s is None else {"retry-after": str(max(1, round(problem.retry_after_s)))}
        return JSONResponse(problem.body(), problem.status, later, "application/problem+json")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        status = 400 if first["type"] == "json_invalid" else 422
        detail = [{k: v for k, v in e.items() if k in ("type", "loc", "msg")} for e in error.errors()[:10]]
        body = Problem(status, "invalid", f"{place}: {first['msg']}.").body() | {"detail": detail}
        return JSONResponse(body, status, media_type="application/problem+json")

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        problem = Problem(error.status_code, "http", str(error.detail))
        return JSONResponse(problem.body(), error.status_code, media_type="application/problem+json")

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        log.error("a request raised", exc_info=error, extra={"path": request.url.path})
        problem = Problem(500, "internal", "The server failed to answer; its log says why.")
        return JSONResponse(problem.body(), 500, media_type="application/problem+json")
