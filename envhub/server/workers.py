"""Worker processes: each hosts many environments of one fleet, and is replaced when it dies, hangs or holds too much.

Speaks the frames of `envs.runtime.wire` with `envs.runtime.child`. Requests of one turn of the event loop go out as one frame.
"""

import asyncio
import contextlib
import itertools
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from envhub.cluster.links import Link, ProcessLink
from envhub.envs.listing import ADAPTERS, find
from envhub.envs.runtime.process import child_command
from envhub.envs.runtime.venv import venv_python
from envhub.envs.runtime.wire import LENGTH, MAX_FRAME, pack_frame, unpack_body
from envhub.errors import ConfigError
from envhub.server.config import FleetConfig
from envhub.server.problems import Problem

log = logging.getLogger(__name__)
SWEEP_S = 0.2
STOP_S = 2.0
BACKOFF_S = (0.05, 10.0)
QUIET_S = 60.0
Done = Callable[[Any, Problem | None], None]


def fleet_command(env_id: str) -> tuple[str, ...]:
    """The command that hosts an environment. Raises ConfigError if it is not installed, or its venv not built."""
    adapter, colon, rest = env_id.partition(":")
    if colon:
        points = {point.name: point.value for point in entry_points(group=ADAPTERS)}
        if adapter not in points:
            raise ConfigError(f"no adapter {adapter!r}", mend=f"use one of: {', '.join(sorted(points))}")
        return child_command(sys.executable, f"{points[adapter]}({rest})")
    claims = find(env_id)
    if len(claims) != 1 or claims[0].problem:
        problem = claims[0].problem if claims else "not installed"
        raise ConfigError(f"no fleet of {env_id!r}: {problem}", mend="see `envhub list`")
    (listed,) = claims
    python = str(venv_python(env_id, listed.requirements)) if listed.runtime == "venv" else sys.executable
    return child_command(python, listed.target)


@dataclass(slots=True)
class _Pending:
    done: Done
    deadline: float
    session: int


