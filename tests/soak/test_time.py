"""A month of leases in seconds of virtual time (L7), and a wall clock that jumps (SRV-37)."""

import asyncio
import heapq
import itertools
import os
import random
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from envhub.server.auth import Tenants
from envhub.server.config import FleetConfig, ServeConfig
from envhub.server.problems import Problem
from envhub.server.service import Service
from envhub.server.sessions import Session, Sessions
from tests.soak.inmemory import MemoryFleet

FULL = os.environ.get("ENVHUB_SOAK") == "1"
DAYS, CLIENTS, PAUSES = 30, 1000 if FULL else 50, 100
LEASE_S, TICK_S = 3600.0, 10.0 if FULL else 60.0
WORKERS, ENV = 4, "t/Memory-v1"
pytestmark = pytest.mark.timeout(1800 if FULL else 300)


class Month:
    """Clients who keep their leases, close them, forget them, or come just too late; the clock is ours."""

    def __init__(self, seed: int) -> None:
        self.now, self.events, self.sweeps = 0.0, 0, 0
        self.draw = random.Random(seed)
        self.fleet = MemoryFleet(FleetConfig(id=ENV, lease_s=LEASE_S), WORKERS)
        self.sessions = Sessions({ENV: cast(Any, self.fleet)}, lambda: self.now, self.ended)
        self.due: dict[str, float] = {}  # when each live lease ends unless it is renewed
        self.closing = ""
        self.fates = dict.fromkeys(("expired", "closed", "refused"), 0)
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (when, next(self._order), action))

    def run(self, until: float) -> None:
        """Everything that is due, in order; an action that a pause has made late happens now."""
        while self._agenda and self._agenda[0][0] <= until:
            when, _, action = heapq.heappop(self._agenda)
            self.now = max(self.now, when)
            action()
            while any(worker.pending for worker in self.fleet.workers):
                for worker in self.fleet.workers:
                    if worker.pending:
                        worker.answer()

    def ended(self, session: Session) -> None:
        """A lease is over: never before its time, unless its owner ended it."""
        due = self.due.pop(session.token)
        self.fates["expired" if due <= self.now else "closed"] += 1
        assert due <= self.now or session.token == self.closing

    def opens(self) -> None:
        self.events += 1
        worker, number = self.fleet.open(self.draw.randrange(WORKERS))
        session = self.sessions.add("a", ENV, cast(Any, worker), number)
        self.due[session.token] = self.now + LEASE_S
        self.sessions.call(session, "reset", [None, None], lambda value, failed: None)
        self.plans(session)

    def plans(self, session: Session) -> None:
        """What the client does next, and when."""
        due = self.due[session.token]
        match self.draw.choices(("renew", "close", "forget", "in the very instant", "late"), (88, 4, 4, 2, 2))[0]:
            case "renew":
                self.at(self.now + self.draw.uniform(0.05, 0.95) * LEASE_S, lambda: self.renews(session))
            case "close":
                self.at(self.now + self.draw.uniform(0.0, 0.9) * LEASE_S, lambda: self.closes(session))
            case "forget":
                self.at(due + self.draw.uniform(0.0, 2.0) * LEASE_S, self.opens)
            case "in the very instant":
                self.at(due, lambda: self.renews(session))
            case "late":
                self.at(due + self.draw.uniform(0.0, 1.0) * LEASE_S, lambda: self.renews(session))

    def renews(self, session: Session) -> None:
        """Renewed or gone, never half."""
        self.events += 1
        if self.now >= self.due.get(session.token, 0.0):
            with pytest.raises(Problem, match="no such session"):
                self.sessions.find(session.token, "a")
            self.fates["refused"] += 1
            self.opens()
            return
        assert self.sessions.find(session.token, "a") is session
        self.due[session.token] = self.now + LEASE_S
        if self.draw.random() < 0.5:
            self.sessions.call(session, "step", "x", lambda value, failed: None, seq=session.steps + 1)
        self.plans(session)

    def closes(self, session: Session) -> None:
        self.events += 1
        if session.token in self.due:
            self.closing = session.token
            self.sessions.end(session, "closed")
        self.opens()

    def sweep(self) -> None:
        """As the service does it: what was due at this tick is gone after it."""
        self.sweeps += 1
        self.sessions.sweep()
        assert all(due > self.now for due in self.due.values())
        assert len(self.sessions) == len(self.due)
        self.at(self.now + TICK_S, self.sweep)

    def pause(self) -> None:
        """The process is stopped for up to two leases: nothing runs, and the clock does."""
        self.now += self.draw.uniform(0.0, 2.0) * LEASE_S


def test_a_month_of_leases_ends_none_early_none_late_and_leaks_none() -> None:
    month = Month(seed=7)
    end = DAYS * 86_400.0
    for _ in range(CLIENTS):
        month.at(month.draw.uniform(0.0, LEASE_S), month.opens)
    for _ in range(PAUSES):
        month.at(month.draw.uniform(0.0, end), month.pause)
    month.at(0.0, month.sweep)
    month.run(end)
    assert month.events > (10**6 if FULL else 5 * 10**4)
    assert min(month.fates.values()) > 100
    month._agenda = [event for event in month._agenda if event[2] == month.sweep]  # nobody comes any more
    month.run(month.now + LEASE_S + TICK_S)
    assert month.sessions.all() == []
    assert [(worker.sessions, worker.counts) for worker in month.fleet.workers] == [(set(), {})] * WORKERS


def test_a_wall_clock_that_jumps_ends_no_lease_and_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the wall clock is an hour ahead, then an hour behind, at every look."""
    lease_s, real, hour = 1.0, time.time, itertools.cycle((3600.0, -3600.0))
    looks = itertools.count()

    async def run() -> float:
        fleet = FleetConfig(id="game/FrozenLake-v1", lease_s=lease_s)
        async with Service(ServeConfig(fleets=(fleet,)), Tenants()).running() as service:
            clock = asyncio.get_running_loop().time
            kept, abandoned = [await service.open("local", fleet.id) for _ in range(2)]
            monkeypatch.setattr(time, "time", lambda: (next(looks), real() + next(hour))[1])
            began = clock()
            while abandoned in service.sessions.all():
                service.sessions.find(kept.token, "local")
                service.health()
                await asyncio.sleep(0.02)
                assert clock() - began < 10 * lease_s
            ended = clock() - began
            while clock() - began < 2 * lease_s:
                service.sessions.find(kept.token, "local")
                await asyncio.sleep(0.02)
            await service.call(kept, "reset", [1, None])
            monkeypatch.setattr(time, "time", real)
            await service.close(kept)
            return ended

    ended = asyncio.run(run())
    assert next(looks) > 0  # somebody did look, though no lease did
    assert 0.8 * lease_s <= ended <= lease_s + 1.0
