"""The service behind every wire: opens sessions through admission, does their verbs, and tells how it is doing."""

import asyncio
import contextlib
import logging
import random
import time
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

from envhub.cluster.links import Link
from envhub.envs.runtime.arrays import in_json
from envhub.errors import ConfigError
from envhub.server.admission import Gate
from envhub.server.auth import Tenants
from envhub.server.config import FleetConfig, ServeConfig
from envhub.server.metrics import Metrics
from envhub.server.problems import Problem
from envhub.server.record import Record
from envhub.server.scaling import Scaler
from envhub.server.sessions import Session, Sessions
from envhub.server.traces import Traces
from envhub.server.waking import wake
from envhub.server.watchdog import watched
from envhub.server.workers import Done, Fleet, Worker, fleet_command

log = logging.getLogger(__name__)
SWEEP_S = 0.25
CANARY_S = 5.0
MAX_WAIT_S = 600.0


class Service:
    """Fleets, leases, gates and metrics. Use it in `async with service.running()`."""

    def __init__(self, config: ServeConfig, tenants: Tenants, new_link: Callable[[FleetConfig], Link] | None = None) -> None:
        """`new_link` says where workers run, by default here. Raises ConfigError for an environment that is not installed."""
        self.config, self.tenants = config, tenants
        self.fleets = {fleet.id: Fleet(fleet, fleet_command(fleet.id), new_link) for fleet in config.fleets}
        self._scalers = {fleet.id: scaler for fleet in config.fleets if (scaler := _scaler(fleet, fleet.workers))}
        shares = tenants.shares()
        self.gates = {fleet.id: Gate(self._places(fleet), queue=fleet.queue, shares=shares) for fleet in config.fleets}
        self.clock = asyncio.get_running_loop().time
        self.metrics, self.traces = Metrics(), Traces(wanted=config.traces)
        self.record = None if config.record is None else Record(config.record)
        self.sessions = Sessions(self.fleets, self.clock, self._session_ended, self.record)
        self.draining = False
        self._opening = 0
        self.began = time.time()
        self._waiting: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._canary: dict[str, str] = {}
        self._task_sets: weakref.WeakKeyDictionary[Worker, tuple[int, dict[str, Any]]] = weakref.WeakKeyDictionary()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Service"]:
        """Start the fleets; drain and stop them at the end."""
        async with contextlib.AsyncExitStack() as stack:
            for fleet in self.fleets.values():
                await stack.enter_async_context(fleet.running())
            if self.record is not None:
                stack.callback(self.record.close)
                await wake(self.record, self.fleets, self.gates, self.sessions)
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._sweep_forever()), group.create_task(self._canary_forever())]
                stack.enter_context(watched(self.metrics.loop_blocked))
                try:
                    yield self
                finally:
                    for helper in helpers:
                        helper.cancel()
                    await self.drain()

    async def open(self, tenant: str, env_id: str, options: dict[str, Any] | None = None, *, wait_s: float = 0.0) -> Session:
        """A session on a fresh environment.

        Args:
            tenant: who asks.
            env_id: a fleet's id.
            options: none yet may be chosen by callers.
            wait_s: how long to wait in the queue; 0 is refused at once when all places are taken.

        Raises:
            Problem: 404, 422, 429 (the tenant's quota), 503 (places taken, draining, no worker), or the environment's error.
        """
        fleet = self.fleets.get(env_id)
        if fleet is None:
            raise Problem(404, "env_unknown", "There is no such environment here.", "GET /envs lists them.")
        if options:
            raise Problem(422, "options_fixed", "This server decides its environments' options.", "Leave `options` out.")
        wait_s = self._bounded(wait_s)
        await self._reserve(tenant, env_id, wait_s)
        self._opening += 1
        try:
            session = await self._open(tenant, fleet)
        except BaseException:
            self._grant(env_id, self.gates[env_id].release(tenant))
            raise
        finally:
            self._opening -= 1
        if self.record is not None:
            await self._recorded(self.record, session)
        return session

    async def fork(self, session: Session) -> Session:
        """A second session in the same state, under a token of its own. Raises Problem."""
        await self._reserve(session.tenant, session.env_id, 0.0)
        made: asyncio.Future[Session] = asyncio.get_running_loop().create_future()

        def forked(twin: Session | None, failed: Problem | None) -> None:
            if twin is None:
                self._grant(session.env_id, self.gates[session.env_id].release(session.tenant))
            elif made.done():  # its caller has gone
                self.sessions.end(twin, "abandoned")
            _settle(made, twin, failed)

        self.sessions.fork(session, forked)
        twin = await made
        self.traces.opened(twin)
        if self.record is not None:
            await self._recorded(self.record, twin, forked=True)
        return twin

    async def call(self, session: Session, verb: str, argument: Any, *, request: str = "", seq: int | None = None) -> Any:
        """Do a verb and wait for its answer, as JSON can hold it. Raises Problem.

        Cancelling leaves the verb running; its request id keeps the answer.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.start(session, verb, argument, lambda value, failed: _settle(answer, value, failed), request=request, seq=seq)
        return in_json(await answer)

    def start(
        self, session: Session, verb: str, argument: Any, done: Done, *, request: str = "", seq: int | None = None
    ) -> None:
        """Do a verb; `done` is called with its answer or a Problem."""
        began, span = self.clock(), self.traces.verb(session, verb)

        def counted(value: Any, failed: Problem | None) -> None:
            self.metrics.verb(session.env_id, session.tenant, verb, self.clock() - began, failed)
            self.traces.answered(span, failed)
            done(value, failed)

        self.sessions.call(session, verb, argument, counted, request=request, seq=seq)

    async def close(self, session: Session) -> None:
        """End a session and wait until its environment is closed."""
        ended: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sessions.end(session, "closed", lambda value, failed: _settle(ended, value, failed))
        await ended

    async def about(self, env_id: str, verb: str, asked: dict[str, Any]) -> Any:
        """What needs no session: "describe" the environment, its "tasks" (splits and sizes), one "task" by split and index.

        Raises Problem.
        """
        fleet = self.fleets.get(env_id)
        if fleet is None:
            raise Problem(404, "env_unknown", "There is no such environment here.", "GET /envs lists them.")
        if verb == "describe":
            return fleet.facts | {"options": fleet.config.options}
        if not fleet.facts.get("has_tasks"):
            raise Problem(404, "no_tasks", "This environment has no task set; it draws tasks from seeds.")
        worker = fleet.pick()
        if worker is None:
            raise Problem(503, "no_worker", "No worker of this environment is running.", "One is being started.", 1.0)
        limit = fleet.config.step_deadline_s
        if worker not in self._task_sets:
            number = worker.open()
            worker.sessions.discard(number)  # it holds no place
            self._task_sets[worker] = number, await worker.do(number, "tasks", fleet.config.options, limit)
        number, sizes = self._task_sets[worker]
        if verb == "tasks":
            return sizes
        split, index = asked.get("split"), asked.get("index")
        size = sizes.get(split, 0) if isinstance(split, str) else 0
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < (2**62 if size is None else size):
            raise Problem(422, "task_invalid", f"Give a split of {', '.join(sizes)} and an index within it.")
        return await worker.do(number, "task", [split, index], limit)

    def reload(self, config: ServeConfig) -> None:
        """Take another config while running: workers, capacity, queues, leases and deadlines of the same fleets.

        Raises:
            ConfigError: it names other environments, or gives one other options; nothing is changed then.
        """
        new = {fleet.id: fleet for fleet in config.fleets}
        same = set(new) == set(self.fleets) and all(new[i].options == f.config.options for i, f in self.fleets.items())
        if not same:
            raise ConfigError("a reload may not change the environments or their options", mend="start another server")
        wanted = {name: fleet.wanted for name, fleet in self.fleets.items()}
        self._scalers = {fleet.id: scaler for fleet in config.fleets if (scaler := _scaler(fleet, wanted[fleet.id]))}
        for name, fleet in self.fleets.items():
            fleet.reconfigure(new[name])
            self.gates[name].queue = new[name].queue
            self._grant(name, self.gates[name].resize(self._places(new[name])))
        log.info("the config was read again", extra={"fleets": len(new)})

    def health(self) -> dict[str, Any]:
        """How the server is, with numbers."""
        fleets = {
            name: {
                "workers": sum(w.alive for w in fleet.workers),
                "wanted": fleet.wanted,
                "restarts": fleet.restarts,
                "sessions": self.gates[name].held,
                "max_sessions": self.gates[name].capacity,
                "waiting": self.gates[name].waiting,
                "canary": self._canary.get(name, "not yet") if fleet.serving() else "no worker",
            }
            for name, fleet in self.fleets.items()
        }
        ready = not self.draining and all(f["canary"] == "ok" for f in fleets.values())
        return {"ready": ready, "draining": self.draining, "uptime_s": round(time.time() - self.began, 1), "fleets": fleets}

    async def drain(self) -> None:
        """Take no new sessions, let running verbs end within the grace, end all sessions."""
        self.draining = True
        for name, gate in self.gates.items():
            gate.draining = True
            for key, waiting in [(k, w) for k, w in self._waiting.items() if k[0] == name]:
                if not waiting.done():
                    waiting.set_exception(_draining())
                self._waiting.pop(key, None)
        until = self.clock() + self.config.grace_s
        while self.clock() < until and (  # noqa: ASYNC110  it ends in many ways
            self._opening or any(s.busy for s in self.sessions.all())
        ):
            await asyncio.sleep(0.02)
        for session in self.sessions.all():
            self.sessions.end(session, "draining")

    async def _reserve(self, tenant: str, env_id: str, wait_s: float) -> None:
        gate = self.gates[env_id]
        if wait_s <= 0 and (gate.held >= gate.capacity or gate.waiting) and not self.draining:
            quota = gate.ask(tenant, -1.0) if self._over_quota(gate, tenant) else "full"
            raise self._refused(env_id, tenant, str(quota))
        given = gate.ask(tenant, self.clock() + wait_s)
        while gate.evicted:
            self._send_away(env_id, gate.evicted.pop())
        if isinstance(given, str):
            raise self._refused(env_id, tenant, given)
        caller, granted = given
        if granted:
            return
        waiting = self._waiting[env_id, caller] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(wait_s):
                await waiting
        except BaseException as error:
            if not gate.leave(tenant, caller) and waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._grant(env_id, gate.release(tenant))  # it was granted in the very moment its caller left
            if isinstance(error, TimeoutError):
                raise self._refused(env_id, tenant, "full") from error
            raise
        finally:
            self._waiting.pop((env_id, caller), None)

    def _send_away(self, env_id: str, caller: int) -> None:
        waiting = self._waiting.get((env_id, caller))
        if waiting is not None and not waiting.done():
            waiting.set_exception(self._refused(env_id, "", "queue_full"))

    def _over_quota(self, gate: Gate, tenant: str) -> bool:
        share = self.tenants.shares().get(tenant)
        return share is not None and share.max_sessions is not None and gate.held_by(tenant) >= share.max_sessions

    def _refused(self, env_id: str, tenant: str, why: str) -> Problem:
        self.metrics.refused(env_id, why)
        gate = self.gates[env_id]
        later = round(random.uniform(1.0, 3.0), 1)  # spread, so that all do not come back at once
        match why:
            case "draining":
                return _draining()
            case "quota":
                held = gate.held_by(tenant)
                return Problem(429, "quota_reached", f"You hold {held} sessions, which is your quota.", "Close one.", later)
            case "queue_full":
                return Problem(503, "queue_full", f"{gate.waiting} callers wait already.", "Try again later.", later)
        detail = f"All {gate.capacity} sessions are in use; you hold {gate.held_by(tenant)}."
        return Problem(503, "capacity_exhausted", detail, "Try again later, or wait in the queue with `wait_s`.", later)

    async def _open(self, tenant: str, fleet: Fleet) -> Session:
        worker = fleet.pick()
        if worker is None:
            raise Problem(503, "no_worker", "No worker of this environment is running.", "One is being started.", 1.0)
        number = worker.open()
        try:
            await worker.do(number, "make", fleet.config.options, fleet.config.step_deadline_s)
        except BaseException:  # its caller has gone, or it could not be made: whatever there is, is closed
            fleet.abandon(worker, number)
            raise
        session = self.sessions.add(tenant, fleet.config.id, worker, number)
        self.metrics.opened(fleet.config.id, tenant)
        self.traces.opened(session)
        return session

    async def _recorded(self, record: Record, session: Session, *, forked: bool = False) -> None:
        """A new session is written, or ended. Raises Problem (507)."""
        written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        record.opened(
            session.key,
            session.tenant,
            session.env_id,
            lambda problem: loop.call_soon_threadsafe(_settle, written, None, problem),
            forked=forked,
        )
        try:
            await written
        except BaseException:
            self.sessions.end(session, "not recorded")
            raise

    def _grant(self, env_id: str, callers: list[int]) -> None:
        for caller in callers:
            waiting = self._waiting.get((env_id, caller))
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def _session_ended(self, session: Session) -> None:
        self._grant(session.env_id, self.gates[session.env_id].release(session.tenant))
        self.metrics.ended(session.env_id)
        self.traces.ended(session)

    def _bounded(self, wait_s: float) -> float:
        if isinstance(wait_s, bool) or not isinstance(wait_s, (int, float)) or not 0 <= wait_s <= MAX_WAIT_S:
            raise Problem(422, "wait_invalid", f"wait_s must be 0 to {MAX_WAIT_S:g}.", "")
        return float(wait_s)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.metrics.expired(self.sessions.sweep())
            for name, scaler in self._scalers.items():
                self._scale(name, scaler)

    def _scale(self, name: str, scaler: Scaler) -> None:
        """As many workers as the sessions need, and as many places as the workers hold."""
        fleet, gate = self.fleets[name], self.gates[name]
        wanted = scaler.wanted(self.clock(), gate.held + gate.waiting)
        if wanted != fleet.wanted:
            log.info("a fleet is resized", extra={"fleet": name, "workers": wanted, "was": fleet.wanted})
            fleet.resize(wanted)
        if (places := self._places(fleet.config)) != gate.capacity:
            self._grant(name, gate.resize(places))

    def _places(self, config: FleetConfig) -> int:
        """How many sessions a fleet may hold now."""
        scaler, serving = self._scalers.get(config.id), len(self.fleets[config.id].serving())
        return config.max_sessions if scaler is None else min(config.max_sessions, scaler.places * max(1, serving))

    async def _canary_forever(self) -> None:
        """Readiness is a reset and a step that went all the way through."""
        while True:
            for name, fleet in self.fleets.items():
                self._canary[name] = await self._try(fleet)
            await asyncio.sleep(CANARY_S)

    async def _try(self, fleet: Fleet) -> str:
        worker = fleet.pick()
        if worker is None:
            return "no worker"
        number = worker.open()
        try:
            for verb, argument in (("make", fleet.config.options), ("reset", [0, None]), ("step", "")):
                await worker.do(number, verb, argument, fleet.config.step_deadline_s)
            return "ok"
        except Problem as problem:
            return problem.detail
        finally:
            fleet.abandon(worker, number)


def _scaler(fleet: FleetConfig, now: int) -> Scaler | None:
    if fleet.max_workers is None:
        return None
    places = -(-fleet.max_sessions // fleet.max_workers)
    return Scaler(fleet.workers, fleet.max_workers, places, fleet.calm_s, now=min(max(now, fleet.workers), fleet.max_workers))


def _settle(future: asyncio.Future[Any], value: Any, failed: Problem | None) -> None:
    if not future.done():
        future.set_result(value) if failed is None else future.set_exception(failed)


def _draining() -> Problem:
    return Problem(
        503, "draining", "The server is shutting down and takes no new sessions.", "Use another, or come back.", 10.0
    )
