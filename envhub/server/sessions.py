"""Sessions: leases on environments, renewed by any call, over when nothing renews them.

A session's token is a capability of 192 random bits; with the wrong tenant it is as unknown as one that never was. A verb may
carry a request id and, for steps, a sequence number: a request that comes twice runs once, and gets the same answer.
"""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import msgpack

from envhub.server.problems import Problem, unknown_session
from envhub.server.record import Record, Recorded, Verb, key_of
from envhub.server.workers import Done, Fleet, Worker

KEPT_REPLIES = 16
RAN = ("env_error", "env_contract")  # refusals that came from the environment itself, and may have changed it
KEPT_LOST = 4096
VERBS = frozenset({"reset", "step", "snapshot", "restore", "legal_actions"})


@dataclass(slots=True)
class Reply:
    """A request that was taken: its content, its answer once there is one, and who else waits for it."""

    digest: bytes
    value: Any = None
    problem: Problem | None = None
    ended: bool = False
    waiting: list[Done] = field(default_factory=list)


@dataclass(slots=True)
class Session:
    """One lease. `place` counts its verbs, `key` names it in the record; `gone` is what its owner is told once it is lost."""

    token: str
    tenant: str
    env_id: str
    worker: Worker | None
    number: int
    expires: float
    steps: int = 0
    begun: bool = False
    over: bool = False
    busy: bool = False
    replies: OrderedDict[str, Reply] = field(default_factory=OrderedDict)
    kept: list[int] = field(default_factory=list)
    place: int = 0
    key: bytes = b""
    gone: Problem | None = None


