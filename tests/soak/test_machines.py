"""Sessions and the gate against plain models, in whatever order things happen (L13)."""

import os
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from envhub.server.admission import Gate, Share
from envhub.server.config import FleetConfig
from envhub.server.problems import Problem
from envhub.server.sessions import KEPT_REPLIES, Session, Sessions
from tests.soak.inmemory import MemoryFleet

FULL = os.environ.get("ENVHUB_SOAK") == "1"
RUNS = settings(max_examples=5000 if FULL else 250, stateful_step_count=100 if FULL else 40, deadline=None)
pytestmark = pytest.mark.timeout(7200 if FULL else 300)
LEASE_S, WORKERS, MOST = 10.0, 2, 3
PLACES, INDICES = st.integers(0, WORKERS - 1), st.integers(0, 5)
WHOSE = st.sampled_from(["own"] * 7 + ["another's", "gone", "another's, gone"])
SHARES = {"a": Share(weight=2.0), "b": Share(max_sessions=3)}
WAYS = st.sampled_from(["well", "ends", "fails"])
NAMES = st.sampled_from(["", "r1", "r2"])


@dataclass(eq=False)
class Lease:
    """What a session should be."""

    session: Session
    tenant: str
    place: int
    expires: float
    count: int = 0
    steps: int = 0
    over: bool = False
    begun: bool = False
    busy: bool = False
    fate: str = "live"
    replies: OrderedDict[str, "Asked"] = field(default_factory=OrderedDict)


@dataclass(eq=False)
class Asked:
    """One request: its content, what it should get, and what it got. Whoever repeats it gets the same."""

    content: tuple[Any, ...]
    wanted: Any = None
    got: list[Any] = field(default_factory=list)
    callers: int = 1


