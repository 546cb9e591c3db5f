"""Admission: never above the cap, bounded queues, fair shares, and nothing lost whatever the order of events."""

from collections import Counter

import pytest

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
