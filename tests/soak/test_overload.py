"""More callers than places (L8) and one tenant that asks fifty times as much as the others (L9)."""

import asyncio
import os
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envhub.server.auth import new_token
from tests.served import package, serve
from tests.soak.line import Answer, Line

FULL = os.environ.get("ENVHUB_SOAK") == "1"
OVERLOAD_S, CALM_S = (60.0, 10.0) if FULL else (3.0, 1.5)
FLOOD_S = 60.0 if FULL else 4.0
CAP, QUEUE, QUOTA = 8, 16, 2
MOST_STEPS, THINK_S = 8, 0.05
DRAW = random.Random(1)
TENANTS = ("a", "b", "c", "d", "small")

ECHO = """
from envhub import Env, EnvSpec

class Echo(Env):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "begin", {}
    def step(self, action):
        return action, 1.0, False, False, {}

SPEC = EnvSpec(id="t/NAME-v1", make=Echo, inline=True)
"""
FLEET = """
fleets:
  - {id: t/Crowd-v1, max_sessions: CAP, queue: QUEUE}
  - {id: t/Fair-v1, max_sessions: CAP, queue: 1024}
"""


@dataclass(slots=True)
class Served:
    """A server and the tokens of its tenants."""

    url: str
    tokens: dict[str, str]


@dataclass(slots=True)
class Tally:
    """What a crowd was given within its time."""

    steps: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TENANTS, 0.0))
    waits: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in TENANTS})
    refused: list[tuple[str, Answer]] = field(default_factory=list)
    live: int = 0
    most: int = 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("overload")
    for name in ("Crowd", "Fair"):
        package(folder / "site", f"t/{name}-v1", ECHO.replace("NAME", name))
    tokens = {name: new_token() for name in TENANTS}
    quota = {"small": f", max_sessions: {QUOTA}"}
    lines = [f"  {name}: {{token_sha256: '{tokens[name][1]}'{quota.get(name, '')}}}\n" for name in TENANTS]
    auth = folder / "tokens.yaml"
    auth.write_text("tenants:\n" + "".join(lines))
    auth.chmod(0o600)
    fleet = Path(folder / "fleet.yaml")
    fleet.write_text(FLEET.replace("CAP", str(CAP)).replace("QUEUE", str(QUEUE)) + f"auth: {auth}\n")
    with serve("-c", str(fleet), site=folder / "site") as served:
        yield Served(served.url, {name: token for name, (token, _) in tokens.items()})


async def caller(server: Served, env: str, tenant: str, until: float, tally: Tally, wait_s: float) -> None:
    """Play short episodes, one after the other, and come back when told to. Half a step within the time is half a step."""
    sessions = f"/envs/{env}/sessions"
    async with Line(server.url, server.tokens[tenant]) as line:
        while (asked := time.monotonic()) < until:
            opened = await line.ask("POST", sessions, {"wait_s": wait_s})
            if opened.status != 201:
                tally.refused.append((tenant, opened))
                later = float(opened.headers.get("retry-after", 1))
                await asyncio.sleep(max(0.0, min(later, until - time.monotonic())))
                continue
            if (now := time.monotonic()) < until:
                tally.waits[tenant].append(now - asked)
            tally.live += 1
            tally.most = max(tally.most, tally.live)
            mine = f"{sessions}/{opened.json()['session']}"
            assert (await line.ask("POST", f"{mine}/reset", {})).status == 200
            for number in range(1, DRAW.randint(1, MOST_STEPS) + 1):
                stepped = await line.ask("POST", f"{mine}/step", {"action": f"{number}", "seq": number})
                assert (stepped.status, stepped.json()["observation"]) == (200, f"{number}")
                left = until - time.monotonic()
                if left <= 0:
                    break
                tally.steps[tenant] += min(1.0, left / THINK_S)
                await asyncio.sleep(THINK_S)
            tally.live -= 1
            assert (await line.ask("DELETE", mine)).status == 204


async def crowd(server: Served, env: str, callers: Mapping[str, int], seconds: float, wait_s: float) -> Tally:
    """Some callers of each tenant at once; the fleet's own count of sessions is looked at meanwhile."""
    tally, until = Tally(), time.monotonic() + seconds

    async def look() -> None:
        async with Line(server.url) as line:
            while time.monotonic() < until:
                state = (await line.ask("GET", "/ready")).json()["fleets"][env]
                tally.most = max(tally.most, state["sessions"])
                assert state["waiting"] <= (QUEUE if env == "t/Crowd-v1" else 1024)
                await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        group.create_task(look())
        for tenant, count in callers.items():
            for _ in range(count):
                group.create_task(caller(server, env, tenant, until, tally, wait_s))
    return tally


async def empty_within(server: Served, env: str, seconds: float) -> bool:
    """Whether the fleet holds no session and no caller before the time is over."""
    deadline = time.monotonic() + seconds
    async with Line(server.url) as line:
        while time.monotonic() < deadline:
            state = (await line.ask("GET", "/ready")).json()["fleets"][env]
            if state["sessions"] == state["waiting"] == 0:
                return True
            await asyncio.sleep(0.05)
    return False


@pytest.mark.parametrize("times", [5, 20])
def test_overload_is_refused_politely_and_costs_no_capacity(server: Served, times: int) -> None:
    """L8: capacity is what exactly as many callers as places get, just before or just after; whichever is less."""

    async def run() -> tuple[list[Tally], Tally, bool]:
        calm = [await crowd(server, "t/Crowd-v1", {"a": CAP}, CALM_S, 0.0)]
        loud = await crowd(server, "t/Crowd-v1", {"small": 10, "a": CAP * times - 10}, OVERLOAD_S, 30.0)
        normal = await empty_within(server, "t/Crowd-v1", 5.0)
        calm.append(await crowd(server, "t/Crowd-v1", {"a": CAP}, CALM_S, 0.0))
        return calm, loud, normal

    calm, loud, normal = asyncio.run(run())
    assert normal
    assert all(not tally.refused for tally in calm)
    assert loud.most == CAP
    seen = {(tenant, answer.status) for tenant, answer in loud.refused}
    assert {("a", 503), ("small", 429)} <= seen <= {("a", 503), ("small", 429), ("small", 503)}
    for _, answer in loud.refused:
        assert 1 <= int(answer.headers["retry-after"]) <= 3
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] in ("queue_full", "quota_reached")
    capacity = min(sum(tally.steps.values()) for tally in calm) / CALM_S
    assert sum(loud.steps.values()) / OVERLOAD_S >= 0.9 * capacity


def test_a_tenant_that_floods_slows_nobody_but_itself(server: Served) -> None:
    """L9: alone is the same server with the fourth tenant asking as much as the others."""

    async def run() -> tuple[Tally, Tally]:
        alone = await crowd(server, "t/Fair-v1", dict.fromkeys("abcd", 4), FLOOD_S, 30.0)
        flooded = await crowd(server, "t/Fair-v1", {"a": 4, "b": 4, "c": 4, "d": 200}, FLOOD_S, 30.0)
        assert await empty_within(server, "t/Fair-v1", 5.0)
        return alone, flooded

    alone, flooded = asyncio.run(run())
    assert not alone.refused
    assert not flooded.refused
    for tally in (alone, flooded):
        shares = [tally.steps[name] for name in "abcd"]
        assert sum(shares) ** 2 / (4 * sum(share * share for share in shares)) >= 0.95, shares
    assert p95_of_others(flooded) <= 2 * p95_of_others(alone)


def p95_of_others(tally: Tally) -> float:
    return statistics.quantiles([wait for name in "abc" for wait in tally.waits[name]], n=20)[-1]
