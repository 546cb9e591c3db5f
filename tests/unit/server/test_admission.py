"""Admission: never above the cap, bounded queues, fair shares, and nothing lost whatever the order of events."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from envhub.server.admission import Gate, Share


def ask(gate: Gate, tenant: str, deadline: float = 10.0) -> tuple[int, bool]:
    given = gate.ask(tenant, deadline)
    assert not isinstance(given, str), given
    return given


def test_places_are_granted_up_to_the_cap_then_callers_wait_in_order() -> None:
    gate = Gate(2, queue=2)
    assert [ask(gate, "a")[1] for _ in range(3)] == [True, True, False]
    fourth, granted = ask(gate, "a")
    assert not granted
    assert gate.ask("a", 1.0) == "queue_full"
    third = fourth - 1
    assert gate.release("a") == [third]
    assert gate.release("a") == [fourth]
    assert (gate.held, gate.waiting) == (2, 0)


def test_a_quota_counts_what_is_held_and_what_waits() -> None:
    gate = Gate(10, queue=10, shares={"small": Share(max_sessions=2)})
    ask(gate, "small"), ask(gate, "small")
    assert gate.ask("small", 1.0) == "quota"
    assert ask(gate, "other")[1]
    gate.release("small")
    assert ask(gate, "small")[1]


def test_one_tenant_that_floods_does_not_starve_the_others() -> None:
    """4 equal tenants, one asks 50 times as much: Jain's index of what they get is at least 0.95."""
    gate = Gate(8, queue=10_000)
    owner: dict[int, str] = {}
    held: list[str] = []
    for tenant, count in (("flood", 2000), ("b", 40), ("c", 40), ("d", 40)):
        for _ in range(count):
            caller, granted = ask(gate, tenant)
            owner[caller] = tenant
            held += [tenant] * granted
    served: Counter[str] = Counter()
    while sum(served.values()) < 120:
        tenant = held.pop(0)
        for caller in gate.release(tenant):
            held.append(owner[caller])
            served[owner[caller]] += 1
    shares = [served[t] for t in ("flood", "b", "c", "d")]
    assert sum(shares) ** 2 / (4 * sum(s * s for s in shares)) >= 0.95


def test_weights_divide_the_places() -> None:
    gate = Gate(1, queue=1000, shares={"heavy": Share(weight=3.0), "light": Share(weight=1.0)})
    ask(gate, "first")
    owner = {}
    for _ in range(100):
        for tenant in ("heavy", "light"):
            owner[ask(gate, tenant)[0]] = tenant
    served: Counter[str] = Counter()
    last = "first"
    for _ in range(80):
        (caller,) = gate.release(last)
        last = owner[caller]
        served[last] += 1
    assert served["heavy"] == pytest.approx(60, abs=2)


def test_a_caller_that_is_late_or_leaves_is_not_granted() -> None:
    gate = Gate(1, queue=10)
    ask(gate, "a")
    early, patient = ask(gate, "a", 1.0)[0], ask(gate, "a", 9.0)[0]
    assert gate.late(5.0) == [early]
    other = ask(gate, "a", 9.0)[0]
    assert gate.leave("a", patient) is True
    assert gate.leave("a", patient) is False
    assert gate.release("a") == [other]


def test_a_draining_gate_takes_nobody_and_a_larger_one_takes_more() -> None:
    gate = Gate(1, queue=5)
    ask(gate, "a")
    waiting = ask(gate, "a")[0]
    assert gate.resize(2) == [waiting]
    gate.draining = True
    assert gate.ask("b", 1.0) == "draining"


class Gates(RuleBasedStateMachine):
    """Any order of asking, releasing, leaving, lateness and resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate(3, queue=5, shares={"a": Share(weight=2.0, max_sessions=4)})
        self.now = 0.0
        self.holds: Counter[str] = Counter()
        self.waits: dict[int, tuple[str, float]] = {}
        self.ended: set[int] = set()

    def granted(self, callers: list[int]) -> None:
        for caller in callers:
            tenant, _ = self.waits.pop(caller)  # never twice, never one who left
            self.holds[tenant] += 1

    @rule(tenant=st.sampled_from("abc"), patience=st.floats(0.1, 5))
    def asks(self, tenant: str, patience: float) -> None:
        given = self.gate.ask(tenant, self.now + patience)
        if isinstance(given, str):
            return
        caller, at_once = given
        if at_once:
            self.holds[tenant] += 1
        else:
            self.waits[caller] = (tenant, self.now + patience)

    @rule(tenant=st.sampled_from("abc"))
    def releases(self, tenant: str) -> None:
        if self.holds[tenant]:
            self.holds[tenant] -= 1
            self.granted(self.gate.release(tenant))

    @rule(index=st.integers(0, 4))
    def leaves(self, index: int) -> None:
        callers = sorted(self.waits)
        if index < len(callers):
            tenant, _ = self.waits.pop(callers[index])
            assert self.gate.leave(tenant, callers[index])

    @rule(passed=st.floats(0, 3))
    def time_passes(self, passed: float) -> None:
        self.now += passed
        late = self.gate.late(self.now)
        assert set(late) == {c for c, (_, deadline) in self.waits.items() if deadline <= self.now}
        for caller in late:
            del self.waits[caller]

    @rule(capacity=st.integers(1, 5))
    def resizes(self, capacity: int) -> None:
        self.granted(self.gate.resize(capacity))

    @invariant()
    def books_balance(self) -> None:
        assert self.gate.held == sum(self.holds.values())
        assert self.gate.waiting == len(self.waits) <= 5
        assert self.holds["a"] + sum(t == "a" for t, _ in self.waits.values()) <= 4
        if self.gate.waiting:  # a place is never left empty while somebody waits
            assert self.gate.held >= self.gate.capacity


TestGates = Gates.TestCase
TestGates.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