class Sessions:
    """All leases of a server."""

    def __init__(
        self,
        fleets: dict[str, Fleet],
        clock: Callable[[], float],
        on_end: Callable[[Session], None],
        record: Record | None = None,
    ) -> None:
        """`on_end` is told of every session that is over, whatever ended it. With a `record` no answer goes out unwritten."""
        self._fleets, self._clock, self._on_end, self._record = fleets, clock, on_end, record
        self._by_token: dict[str, Session] = {}
        self._lost: OrderedDict[str, Session] = OrderedDict()
        self._snapshots: WeakKeyDictionary[Worker, dict[int, str]] = WeakKeyDictionary()  # of a worker: whose each is
        self._asleep: dict[bytes, str] = {}  # sessions of the server before, by key, and their names for now
        for fleet in fleets.values():
            fleet.lost_sessions = self._worker_ended

    def __len__(self) -> int:
        return len(self._by_token)

    def all(self) -> list[Session]:
        """Every live session."""
        return list(self._by_token.values())

    def add(self, tenant: str, env_id: str, worker: Worker, number: int) -> Session:
        """A new lease on an environment that a worker holds under a number."""
        expires = self._clock() + self._fleets[env_id].config.lease_s
        token = secrets.token_urlsafe(24)
        session = Session(token, tenant, env_id, worker, number, expires, key=key_of(token) if self._record else b"")
        self._by_token[token] = session
        return session

    def revive(self, recorded: Recorded, worker: Worker, number: int) -> None:
        """A session of the server before, whose environment a worker has brought back to where it was."""
        session = self.add(recorded.tenant, recorded.env_id, worker, number)
        session.key, session.replies = recorded.key, _replies(recorded)
        session.place = recorded.verbs[-1].place if recorded.verbs else 0
        for verb in recorded.verbs:
            if verb.problem is None and verb.verb in ("reset", "step"):
                _counted(session, verb.verb, verb.value)
        self._asleep[recorded.key] = session.token

    def bury(self, recorded: Recorded, why: Problem) -> None:
        """A session of the server before that cannot be brought back: its owner is told, and gets the answers it had."""
        name = secrets.token_urlsafe(24)
        session = Session(name, recorded.tenant, recorded.env_id, None, 0, 0.0, key=recorded.key, gone=why)
        session.replies = _replies(recorded)
        self._keep_lost(session)
        self._asleep[recorded.key] = name

    def find(self, token: Any, tenant: str, request: str = "") -> Session:
        """A tenant's live session, renewed; or a lost one that had answered the `request`.

        Raises:
            Problem: 410 if the session was lost, 404 for anything else.
        """
        session = self._by_token.get(token) if isinstance(token, str) else None
        now = self._clock()
        if session is None:
            session = self._woken(token)
        if session is None or session.tenant != tenant:
            lost = self._lost.get(token) if isinstance(token, str) else None
            if lost is None or lost.tenant != tenant or lost.gone is None:
                raise unknown_session()
            if request in lost.replies:
                return lost
            raise lost.gone
        if session.expires <= now and not session.busy:
            self.end(session, "expired")
            raise unknown_session()
        session.expires = now + self._fleets[session.env_id].config.lease_s
        return session

    def call(
        self, session: Session, verb: str, argument: Any, done: Done, *, request: str = "", seq: int | None = None
    ) -> None:
        """Do a verb; `done` is called once, perhaps at once.

        A repeated request id gets the first one's answer, or 422 if it asks for something else. A step whose sequence number is
        not the next one is refused (409), as is a verb while another runs (409).
        """
        digest = b""
        if request:
            digest = hashlib.blake2b(msgpack.packb([verb, argument, seq], default=str, unicode_errors="surrogatepass")).digest()
            known = session.replies.get(request)
            if known is not None:
                _again(known, digest, done)
                return
        problem = self._refusal(session, verb, argument, seq)
        if problem is not None:
            done(None, problem)
            return
        worker = session.worker
        assert worker is not None, "only a lost session has none"
        session.busy = True
        if request:
            reply = session.replies[request] = Reply(digest)
            while len(session.replies) > KEPT_REPLIES:
                session.replies.popitem(last=False)
        else:
            reply = None
        deadline = self._clock() + self._fleets[session.env_id].config.step_deadline_s

        def answered(value: Any, failed: Problem | None) -> None:
            self._answered(session, verb, reply, value, failed)
            done(value, failed)

        told = answered if self._record is None else self._recording(session, verb, argument, (request, digest), answered)
        worker.ask(session.number, verb, argument, deadline, told)

    def fork(self, session: Session, done: Callable[[Session | None, Problem | None], None]) -> None:
        """A second session in the same state, on the same worker; the caller has reserved its place."""
        worker = session.worker
        if worker is None or session.gone is not None:
            done(None, session.gone or unknown_session())
            return
        number = worker.open()

        def answered(_: Any, failed: Problem | None) -> None:
            if failed is not None:
                self._fleets[session.env_id].left(worker, number)
                done(None, failed)
                return
            twin = self.add(session.tenant, session.env_id, worker, number)
            twin.steps, twin.over, twin.begun = session.steps, session.over, session.begun
            done(twin, None)

        deadline = self._clock() + self._fleets[session.env_id].config.step_deadline_s
        worker.ask(session.number, "fork", number, deadline, answered)

    def end(self, session: Session, reason: str, done: Done | None = None) -> None:
        """Close a session's environment and forget it; `done` is called when it is closed."""
        if self._by_token.pop(session.token, None) is None:
            if done is not None:
                done(None, None)
            return
        fleet, worker = self._fleets[session.env_id], session.worker

        def closed(value: Any, failed: Problem | None) -> None:
            if worker is not None:
                fleet.left(worker, session.number)
            if done is not None:
                done(None, None)

        if worker is not None and session.kept:
            for snapshot in session.kept:
                self._snapshots[worker].pop(snapshot, None)
        if self._record is not None and reason != "draining":  # those are brought back by the next server
            self._record.forget(session.key)
        if worker is not None and worker.alive:
            worker.ask(session.number, "close", None, self._clock() + fleet.config.step_deadline_s, closed)
        else:
            closed(None, None)
        self._on_end(session)

    def sweep(self) -> int:
        """End what nobody renewed; how many."""
        now = self._clock()
        expired = [s for s in self._by_token.values() if s.expires <= now and not s.busy]
        for session in expired:
            self.end(session, "expired")
        return len(expired)

    def _refusal(self, session: Session, verb: str, argument: Any, seq: int | None) -> Problem | None:
        if verb not in VERBS:
            return Problem(
                404, "verb_unknown", f"There is no verb {str(verb)[:40]!r}.", f"Use one of: {', '.join(sorted(VERBS))}."
            )
        if session.gone is not None:
            return session.gone
        if session.busy:
            return Problem(409, "busy", "Another request of this session is still running.", "Wait for its answer.", 0.1)
        if seq is not None and verb == "step" and seq != session.steps + 1:
            return Problem(
                409,
                "seq_conflict",
                f"Step {seq} is not the next one: expected step {session.steps + 1}.",
                "Repeat a step under its own request id to get its answer again.",
            )
        if verb in ("step", "legal_actions") and not session.begun:
            return Problem(409, "not_begun", f"A reset comes before {verb}.", "Reset the session.")
        if verb == "restore" and self._kept_by(session.worker, argument) != session.tenant:
            return Problem(
                404, "snapshot_unknown", "There is no such snapshot.", "Snapshots end with the session that took them."
            )
        return None

    def _kept_by(self, worker: Worker | None, snapshot: Any) -> str | None:
        """Whose snapshot it is: workers are shared, and number all of theirs alike."""
        kept = None if worker is None else self._snapshots.get(worker)
        return kept.get(snapshot) if kept is not None and isinstance(snapshot, int) else None

    def _answered(self, session: Session, verb: str, reply: Reply | None, value: Any, failed: Problem | None) -> None:
        session.busy = False
        session.expires = self._clock() + self._fleets[session.env_id].config.lease_s
        if failed is None:
            if verb == "snapshot" and session.worker is not None:
                self._snapshots.setdefault(session.worker, {})[value] = session.tenant
                session.kept.append(value)
            was_over = session.over
            _counted(session, verb, value)
            if session.over and not was_over and session.worker is not None:
                self._fleets[session.env_id].episode_ended(session.worker)
        if reply is not None:
            reply.value, reply.problem, reply.ended = value, failed, True
            for other in reply.waiting:
                other(value, failed)
            reply.waiting.clear()

    def _recording(self, session: Session, verb: str, argument: Any, request: tuple[str, bytes], answered: Done) -> Done:
        """`answered`, once the answer is written. A session whose answer cannot be written is lost."""
        record, loop = self._record, asyncio.get_running_loop()
        assert record is not None

        def finish(value: Any, failed: Problem | None, problem: Problem | None) -> None:
            if problem is None:
                answered(value, failed)
                return
            answered(None, problem)
            self._lose(session, Problem(410, "session_lost", "An answer of this session could not be recorded.", problem.hint))

        def told(value: Any, failed: Problem | None) -> None:
            if failed is not None and failed.code not in RAN:
                answered(value, failed)
                return
            session.place += 1
            fields = None if failed is None else [failed.status, failed.code, failed.detail, failed.hint]
            entry = Verb(session.place, *request, verb, argument, value, fields)
            record.answered(session.key, entry, lambda problem: loop.call_soon_threadsafe(finish, value, failed, problem))
            if verb == "reset" and argument[0] is not None:  # what came before decides nothing any more
                record.forget(session.key, session.place - KEPT_REPLIES)

        return told

    def _woken(self, token: Any) -> Session | None:
        """The session of the server before that a token opens, if there is one."""
        name = self._asleep.pop(key_of(token), "") if self._asleep and isinstance(token, str) else ""
        if not name:
            return None
        if name in self._lost:
            lost = self._lost[token] = self._lost.pop(name)
            lost.token = token
            return None
        session = self._by_token.pop(name, None)
        if session is not None:
            session.token = token
            self._by_token[token] = session
        return session

    def _worker_ended(self, worker: Worker) -> None:
        """The truth for every session of a worker that is gone."""
        for session in [s for s in self._by_token.values() if s.worker is worker]:
            self._lose(session, worker.lost())

    def _lose(self, session: Session, why: Problem) -> None:
        if self._by_token.pop(session.token, None) is None:
            return
        told = Problem(why.status, why.code, f"{why.detail} Its last answered step was {session.steps}.", why.hint)
        session.gone = told
        if self._record is not None:
            self._record.lost(session.key, told.detail)
        self._keep_lost(session)
        self._on_end(session)

    def _keep_lost(self, session: Session) -> None:
        self._lost[session.token] = session
        while len(self._lost) > KEPT_LOST:
            forgotten = self._lost.popitem(last=False)[1]
            if self._record is not None:
                self._record.forget(forgotten.key)


def _counted(session: Session, verb: str, value: Any) -> None:
    if verb == "step":
        session.steps, session.over = session.steps + 1, bool(value[2] or value[3])
    elif verb == "reset":
        session.steps, session.over, session.begun = 0, False, True


def _replies(recorded: Recorded) -> OrderedDict[str, Reply]:
    """The last answers of a recorded session that may be asked for again."""
    named = [verb for verb in recorded.verbs if verb.request][-KEPT_REPLIES:]
    return OrderedDict(
        (v.request, Reply(v.digest, v.value, None if v.problem is None else Problem(*v.problem), ended=True)) for v in named
    )


def _again(known: Reply, digest: bytes, done: Done) -> None:
    if known.digest != digest:
        done(None, Problem(422, "request_id_reused", "This request id was used for another request.", "Use a new id."))
    elif known.ended:
        done(known.value, known.problem)
    else:
        known.waiting.append(done)
