"""Sessions: leases on environments, renewed by any call, over when nothing renews them.

A session's token is a capability of 192 random bits; with the wrong tenant it is as unknown as one that never was. A verb may
carry a request id and, for steps, a sequence number: a request that comes twice runs once, and gets the same answer.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgpack

from envhub.server.problems import Problem, unknown_session
from envhub.server.workers import Done, Fleet, Worker

KEPT_REPLIES = 16
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
    """One lease."""

    token: str
    tenant: str
    env_id: str
    worker: Worker
    number: int
    expires: float
    steps: int = 0
    over: bool = False
    busy: bool = False
    replies: OrderedDict[str, Reply] = field(default_factory=OrderedDict)


class Sessions:
    """All leases of a server."""

    def __init__(self, fleets: dict[str, Fleet], clock: Callable[[], float], on_end: Callable[[Session], None]) -> None:
        """`on_end` is told of every session that is over, whatever ended it."""
        self._fleets, self._clock, self._on_end = fleets, clock, on_end
        self._by_token: dict[str, Session] = {}
        self._lost: OrderedDict[str, tuple[str, Problem]] = OrderedDict()  # token -> (tenant, what its owner is told)
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
        session = Session(secrets.token_urlsafe(24), tenant, env_id, worker, number, expires)
        self._by_token[session.token] = session
        return session

    def find(self, token: Any, tenant: str) -> Session:
        """A tenant's live session, renewed. Raises Problem: 410 if its worker was lost, 404 for anything else."""
        session = self._by_token.get(token) if isinstance(token, str) else None
        now = self._clock()
        if session is None or session.tenant != tenant:
            owner, problem = (
                self._lost.get(token, ("", unknown_session())) if isinstance(token, str) else ("", unknown_session())
            )
            raise problem if owner == tenant else unknown_session()
        if session.expires <= now:
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
        if request:
            digest = hashlib.blake2b(msgpack.packb([verb, argument, seq], default=str, unicode_errors="surrogatepass")).digest()
            known = session.replies.get(request)
            if known is not None:
                _again(known, digest, done)
                return
        problem = self._refusal(session, verb, seq)
        if problem is not None:
            done(None, problem)
            return
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

        session.worker.ask(session.number, verb, argument, deadline, answered)

    def fork(self, session: Session, done: Callable[[Session | None, Problem | None], None]) -> None:
        """A second session in the same state, on the same worker; the caller has reserved its place."""
        number = session.worker.open()

        def answered(_: Any, failed: Problem | None) -> None:
            if failed is not None:
                self._fleets[session.env_id].left(session.worker, number)
                done(None, failed)
                return
            twin = self.add(session.tenant, session.env_id, session.worker, number)
            twin.steps, twin.over = session.steps, session.over
            done(twin, None)

        deadline = self._clock() + self._fleets[session.env_id].config.step_deadline_s
        session.worker.ask(session.number, "fork", number, deadline, answered)

    def end(self, session: Session, reason: str, done: Done | None = None) -> None:
        """Close a session's environment and forget it; `done` is called when it is closed."""
        if self._by_token.pop(session.token, None) is None:
            if done is not None:
                done(None, None)
            return
        fleet, worker = self._fleets[session.env_id], session.worker

        def closed(value: Any, failed: Problem | None) -> None:
            fleet.left(worker, session.number)
            if done is not None:
                done(None, None)

        if worker.alive:
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

    def _refusal(self, session: Session, verb: str, seq: int | None) -> Problem | None:
        if verb not in VERBS:
            return Problem(
                404, "verb_unknown", f"There is no verb {str(verb)[:40]!r}.", f"Use one of: {', '.join(sorted(VERBS))}."
            )
        if session.busy:
            return Problem(409, "busy", "Another request of this session is still running.", "Wait for its answer.", 0.1)
        if seq is not None and verb == "step" and seq != session.steps + 1:
            return Problem(
                409,
                "seq_conflict",
                f"Step {seq} is not the next one: expected step {session.steps + 1}.",
                "Repeat a step under its own request id to get its answer again.",
            )
        return None

    def _answered(self, session: Session, verb: str, reply: Reply | None, value: Any, failed: Problem | None) -> None:
        session.busy = False
        if failed is None:
            if verb == "step":
                session.steps += 1
                ended = bool(value[2] or value[3])
                if ended and not session.over:
                    self._fleets[session.env_id].episode_ended(session.worker)
                session.over = ended
            elif verb == "reset":
                session.steps, session.over = 0, False
        if reply is not None:
            reply.value, reply.problem, reply.ended = value, failed, True
            for other in reply.waiting:
                other(value, failed)
            reply.waiting.clear()

    def _worker_ended(self, worker: Worker) -> None:
        """The truth for every session of a worker that is gone."""
        lost = worker.lost()
        for session in [s for s in self._by_token.values() if s.worker is worker]:
            del self._by_token[session.token]
            told = Problem(lost.status, lost.code, f"{lost.detail} Its last answered step was {session.steps}.", lost.hint)
            self._lost[session.token] = (session.tenant, told)
            while len(self._lost) > KEPT_LOST:
                self._lost.popitem(last=False)
            self._on_end(session)


def _again(known: Reply, digest: bytes, done: Done) -> None:
    if known.digest != digest:
        done(None, Problem(422, "request_id_reused", "This request id was used for another request.", "Use a new id."))
    elif known.ended:
        done(known.value, known.problem)
    else:
        known.waiting.append(done)
