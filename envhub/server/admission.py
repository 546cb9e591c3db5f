"""Who gets a session when there are fewer than callers: a bounded queue, quotas, and fair shares by weight.

A pure state machine: time comes in as a number, grants go out as ids. The grant is the reservation: the cap is never passed.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Refusal = Literal["quota", "full", "queue_full", "draining"]


@dataclass(frozen=True, slots=True)
class Share:
    """A tenant's part: its weight in the queue, and how many sessions it may hold at once (None: all)."""

    weight: float = 1.0
    max_sessions: int | None = None


@dataclass(slots=True)
class _Tenant:
    share: Share
    held: int = 0
    served: float = 0.0  # virtual time: sessions granted over weight
    waiting: deque[tuple[int, float]] = field(default_factory=deque)  # (caller, deadline)


class Gate:
    """Hands out up to `capacity` places."""

    def __init__(self, capacity: int, *, queue: int, shares: Mapping[str, Share] | None = None) -> None:
        """Tenants that `shares` does not name have weight 1 and no quota."""
        self.capacity, self.queue = capacity, queue
        self._shares = dict(shares or {})
        self._tenants: dict[str, _Tenant] = {}
        self._callers = itertools.count(1)
        self.held = self.waiting = 0
        self.evicted: list[int] = []  # callers who wait no longer: their tenant filled the queue, and another came
        self._now = 0.0  # virtual time: what the last tenant that was granted had been served before
        self.draining = False

    def ask(self, tenant: str, deadline: float) -> tuple[int, bool] | Refusal:
        """A caller asks for a place: (caller, True) if it has one, (caller, False) if it waits, or why it is refused."""
        one = self._tenant(tenant)
        if self.draining:
            return "draining"
        quota = one.share.max_sessions
        if quota is not None and one.held + len(one.waiting) >= quota:
            return "quota"
        if self.held < self.capacity and not self.waiting:
            self._grant(one)
            return next(self._callers), True
        if self.waiting >= self.queue and not self._make_room(one):
            return "queue_full" if self.queue else "full"
        if not one.waiting:
            one.served = max(one.served, self._now)
        caller = next(self._callers)
        one.waiting.append((caller, deadline))
        self.waiting += 1
        return caller, False

    def release(self, tenant: str) -> list[int]:
        """A place is given back; the callers who now have one."""
        self._tenant(tenant).held -= 1
        self.held -= 1
        return self._fill()

    def leave(self, tenant: str, caller: int) -> bool:
        """A waiting caller gives up; False if it was not waiting."""
        one = self._tenant(tenant)
        before = len(one.waiting)
        one.waiting = deque(w for w in one.waiting if w[0] != caller)
        self.waiting -= before - len(one.waiting)
        return len(one.waiting) < before

    def late(self, now: float) -> list[int]:
        """Callers whose deadline has passed while they waited; they wait no longer."""
        found = []
        for one in self._tenants.values():
            found += [caller for caller, deadline in one.waiting if deadline <= now]
            one.waiting = deque(w for w in one.waiting if w[1] > now)
        self.waiting -= len(found)
        return found

    def resize(self, capacity: int) -> list[int]:
        """Another capacity; the callers who now have a place. Places that are held stay held."""
        self.capacity = capacity
        return self._fill()

    def held_by(self, tenant: str) -> int:
        """How many places a tenant holds."""
        return self._tenant(tenant).held

    def _fill(self) -> list[int]:
        granted = []
        while self.held < self.capacity and self.waiting:
            one = heapq.nsmallest(1, (t for t in self._tenants.values() if t.waiting), key=lambda t: t.served)[0]
            granted.append(one.waiting.popleft()[0])
            self.waiting -= 1
            self._grant(one)
        return granted

    def _make_room(self, one: _Tenant) -> bool:
        """In a full queue the last caller of the tenant that waits most gives way to one that waits less, by weight."""
        most = max(self._tenants.values(), key=lambda t: len(t.waiting) / t.share.weight)
        if len(most.waiting) / most.share.weight <= (len(one.waiting) + 1) / one.share.weight:
            return False
        self.evicted.append(most.waiting.pop()[0])
        self.waiting -= 1
        return True

    def _grant(self, one: _Tenant) -> None:
        if not one.waiting:  # a tenant that was away may not catch up on what it did not ask for, nor pay for being alone
            one.served = max(one.served, self._now)
        self._now = max(self._now, one.served)
        one.held += 1
        one.served += 1.0 / one.share.weight
        self.held += 1

    def _tenant(self, name: str) -> _Tenant:
        if name not in self._tenants:
            self._tenants[name] = _Tenant(self._shares.get(name, Share()))
        return self._tenants[name]