class Worker:
    """One child, as long as it lives."""

    def __init__(self, name: str, link: Link, on_end: Callable[["Worker"], None]) -> None:
        """Call `start` next. `on_end` is told once, when the child has ended."""
        self.name, self._link, self._on_end = name, link, on_end
        self.sessions: set[int] = set()
        self.episodes = 0
        self.cause = ""
        self.retiring = False
        self.facts: dict[str, Any] = {}
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._running = False
        self._ended = asyncio.Event()
        self._pending: dict[int, _Pending] = {}
        self._numbers, self._names = itertools.count(1), itertools.count(1)
        self._outbox: list[Sequence[Any]] = []
        self._buffer = bytearray()

    async def start(self, command: Sequence[str], deadline_s: float) -> None:
        """Start the child and wait for its spec. Raises Problem if it does not come up."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._link.start(command, self._received, self._child_ended)
                self._running = True
                self.facts = await self._started
        except (TimeoutError, OSError) as error:
            why = f"did not start within {deadline_s:g} s" if isinstance(error, TimeoutError) else f"does not start: {error}"
            self.kill(why)
            raise Problem(503, "worker_start", f"{self.name} {why}."[:500]) from error

    @property
    def alive(self) -> bool:
        """Whether the child runs and takes requests."""
        return self._running and not self._ended.is_set() and not self.cause

    def open(self) -> int:
        """A number for a new session."""
        number = next(self._names)
        self.sessions.add(number)
        return number

    def ask(self, session: int, verb: str, argument: Any, deadline: float, done: Done) -> None:
        """Send one verb; `done` is called once, with its answer or with what went wrong."""
        if not self.alive:
            self._loop.call_soon(done, None, self.lost())
            return
        number = next(self._numbers)
        self._pending[number] = _Pending(done, deadline, session)
        if not self._outbox:
            self._loop.call_soon(self._flush)
        self._outbox.append((number, session, verb, argument))

    async def do(self, session: int, verb: str, argument: Any, deadline_s: float) -> Any:
        """Do one verb and wait for its answer. Raises Problem."""
        answer: asyncio.Future[Any] = self._loop.create_future()

        def done(value: Any, failed: Problem | None) -> None:
            if not answer.done():
                answer.set_result(value) if failed is None else answer.set_exception(failed)

        self.ask(session, verb, argument, self._loop.time() + deadline_s, done)
        return await answer

    def lost(self) -> Problem:
        """What the callers of a dead worker's sessions are told."""
        return Problem(
            410,
            "session_lost",
            f"The session's worker {self.cause or 'ended'}. Nothing after its last answered step was kept.",
            "Open a new session; count this episode as failed, never as a reward of 0.",
        )

    def overdue(self, now: float) -> bool:
        """Whether a verb has run past its deadline."""
        return any(pending.deadline <= now for pending in self._pending.values())

    def memory_mib(self) -> float:
        """Resident memory of the child, where the system tells."""
        return self._link.memory_mib()

    def kill(self, cause: str) -> None:
        """End the child at once, saying why."""
        self.cause = self.cause or cause
        self._link.kill()

    async def stop(self) -> None:
        """End the child in order: close its input, wait a little, then kill it."""
        self.cause = self.cause or "was stopped"
        if not self._running:
            self._link.kill()
            return
        self._link.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._ended.wait()
        if not self._ended.is_set():
            self._link.kill()
        await self._ended.wait()

    def _flush(self) -> None:
        batch, self._outbox = self._outbox, []
        if not batch or self._ended.is_set():
            return
        try:
            self._link.write(pack_frame(batch))
        except ValueError:
            for request in batch:
                self._send_alone(request)

    def _send_alone(self, request: Sequence[Any]) -> None:
        try:
            frame = pack_frame([request])
        except ValueError:
            pending = self._pending.pop(request[0])
            pending.done(None, Problem(422, "not_plain", "The request holds no plain values, or is too large."))
            return
        self._link.write(frame)

    def _received(self, data: bytes) -> None:
        self._buffer += data
        place, buffer = 0, self._buffer
        while len(buffer) - place >= 4:
            length = LENGTH.unpack_from(buffer, place)[0]
            if length > MAX_FRAME:
                self.kill("spoke another language")
                return
            if len(buffer) - place - 4 < length:
                break
            body = bytes(buffer[place + 4 : place + 4 + length])
            place += 4 + length
            self._take(body)
        del buffer[:place]

    def _take(self, body: bytes) -> None:
        try:
            for number, good, value in unpack_body(body, arrays=False):
                pending = self._pending.pop(number, None)
                if pending is not None:
                    pending.done(value, None) if good else pending.done(None, env_problem(*value))
                elif number == 0 and not self._started.done():
                    self._begin(good, value)
        except (ValueError, TypeError) as error:
            log.error("a worker sent no frame", extra={"worker": self.name, "error": str(error)[:200]})
            self.kill("spoke another language")

    def _begin(self, good: bool, value: Any) -> None:
        if good:
            self._started.set_result(value)
        else:
            kind, what, mend = value
            why = str(what) if kind == ConfigError.__name__ else f"{kind}: {what}"
            self._started.set_exception(Problem(503, "worker_start", f"{self.name} does not start: {why}"[:500], str(mend)))

    def _child_ended(self, cause: str) -> None:
        self.cause = self.cause or cause
        self._ended.set()
        if not self._started.done():
            self._started.set_exception(Problem(503, "worker_start", f"{self.name} {self.cause} before it was ready."))
            self._started.exception()  # whoever waits sees it; if nobody does, that is fine
        pending, self._pending = self._pending, {}
        lost = self.lost()
        for one in pending.values():
            one.done(None, lost)
        self._on_end(self)


def env_problem(kind: str, what: str, mend: str) -> Problem:
    """What an environment's exception looks like from outside."""
    first = str(what).splitlines()[0][:500] if what else ""
    if kind == "ContractError":
        return Problem(502, "env_contract", f"The environment broke its contract: {first}.", "Run `envhub check` on it.")
    if kind == "Unavailable":
        return Problem(409, "snapshot_refused", f"There are {first}.", "Close the session, or restore what is kept.")
    return Problem(500, "env_error", f"The environment raised {kind}: {first}", "The session is still open.")