class Leases(RuleBasedStateMachine):
    """Two tenants, two workers that may die, and a clock that is ours."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.fleet = MemoryFleet(FleetConfig(id="t/Memory-v1", lease_s=LEASE_S), WORKERS)
        self.over: list[Session] = []
        self.sessions = Sessions({"t/Memory-v1": cast(Any, self.fleet)}, lambda: self.now, self.over.append)
        self.leases: list[Lease] = []
        self.asked: list[Asked] = []
        self.queues: list[deque[tuple[Lease, str, Any, Asked | None]]] = [deque() for _ in range(WORKERS)]
        self.dead = [False] * WORKERS
        self.forks: list[Any] = []

    # The model

    def found(self, lease: Lease, tenant: str) -> str:
        """The code that a tenant is told who wants this lease; "" and a renewal if it may have it."""
        if lease.tenant != tenant or lease.fate in ("closed", "expired"):
            return "session_unknown"
        if lease.fate == "lost":
            return "session_lost"
        if lease.expires <= self.now and not lease.busy:
            self.part(lease, "expired")
            return "session_unknown"
        lease.expires = self.now + LEASE_S
        return ""

    def pick(self, index: int, whose: str = "own") -> Lease:
        """A lease: a live one while there is one, unless one that is gone is asked for."""
        fitting = [lease for lease in self.leases if (lease.fate != "live") == ("gone" in whose)]
        return (fitting or self.leases)[-1 - index % len(fitting or self.leases)]

    def find(self, index: int, whose: str = "own") -> Lease | None:
        """A lease, renewed on both sides; or none, and both sides agree why."""
        lease = self.pick(index, whose)
        tenant = "ab".replace(lease.tenant, "") if "another's" in whose else lease.tenant
        wanted = self.found(lease, tenant)
        if wanted:
            with pytest.raises(Problem) as caught:
                self.sessions.find(lease.session.token, tenant)
            assert (caught.value.code, caught.value.status) == (wanted, 410 if wanted == "session_lost" else 404)
            return None
        assert self.sessions.find(lease.session.token, tenant) is lease.session
        return lease

    def part(self, lease: Lease, fate: str) -> None:
        lease.fate = fate
        if not self.dead[lease.place]:
            self.queues[lease.place].append((lease, "close", None, None))

    def refusal(self, lease: Lease, verb: str, seq: int | None) -> str:
        if lease.busy:
            return "busy"
        if verb == "step" and seq not in (None, lease.steps + 1):
            return "seq_conflict"
        return "not_begun" if verb == "step" and not lease.begun else ""

    def ran(self, lease: Lease, verb: str, argument: Any, ended: bool) -> Any:
        """What a verb gives, and what it makes of the lease."""
        if verb == "step":
            lease.count, lease.steps, lease.over = lease.count + 1, lease.steps + 1, ended
            return [f"{lease.count} {argument}", 1.0, ended, False, {}]
        lease.count, lease.steps, lease.over, lease.begun = 0, 0, False, True
        return ["begin", {}]

    def asks(self, content: tuple[Any, ...], wanted: Any = None) -> Asked:
        self.asked.append(Asked(content, wanted))
        return self.asked[-1]

    # What may happen

    @initialize(tenant=st.sampled_from("ab"), place=PLACES)
    def begins(self, tenant: str, place: int) -> None:
        self.opens(tenant, place)

    @rule(tenant=st.sampled_from("ab"), place=PLACES)
    def opens(self, tenant: str, place: int) -> None:
        if sum(lease.fate == "live" for lease in self.leases) < MOST and not self.dead[place]:
            worker, number = self.fleet.open(place)
            session = self.sessions.add(tenant, "t/Memory-v1", cast(Any, worker), number)
            self.leases.append(Lease(session, tenant, place, self.now + LEASE_S))

    @rule(index=INDICES, whose=st.sampled_from(["own", "another's", "gone", "another's, gone"]))
    def renews(self, index: int, whose: str) -> None:
        self.find(index, whose)

    @rule(index=INDICES)
    def a_stranger_guesses(self, index: int) -> None:
        with pytest.raises(Problem, match="no such session"):
            self.sessions.find(self.pick(index).session.token[:-1], "a")

    @rule(
        index=INDICES,
        whose=WHOSE,
        verb=st.sampled_from(["step", "step", "step", "reset"]),
        argument=st.sampled_from("xy"),
        name=NAMES,
        ahead=st.sampled_from([None, 0, 0, 0, 1, -1]),
        then=st.sampled_from(["waits", "waits", "well", "ends", "fails"]),
    )
    def calls(self, index: int, whose: str, verb: str, argument: str, name: str, ahead: int | None, then: str) -> None:
        lease = self.find(index, whose)
        if lease is None:
            return
        seq = None if ahead is None else lease.steps + 1 + ahead
        content = (verb, argument, seq)
        known, new = lease.replies.get(name), False
        if known is not None and known.content == content:
            asked = known
            asked.callers += 1
        elif known is not None:
            asked = self.asks(content, "request_id_reused")
        elif refusal := self.refusal(lease, verb, seq):
            asked = self.asks(content, refusal)
        else:
            asked, new = self.asks(content), True
        self.sessions.call(lease.session, verb, argument, _into(asked), request=name, seq=seq)
        if new:
            lease.busy = True
            self.queues[lease.place].append((lease, verb, argument, asked))
            if name:
                lease.replies[name] = asked
            while len(lease.replies) > KEPT_REPLIES:
                lease.replies.popitem(last=False)
        if then != "waits":
            self.answers(lease.place, then)

    @rule(place=PLACES, way=WAYS)
    def answers(self, place: int, way: str) -> None:
        place = place if self.queues[place] else 1 - place
        if not self.queues[place] or self.dead[place]:
            return
        lease, verb, argument, asked = self.queues[place].popleft()
        failed = Problem(500, "env_error", "The environment raised.") if way == "fails" else None
        self.fleet.workers[place].answer(ended=way == "ends", failed=failed)
        if asked is not None:
            lease.busy, lease.expires = False, self.now + LEASE_S
            asked.wanted = "env_error" if failed is not None else self.ran(lease, verb, argument, way == "ends")
        elif verb == "fork" and failed is None:
            (twin,) = self.forks
            state = (lease.count, lease.steps, lease.over, lease.begun)
            self.leases.append(Lease(twin, lease.tenant, place, self.now + LEASE_S, *state))
        if verb == "fork":
            self.forks.clear()

    @rule(index=INDICES, count=st.integers(KEPT_REPLIES - 2, KEPT_REPLIES))
    def many_named_calls_come_one_after_the_other(self, index: int, count: int) -> None:
        for number in range(count):
            self.calls(index, "own", "step", "x", f"s{number}", None, "well")

    @rule(index=INDICES)
    def forks_one(self, index: int) -> None:
        """At most one fork is on its way, so that its twin is known by its order."""
        if any(verb == "fork" for queue in self.queues for _, verb, _, _ in queue):
            return
        lease = self.find(index)
        if lease is not None:
            self.queues[lease.place].append((lease, "fork", None, None))
            self.sessions.fork(lease.session, lambda twin, failed: self.forks.append(twin))

    @rule(index=INDICES, whose=WHOSE)
    def closes(self, index: int, whose: str) -> None:
        lease = self.find(index, whose)
        if lease is not None:
            self.part(lease, "closed")
            self.sessions.end(lease.session, "closed")
            self.sessions.end(lease.session, "closed")  # a second goodbye changes nothing

    @rule(passed=st.sampled_from([0.1, LEASE_S / 4, LEASE_S / 2, LEASE_S]))
    def time_passes(self, passed: float) -> None:
        self.now += passed

    @rule(passed=st.sampled_from([0.1, LEASE_S / 2, LEASE_S]))
    def time_passes_and_a_sweep(self, passed: float) -> None:
        self.now += passed
        self.sweeps()

    def sweeps(self) -> None:
        gone = [lease for lease in self.leases if lease.fate == "live" and lease.expires <= self.now and not lease.busy]
        for lease in gone:
            self.part(lease, "expired")
        assert self.sessions.sweep() == len(gone)

    @rule(place=PLACES)
    def a_worker_is_killed(self, place: int) -> None:
        self.fleet.kill(place)
        self.dead[place] = True

    @rule(place=PLACES)
    def a_worker_dies(self, place: int) -> None:
        self.a_worker_is_killed(place)
        self.a_killed_worker_ends(place)

    @rule(place=PLACES)
    def a_killed_worker_ends(self, place: int) -> None:
        if not self.dead[place]:
            return
        for lease, verb, _, asked in self.queues[place]:
            if asked is not None:
                asked.wanted, lease.busy = "session_lost", False
            elif verb == "fork":
                self.forks.clear()
        self.queues[place].clear()
        for lease in self.leases:
            if lease.place == place and lease.fate == "live":
                lease.fate = "lost"
        self.fleet.exit(place)
        self.forks.clear()
        self.dead[place] = False

    # What must hold

    @invariant()
    def both_sides_agree(self) -> None:
        live = [lease for lease in self.leases if lease.fate == "live"]
        assert {s.token for s in self.sessions.all()} == {lease.session.token for lease in live}
        assert len({lease.session.token for lease in self.leases}) == len(self.leases)
        for lease in live:
            session = lease.session
            assert (session.steps, session.over, session.busy, session.expires) == (
                *(lease.steps, lease.over, lease.busy),
                lease.expires,
            )

    @invariant()
    def every_request_is_answered_once_with_the_same(self) -> None:
        for asked in self.asked:
            assert asked.got == ([] if asked.wanted is None else [asked.wanted] * asked.callers)

    @invariant()
    def every_end_is_told_once(self) -> None:
        ended = [lease.session.token for lease in self.leases if lease.fate != "live"]
        assert Counter(session.token for session in self.over) == Counter(ended)

    def teardown(self) -> None:
        """When nobody comes any more, nothing is left."""
        for place in range(WORKERS):
            self.a_killed_worker_ends(place)
            while self.queues[place]:
                self.answers(place, "well")
        self.now += LEASE_S
        self.sweeps()
        for place in range(WORKERS):
            while self.queues[place]:
                self.answers(place, "well")
        assert self.sessions.all() == []
        assert [(worker.sessions, worker.counts) for worker in self.fleet.workers] == [(set(), {})] * WORKERS
        self.every_request_is_answered_once_with_the_same()
        self.every_end_is_told_once()


def _into(asked: Asked) -> Any:
    return lambda value, failed: asked.got.append(value if failed is None else failed.code)


class Places(RuleBasedStateMachine):
    """Three tenants at a gate: one of twice the weight, one with a quota."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity, self.queue, self.now = 3, 6, 0.0
        self.gate = Gate(self.capacity, queue=self.queue, shares=SHARES)
        self.holds: Counter[str] = Counter()
        self.waits: list[tuple[int, str, float]] = []
        self.callers: set[int] = set()

    def expected(self, tenant: str) -> str:
        mine = self.holds[tenant] + sum(t == tenant for _, t, _ in self.waits)
        if tenant == "b" and mine >= 3:
            return "quota"
        if self.holds.total() < self.capacity and not self.waits:
            return "place"
        return "queue_full" if len(self.waits) >= self.queue and not self.crowding(tenant) else "waits"

    def crowding(self, tenant: str) -> list[str]:
        """The tenants that wait most, by weight, if that is more than this one would."""
        waits = Counter(t for _, t, _ in self.waits)
        by_weight = {t: (waits[t] + (t == tenant)) / (SHARES[t].weight if t in SHARES else 1.0) for t in "abc"}
        most = max(waits[t] / (SHARES[t].weight if t in SHARES else 1.0) for t in "abc")
        others = [t for t in "abc" if t != tenant and by_weight[t] == most]
        return others if most > by_weight[tenant] else []

    def granted(self, callers: list[int]) -> None:
        """As many as fit, each the oldest of its tenant, and never above the cap."""
        free = max(0, self.capacity - self.holds.total())
        assert len(callers) == min(free, len(self.waits))
        for caller in callers:
            (tenant,) = [t for c, t, _ in self.waits if c == caller]
            assert caller == min(c for c, t, _ in self.waits if t == tenant)
            self.waits = [wait for wait in self.waits if wait[0] != caller]
            self.holds[tenant] += 1
        assert not callers or self.holds.total() <= self.capacity

    @rule(tenant=st.sampled_from("abc"), patience=st.sampled_from([1.0, 2.0, 5.0]))
    def asks(self, tenant: str, patience: float) -> None:
        expected, crowding = self.expected(tenant), self.crowding(tenant)
        given = self.gate.ask(tenant, self.now + patience)
        for caller in self.gate.evicted:
            (owner,) = [t for c, t, _ in self.waits if c == caller]
            assert len(self.waits) == self.queue
            assert owner in crowding
            assert caller == max(c for c, t, _ in self.waits if t == owner)
            self.waits = [wait for wait in self.waits if wait[0] != caller]
        self.gate.evicted.clear()
        if isinstance(given, str):
            assert given == expected
            return
        caller, at_once = given
        assert expected == ("place" if at_once else "waits")
        assert caller not in self.callers
        self.callers.add(caller)
        if at_once:
            self.holds[tenant] += 1
        else:
            self.waits.append((caller, tenant, self.now + patience))

    @rule(tenant=st.sampled_from("abc"))
    def releases(self, tenant: str) -> None:
        if self.holds[tenant]:
            self.holds[tenant] -= 1
            self.granted(self.gate.release(tenant))

    @rule(index=st.integers(0, 8), tenant=st.sampled_from("abc"))
    def leaves(self, index: int, tenant: str) -> None:
        if index < len(self.waits):
            caller, owner, _ = self.waits[index]
            assert self.gate.leave(tenant, caller) == (owner == tenant)
            if owner == tenant:
                del self.waits[index]
                assert not self.gate.leave(tenant, caller)

    @rule(passed=st.sampled_from([0.5, 1.0, 2.0]))
    def time_passes(self, passed: float) -> None:
        self.now += passed
        late = {caller for caller, _, deadline in self.waits if deadline <= self.now}
        assert set(self.gate.late(self.now)) == late
        self.waits = [wait for wait in self.waits if wait[0] not in late]

    @rule(capacity=st.integers(1, 5))
    def resizes(self, capacity: int) -> None:
        self.capacity = capacity
        self.granted(self.gate.resize(capacity))

    @invariant()
    def books_balance(self) -> None:
        assert (self.gate.held, self.gate.waiting) == (self.holds.total(), len(self.waits))
        assert [self.gate.held_by(tenant) for tenant in "abc"] == [self.holds[tenant] for tenant in "abc"]

    def teardown(self) -> None:
        """A drain takes nobody; when everybody has gone, nothing is held."""
        self.gate.draining = True
        assert self.gate.ask("a", self.now + 9) == "draining"
        for caller, tenant, _ in self.waits:
            assert self.gate.leave(tenant, caller)
        self.waits.clear()
        for tenant in self.holds.elements():
            assert self.gate.release(tenant) == []
        assert (self.gate.held, self.gate.waiting) == (0, 0)


