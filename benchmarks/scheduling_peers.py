"""Schedulers as others have them, reduced to what decides throughput and bias: for comparison in `scheduling.py` only."""

from collections import Counter
from dataclasses import dataclass, field

from envhub.rollout.config import RolloutConfig
from envhub.rollout.leases import Cancel, Command, Drop, Lease, Outcome, ReadyGroup, Start, Taken


@dataclass(slots=True)
class _Played:
    """A group in play."""

    index: int
    done: list[tuple[str, Outcome]] = field(default_factory=list)
    flying: set[str] = field(default_factory=set)


class Peer:
    """Groups of the stream, started whenever `allowed` says so; the first to be whole are trained on.

    `batches`: a batch is started at once and waited for; with 0 after the publish (synchronous), with 1 when the one before is
    taken (one step off). Extra groups and members are let go when a batch is taken, for good.
    `capacity`: AReaL's rule (arXiv:2505.24298), started < (staleness + version + 1) x groups_per_update, first in first out.
    `hard`: groups whose oldest token is too old are dropped when an update is made.
    """

    def __init__(
        self,
        config: RolloutConfig,
        *,
        batches: int | None = None,
        hard: bool = False,
        extra_groups: int = 0,
        extra_members: int = 0,
    ) -> None:
        """One of the rules above."""
        self._config, self._batches, self._hard = config, batches, hard
        self._extra_groups, self._members = extra_groups, config.group_size + extra_members
        self._groups: dict[int, _Played] = {}
        self._ready: list[ReadyGroup] = []
        self._queue: list[tuple[int, int]] = []
        self._leases: dict[str, Lease] = {}
        self._attempts: Counter[tuple[int, int]] = Counter()
        self._version = self._opened = 0

    def begin(self, now: float) -> list[Command]:
        """Start the first batch."""
        return self._open_batch(now) if self._batches is not None else self._fill(now)

    def finished(self, lease_id: str, outcome: Outcome, now: float) -> list[Command]:
        """An episode has ended; one that failed is played again."""
        lease = self._leases.pop(lease_id)
        group = self._groups.get(lease.index)
        assert group is not None
        group.flying.discard(lease_id)
        if outcome.reward is None:
            self._queue.append((lease.index, lease.member))
            return self._start(now)
        group.done.append((lease_id, outcome))
        commands: list[Command] = []
        if len(group.done) == self._config.group_size:
            del self._groups[lease.index]
            names = tuple(name for name, _ in group.done)
            oldest = min(o.oldest_version or 0 for _, o in group.done)
            self._ready.append(ReadyGroup(str(lease.index), lease.index, names, oldest))
            commands += self._cancel(group)
        return commands + (self._fill(now) if self._batches is None else self._start(now))

    def published(self, version: int, now: float) -> list[Command]:
        """New weights."""
        self._version = version
        return self._open_batch(now) if self._batches == 0 else self._fill(now) if self._batches is None else []

    def tick(self, now: float) -> list[Command]:
        """Episodes past their deadline are played again."""
        commands: list[Command] = []
        for lease in [late for late in self._leases.values() if late.deadline_s <= now]:
            del self._leases[lease.id]
            self._groups[lease.index].flying.discard(lease.id)
            commands.append(Cancel(lease.id, "deadline"))
            self._queue.append((lease.index, lease.member))
        return commands + self._start(now)

    def take(self, now: float) -> Taken:
        """The first groups that are whole."""
        commands: list[Command] = []
        if self._hard:
            floor = self._version - self._config.max_staleness
            commands += [Drop(g.id, g.index, "stale", g.trajectories) for g in self._ready if g.oldest_version < floor]
            self._ready = [g for g in self._ready if g.oldest_version >= floor]
            self._opened -= len(commands)
        count = self._config.groups_per_update
        if len(self._ready) < count:
            return Taken((), (*commands, *(self._fill(now) if commands else [])))
        groups, self._ready = tuple(self._ready[:count]), self._ready[count:]
        if self._batches is not None:
            commands += [Drop(g.id, g.index, "extra", g.trajectories) for g in self._ready]
            self._ready = []
            for index, group in list(self._groups.items()):
                del self._groups[index]
                commands += [*self._cancel(group), Drop(str(index), index, "extra", tuple(name for name, _ in group.done))]
            self._queue = []
        if self._batches == 1:
            commands += self._open_batch(now)
        return Taken(groups, tuple(commands))

    def next_deadline(self) -> float | None:
        """The deadline of the episode that began first."""
        return next((lease.deadline_s for lease in self._leases.values()), None)

    def _open_batch(self, now: float) -> list[Command]:
        return self._open(self._config.groups_per_update + self._extra_groups, now)

    def _fill(self, now: float) -> list[Command]:
        allowed = (self._config.max_staleness + self._version + 1) * self._config.groups_per_update
        return self._open(max(0, allowed - self._opened), now)

    def _open(self, count: int, now: float) -> list[Command]:
        for _ in range(count):
            index = len(self._attempts) // self._members
            self._groups[index] = _Played(index)
            self._opened += 1
            for member in range(self._members):
                self._attempts[index, member] = 0
                self._queue.append((index, member))
        return self._start(now)

    def _start(self, now: float) -> list[Command]:
        commands: list[Command] = []
        limit = self._config.max_in_flight or 10**9
        while self._queue and len(self._leases) < limit:
            index, member = self._queue.pop(0)
            if index not in self._groups:
                continue
            attempt = self._attempts[index, member]
            self._attempts[index, member] += 1
            name = f"{index}/{member}.{attempt}"
            lease = Lease(name, str(index), index, member, attempt, 0, now, now + self._config.episode_deadline_s)
            self._leases[name] = lease
            self._groups[index].flying.add(name)
            commands.append(Start(lease))
        return commands

    def _cancel(self, group: _Played) -> list[Command]:
        for name in group.flying:
            del self._leases[name]
        return [Cancel(name, "extra") for name in sorted(group.flying)]