class Fleet:
    """The workers of one environment. Use it in `async with fleet.running()`."""

    def __init__(
        self, config: FleetConfig, command: Sequence[str], new_link: Callable[[FleetConfig], Link] | None = None
    ) -> None:
        """Nothing is started yet. `new_link` says where children run; by default on this machine."""
        self.config, self._command = config, tuple(command)
        self._new_link = new_link or (lambda _: ProcessLink())
        self.wanted = config.workers
        self.workers: list[Worker] = []
        self.facts: dict[str, Any] = {}
        self.restarts = 0
        self.lost_sessions: Callable[[Worker], None] = lambda worker: None
        self._group: asyncio.TaskGroup | None = None
        self._starting = 0
        self._failures: list[float] = []
        self._closing = False
        self._numbers = itertools.count()
        self._loop = asyncio.get_running_loop()

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        """Start all workers; the first one's failure is the caller's. They are stopped at the end of the block."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._start_all()
                sweeper = group.create_task(self._sweep_forever())
                try:
                    yield self
                finally:
                    sweeper.cancel()
            finally:
                await self._stop()

    async def _start_all(self) -> None:
        """Raises ConfigError if a worker does not come up."""
        try:
            async with asyncio.TaskGroup() as starting:
                for _ in range(self.config.workers):
                    starting.create_task(self._start())
        except* Problem as problems:
            first = _first(problems)
            raise ConfigError(first.detail, mend=first.hint or "mend the environment's package") from None

    def pick(self) -> Worker | None:
        """The live worker with the fewest sessions."""
        return min(self.serving(), key=lambda w: len(w.sessions), default=None)

    def episode_ended(self, worker: Worker) -> None:
        """Count an episode; a worker that has had enough takes no new sessions and is replaced."""
        worker.episodes += 1
        limit = self.config.recycle_episodes
        if limit is not None and worker.episodes >= limit and not worker.retiring and worker.alive and self._group is not None:
            worker.retiring = True
            self._group.create_task(self._start())

    def left(self, worker: Worker, session: int) -> None:
        """A session is over; a retiring worker that holds none is stopped."""
        worker.sessions.discard(session)
        if worker.retiring and not worker.sessions and worker.alive and self._group is not None:
            self._group.create_task(worker.stop())

    def abandon(self, worker: Worker, session: int) -> None:
        """Nobody wants what a worker has made under a number: it is closed."""
        deadline = self._loop.time() + self.config.step_deadline_s
        worker.ask(session, "close", None, deadline, lambda value, failed: self.left(worker, session))

    def reconfigure(self, config: FleetConfig) -> None:
        """Take another config of the same environment."""
        self.config = config
        self.resize(min(max(self.wanted, config.workers), config.max_workers or config.workers))

    def resize(self, workers: int) -> None:
        """Have so many workers: some are started, or retire when their sessions have ended."""
        self.wanted = workers
        serving = self.serving()
        assert self._group is not None, "only a running fleet can be resized"
        for _ in range(workers - len(serving) - self._starting):
            self._group.create_task(self._restart(wait=False))
        for worker in sorted(serving, key=lambda w: len(w.sessions))[: max(0, len(serving) - workers)]:
            worker.retiring = True
            if not worker.sessions:
                self._group.create_task(worker.stop())

    def serving(self) -> list[Worker]:
        """Workers that take new sessions."""
        return [w for w in self.workers if w.alive and not w.retiring]

    async def _start(self) -> None:
        worker = Worker(f"{self.config.id}#{next(self._numbers)}", self._new_link(self.config), self._on_end)
        self._starting += 1
        try:
            await worker.start(self._command, self.config.start_deadline_s)
        finally:
            self._starting -= 1
        if self._closing:
            await worker.stop()
            return
        self.facts = worker.facts
        self.workers.append(worker)

    def _on_end(self, worker: Worker) -> None:
        known = worker in self.workers
        if known:
            self.workers.remove(worker)
        self.lost_sessions(worker)
        if self._closing or worker.retiring or not known or self._group is None:
            return
        log.error("a worker ended", extra={"worker": worker.name, "cause": worker.cause})
        self._group.create_task(self._restart())

    async def _restart(self, *, wait: bool = True) -> None:
        """Start another one, later after each failure in a row; without `wait` the first attempt is made at once."""
        while not self._closing:
            if wait:
                now = self._loop.time()
                self._failures = [t for t in self._failures if now - t < QUIET_S] + [now]
                await asyncio.sleep(min(BACKOFF_S[0] * 2 ** (len(self._failures) - 1), BACKOFF_S[1]))
                self.restarts += 1
            wait = True
            try:
                await self._start()
                return
            except Problem as problem:
                log.error("a worker does not start", extra={"fleet": self.config.id, "detail": problem.detail})

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self._loop.time()
            for worker in list(self.workers):
                limit = self.config.memory_mib
                if limit is not None and (held := worker.memory_mib()) > limit:
                    worker.kill(f"was killed: out of memory, {held:.0f} of {limit} MiB")
                elif worker.overdue(now):
                    worker.kill(f"hung: a verb took over {self.config.step_deadline_s:g} s")

    async def _stop(self) -> None:
        self._closing = True
        async with asyncio.TaskGroup() as group:
            for worker in list(self.workers):
                group.create_task(worker.stop())


def _first(group: BaseExceptionGroup[Problem]) -> Problem:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