TestLeases, TestPlaces = Leases.TestCase, Places.TestCase
TestLeases.settings = TestPlaces.settings = RUNS


def test_a_tenant_that_was_alone_is_not_starved_by_one_that_comes_later() -> None:
    """What it had while nobody else wanted anything is not held against it."""
    gate = Gate(1, queue=100)
    for _ in range(50):
        gate.ask("early", 9.0)
        gate.release("early")
    gate.ask("late", 9.0)
    owner = {cast(tuple[int, bool], gate.ask(name, 9.0))[0]: name for name in ["late"] * 20 + ["early"] * 20}
    turns, last = [], "late"
    for _ in range(10):
        last = owner[gate.release(last)[0]]
        turns.append(last)
    assert turns.count("early") == 5


def test_a_tenant_that_fills_the_queue_shuts_nobody_out() -> None:
    """SRV-15: the others' callers find room, and it is the flood's that are sent away."""
    gate = Gate(1, queue=8)
    flood = [gate.ask("flood", 9.0) for _ in range(20)]
    assert flood.count("queue_full") == 11
    assert isinstance(gate.ask("other", 9.0), tuple)
    assert gate.waiting == 8


def test_a_lease_does_not_end_while_its_verb_runs_and_is_renewed_by_the_answer() -> None:
    now = [0.0]
    fleet = MemoryFleet(FleetConfig(id="t/Memory-v1", lease_s=LEASE_S), 1)
    sessions = Sessions({"t/Memory-v1": cast(Any, fleet)}, lambda: now[0], lambda session: None)
    worker, number = fleet.open(0)
    session = sessions.add("a", "t/Memory-v1", cast(Any, worker), number)
    sessions.call(session, "reset", [None, None], lambda value, failed: None)
    now[0] = 2 * LEASE_S
    assert sessions.find(session.token, "a") is session
    now[0] = 4 * LEASE_S
    worker.answer()
    assert sessions.sweep() == 0
    assert sessions.find(session.token, "a") is session
