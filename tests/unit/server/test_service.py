"""The service without a socket: spans, waiting callers who give up, and environments that do not start."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from envhub.errors import ConfigError
from envhub.server.auth import Tenants
from envhub.server.config import FleetConfig, ServeConfig
from envhub.server.problems import Problem
from envhub.server.service import Service
from envhub.server.watchdog import watched

LAKE = "game/FrozenLake-v1"
TENANTS = (("alice", "a", "false"), ("bob", "b", "false"), ("ops", "c", "true"))


def config(**changes: Any) -> ServeConfig:
    return ServeConfig(fleets=(FleetConfig(id=LAKE, max_sessions=1, queue=2),), **changes)


def test_every_session_and_verb_has_a_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

    async def run() -> None:
        async with Service(config(traces=True), Tenants()).running() as service:
            session = await service.open("local", LAKE)
            await service.call(session, "reset", [1, None])
            await service.call(session, "step", "right")
            with pytest.raises(Problem):
                await service.call(session, "step", "right", seq=9)
            await service.close(session)

    asyncio.run(run())
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"envhub.session", "envhub.reset", "envhub.step"}
    whole = spans["envhub.session"]
    assert (whole.attributes or {})["envhub.steps"] == 1
    steps = [span for span in exporter.get_finished_spans() if span.name == "envhub.step"]
    assert [(s.attributes or {}).get("envhub.problem") for s in steps] == [None, "seq_conflict"]
    assert whole.context is not None
    assert all(step.parent is not None and step.parent.span_id == whole.context.span_id for step in steps)


def test_a_loop_that_stands_still_is_noticed_and_where() -> None:
    told: list[tuple[float, str]] = []

    async def run() -> None:
        with watched(lambda seconds, stack: told.append((seconds, stack)), limit_s=0.2):
            await asyncio.sleep(0.5)  # waiting is no standstill
            assert not told
            time.sleep(0.9)  # noqa: ASYNC251  the fault that is looked for
            await asyncio.sleep(0.3)

    asyncio.run(run())
    ((seconds, stack),) = told
    assert 0.5 < seconds < 2.0
    assert "the fault that is looked for" in stack


def test_a_server_without_workers_is_not_ready_at_once() -> None:
    async def run() -> list[str]:
        async with Service(config(), Tenants()).running() as service:
            while not service.health()["ready"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            (worker,) = service.fleets[LAKE].workers
            worker.kill("was killed")
            return [service.health()["fleets"][LAKE]["canary"], service.health()["ready"]]

    assert asyncio.run(run()) == ["no worker", False]


def test_a_drain_waits_for_a_session_on_its_way() -> None:
    async def run() -> tuple[str, int]:
        async with Service(config(), Tenants()).running() as service:
            opening = asyncio.create_task(service.open("local", LAKE))
            await asyncio.sleep(0)
            assert service.sessions.all() == []
            await service.drain()
            return (await opening).token, len(service.sessions)

    token, left = asyncio.run(run())
    assert token
    assert left == 0


def test_counts_by_tenant_are_their_own_and_the_operators(tmp_path: Path) -> None:
    auth = tmp_path / "auth.yaml"
    auth.write_text("tenants:\n" + "".join(f"  {n}: {{token_sha256: '{c * 64}', operator: {o}}}\n" for n, c, o in TENANTS))
    auth.chmod(0o600)

    async def run() -> dict[str, str]:
        tenants = Tenants.read(auth)
        async with Service(config(), tenants).running() as service:
            session = await service.open("alice", LAKE)
            await service.call(session, "reset", [1, None])
            await service.call(session, "step", "right")
            return {name: service.metrics.text({}, tenants.seen_by(name)) for name in ("alice", "bob", "ops")}

    texts = asyncio.run(run())
    line = f'envhub_tenant_steps_total{{env="{LAKE}",tenant="alice"}} 1'
    assert {name: line in text for name, text in texts.items()} == {"alice": True, "bob": False, "ops": True}
    assert "alice" not in texts["bob"]
    auth.write_text("tenants: {'a\"b': {token_sha256: '" + "a" * 64 + "'}}")
    with pytest.raises(ConfigError):
        Tenants.read(auth)


def test_a_caller_who_gives_up_leaves_no_place_taken() -> None:
    async def run() -> tuple[int, int]:
        async with Service(config(), Tenants()).running() as service:
            first = await service.open("local", LAKE)
            impatient = asyncio.create_task(service.open("local", LAKE, wait_s=30))
            late = asyncio.create_task(service.open("local", LAKE, wait_s=0.1))
            await asyncio.sleep(0.05)
            impatient.cancel()
            with pytest.raises(asyncio.CancelledError):
                await impatient
            with pytest.raises(Problem, match="in use") as caught:
                await late
            assert caught.value.status == 503
            waiting = asyncio.create_task(service.open("local", LAKE, wait_s=30))
            await asyncio.sleep(0.05)
            await service.close(first)
            second = await waiting
            gate = service.gates[LAKE]
            held = gate.held
            await service.close(second)
            return held, gate.held + gate.waiting

    assert asyncio.run(run()) == (1, 0)


@pytest.mark.parametrize("wait_s", [-1, float("nan"), float("inf"), 1e9, True, "5"])
def test_a_wait_that_makes_no_sense_is_refused(wait_s: Any) -> None:
    async def run() -> None:
        async with Service(config(), Tenants()).running() as service:
            await service.open("local", LAKE, wait_s=wait_s)

    with pytest.raises(Problem) as caught:
        asyncio.run(_only(run()))
    assert caught.value.status == 422


async def _only(work: Any) -> None:
    """The one error inside a task group, plain."""
    try:
        await work
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


def test_options_that_an_environment_refuses_do_not_serve() -> None:
    async def run() -> None:
        wrong = ServeConfig(fleets=(FleetConfig(id=LAKE, options={"size": 999}),))
        async with Service(wrong, Tenants()).running() as service:
            await service.open("local", LAKE)

    with pytest.raises(Problem, match="must be 2 to 32"):
        asyncio.run(_only(run()))


def test_an_environment_that_is_not_installed_is_a_wrong_config() -> None:
    async def run() -> None:
        Service(ServeConfig(fleets=(FleetConfig(id="no/Such-v1"),)), Tenants())

    with pytest.raises(ConfigError, match="not installed"):
        asyncio.run(run())
