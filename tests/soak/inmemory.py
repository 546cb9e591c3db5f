"""A fleet and its workers in memory, as `Sessions` sees them: verbs are answered when a test says so."""

from collections import deque
from collections.abc import Callable
from typing import Any

from envhub.server.config import FleetConfig
from envhub.server.problems import Problem
from envhub.server.workers import Done


class MemoryWorker:
    """Hosts counters: a step adds one to its session's, a reset begins at 0, a fork copies."""

    def __init__(self) -> None:
        self.alive = True
        self.sessions: set[int] = set()
        self.counts: dict[int, int] = {}
        self.ran: list[tuple[int, str, Any]] = []
        self.pending: deque[tuple[int, str, Any, Done]] = deque()
        self._names = 0

    def open(self) -> int:
        """A number for a new session."""
        self._names += 1
        self.sessions.add(self._names)
        return self._names

    def ask(self, session: int, verb: str, argument: Any, deadline: float, done: Done) -> None:
        """Take a verb; a dead worker's is answered by `exit`."""
        self.pending.append((session, verb, argument, done))

    def answer(self, *, ended: bool = False, failed: Problem | None = None) -> None:
        """Run the oldest verb and answer it; one that fails changes nothing."""
        session, verb, argument, done = self.pending.popleft()
        if failed is not None and verb != "close":
            done(None, failed)
            return
        self.ran.append((session, verb, argument))
        done(self._run(session, verb, argument, ended), None)

    def _run(self, session: int, verb: str, argument: Any, ended: bool) -> Any:
        match verb:
            case "step":
                self.counts[session] += 1
                return [f"{self.counts[session]} {argument}", 1.0, ended, False, {}]
            case "reset":
                self.counts[session] = 0
                return ["begin", {}]
            case "fork":
                self.counts[argument] = self.counts[session]
            case "close":
                del self.counts[session]
        return None

    def lost(self) -> Problem:
        """What the callers of a dead worker are told."""
        return Problem(410, "session_lost", "The session's worker was killed by signal 9.")


class MemoryFleet:
    """Some workers under one config."""

    def __init__(self, config: FleetConfig, workers: int) -> None:
        self.config = config
        self.workers = [MemoryWorker() for _ in range(workers)]
        self.lost_sessions: Callable[[Any], None] = lambda worker: None

    def open(self, place: int) -> tuple[MemoryWorker, int]:
        """A fresh environment on a worker."""
        worker = self.workers[place]
        number = worker.open()
        worker.counts[number] = 0
        return worker, number

    def left(self, worker: MemoryWorker, number: int) -> None:
        """A session is over."""
        worker.sessions.discard(number)

    def episode_ended(self, worker: MemoryWorker) -> None:
        """Nothing is replaced here."""

    def kill(self, place: int) -> None:
        """The worker takes no more; it has not ended yet."""
        self.workers[place].alive = False

    def exit(self, place: int) -> None:
        """The killed worker ends, as a process does: its callers are told first, then its sessions; another takes its place."""
        worker, self.workers[place] = self.workers[place], MemoryWorker()
        worker.alive = False
        while worker.pending:
            worker.pending.popleft()[3](None, worker.lost())
        self.lost_sessions(worker)
