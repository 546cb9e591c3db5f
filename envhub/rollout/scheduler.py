"""The rollout scheduler: a deterministic state machine without I/O, clock or randomness of its own.

Events go in (`begin`, `finished`, `published`, `tick`, `take`), commands come out. Every wait has a deadline, every lease
ends once, and a group that cannot be completed is replaced, so that `take` never waits for something that cannot happen.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from envhub.rollout.budget import FailureBudget
from envhub.rollout.config import RolloutConfig
from envhub.rollout.leases import (
    Cancel,
    Command,
    Drop,
    Lease,
    Outcome,
    ReadyGroup,
    SchedulerStats,
    Start,
    Stop,
    Taken,
    episode_seed,
)

__all__ = ["Cancel", "Command", "Drop", "Lease", "Outcome", "ReadyGroup", "Scheduler", "Start", "Stop", "Taken"]
MAX_REMEMBERED = 4096  # cancelled leases whose late end is still expected


@dataclass(slots=True)
class _Group:
    """A group that is being played."""

    id: str
    index: int
    missing: set[int]
    done: dict[int, tuple[str, Outcome]] = field(default_factory=dict)
    failures: Counter[int] = field(default_factory=Counter)  # by member; those of an earlier process do not count
    started_s: float | None = None  # when its first member was; a group that waits for a slot does not age


class Scheduler:
    """Decides what is played. `now` is monotonic seconds, never read here."""

    def __init__(
        self,
        config: RolloutConfig,
        *,
        stream: str = "train",
        seed: int,
        version: int = 0,
        next_index: int = 0,
        backlog: Sequence[int] = (),
        total_groups_wanted: int | None = None,
        attempts: Mapping[tuple[str, int], int] | None = None,
    ) -> None:
        """Start with nothing in flight.

        Args:
            config: sizes, limits and policies.
            stream: prefix of group ids.
            seed: of all episodes.
            version: of the weights that sample now.
            next_index: place in the task stream of the first new group.
            backlog: places before it that were never resolved; they come first.
            total_groups_wanted: groups after which nothing more is admitted; a multiple of `groups_per_update`.
            attempts: by (group id, member): attempts made in an earlier process, so that no id is used twice.

        Raises:
            ValueError: the last update would wait for groups that are never admitted.
        """
        if total_groups_wanted is not None and total_groups_wanted % config.groups_per_update:
            raise ValueError(f"{total_groups_wanted} groups are no multiple of {config.groups_per_update}, an update's")
        self._config, self._stream, self._seed = config, stream, seed
        self._version, self._next_index = version, next_index
        self._backlog = deque(sorted(backlog))
        self._wanted = total_groups_wanted
        self._attempts = dict(attempts or {})
        self._queue: deque[tuple[_Group, int]] = deque()  # members not started yet
        self._leases: dict[str, Lease] = {}
        self._cancelled: dict[str, None] = {}  # in order of cancelling
        self._groups: dict[str, _Group] = {}
        self._ready: dict[int, ReadyGroup] = {}
        self._constant: set[int] = set()  # those of the ready groups whose rewards are all equal
        self._taken = self._started = self._finished = 0
        self._taken_at: int | None = None
        self._resampled = self._constant_kept = 0
        self._drops = {"stale": 0, "constant": 0, "failed": 0}
        self._budget = FailureBudget(config.max_failed_share, config.groups_per_update)

    # Events

    def begin(self, now: float) -> list[Command]:
        """Admit the first groups."""
        return self._admit(now)

    def finished(self, lease_id: str, outcome: Outcome, now: float) -> list[Command]:
        """A lease has ended. Ends of cancelled leases are ignored; an unknown one is a bug of the caller (ValueError)."""
        if lease_id in self._cancelled:
            del self._cancelled[lease_id]
            return []
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            raise ValueError(f"lease {lease_id!r} is not in flight")
        self._finished += 1
        return self._ended(lease, outcome, now) + self._admit(now)

    def published(self, version: int, now: float) -> list[Command]:
        """The sampler now holds weights `version`."""
        if version < self._version:
            raise ValueError(f"version {version} after {self._version}")
        self._version = version
        self._resampled = 0
        return self._admit(now)

    def tick(self, now: float) -> list[Command]:
        """Time has passed: overdue episodes are taken away and given out again, overdue groups are closed."""
        commands: list[Command] = []
        for lease in [late for late in self._leases.values() if late.deadline_s <= now]:
            commands += self._take_away(lease, "deadline")
            commands += self._ended(lease, Outcome(None, None, 0, 0, "episode deadline"), now)
        for group in [late for late in self._groups.values() if self._group_limit(late) <= now]:
            for lease in [held for held in self._leases.values() if held.group == group.id]:
                commands += self._take_away(lease, "group deadline")
            group.missing.clear()
            commands += self._close(group)
        return commands + self._admit(now)

    def take(self, now: float) -> Taken:
        """The groups of the next update, oldest first; no groups if there are not enough yet. Stale ones are dropped."""
        commands: list[Command] = []
        floor = self._version - self._config.max_staleness
        for ready in [stale for stale in self._ready.values() if stale.oldest_version < floor]:
            commands.append(self._let_go(ready.index, "stale"))
        count = self._config.groups_per_update
        groups: tuple[ReadyGroup, ...] = ()
        if len(self._ready) - self._to_resample() >= count:
            commands += self._resample(self._constant)
            groups = tuple(self._ready.pop(index) for index in sorted(self._ready)[:count])
            self._taken += count
            self._taken_at = self._version
            taken = {group.index for group in groups}
            self._constant_kept += len(self._constant & taken)
            self._constant -= taken
        return Taken(groups, (*commands, *self._admit(now)))

    # Looking

    def next_deadline(self) -> float | None:
        """When `tick` next has something to do, in monotonic seconds."""
        limits = [lease.deadline_s for lease in self._leases.values()]
        limits += [self._group_limit(group) for group in self._groups.values()]
        return min((limit for limit in limits if limit < inf), default=None)

    def stats(self, now: float | None = None) -> SchedulerStats:
        """Counts so far."""
        oldest = min(self._leases.values(), key=lambda lease: lease.started_s, default=None)
        return SchedulerStats(
            started=self._started,
            finished=self._finished,
            failed_episodes=self._budget.failed_episodes,
            in_flight=len(self._leases),
            waiting=len(self._queue),
            ready=len(self._ready),
            dropped_stale=self._drops["stale"],
            dropped_constant=self._drops["constant"],
            dropped_failed=self._drops["failed"],
            constant_kept=self._constant_kept,
            slowest=None if oldest is None or now is None else (oldest.id, now - oldest.started_s),
        )

    def frontier(self) -> tuple[int, tuple[int, ...]]:
        """What a checkpoint needs: the next new place, and the places before it that are neither taken nor dropped."""
        outstanding = {group.index for group in self._groups.values()} | set(self._ready) | set(self._backlog)
        return self._next_index, tuple(sorted(outstanding))

    # Inside

    def _admit(self, now: float) -> list[Command]:
        """Open groups up to the staleness bound, and start members up to the number in flight.

        Outstanding groups are those of the updates that may still use the current weights: this one and `max_staleness`
        more; a constant group that will be dropped makes room for the one that replaces it.
        """
        bound = (self._config.max_staleness + 1) * self._config.groups_per_update
        if self._config.max_staleness == 0 and self._taken_at == self._version:
            bound = 0  # the next update is played under the next weights
        if self._wanted is not None:
            bound = min(bound, self._wanted - self._taken)
        bound += self._to_resample()
        while len(self._groups) + len(self._ready) < bound:
            self._open()
        commands: list[Command] = []
        limit = self._config.max_in_flight
        while self._queue and (limit is None or len(self._leases) < limit):
            group, member = self._queue.popleft()
            if group.id in self._groups:
                commands.append(Start(self._lend(group, member, now)))
        return commands

    def _open(self) -> None:
        index = self._backlog.popleft() if self._backlog else self._next_index
        self._next_index = max(self._next_index, index + 1)
        group = _Group(f"{self._stream}-{index:06d}", index, set(range(self._config.group_size)))
        self._groups[group.id] = group
        self._queue.extend((group, member) for member in range(self._config.group_size))

    def _lend(self, group: _Group, member: int, now: float) -> Lease:
        attempt = self._attempts.get((group.id, member), 0)
        self._attempts[group.id, member] = attempt + 1
        lease = Lease(
            id=f"{group.id}/{member}.{attempt}",
            group=group.id,
            index=group.index,
            member=member,
            attempt=attempt,
            seed=episode_seed(self._seed, group.index, member),
            started_s=now,
            deadline_s=now + self._config.episode_deadline_s,
        )
        self._leases[lease.id] = lease
        group.started_s = now if group.started_s is None else group.started_s
        self._started += 1
        return lease

    def _take_away(self, lease: Lease, reason: str) -> list[Command]:
        del self._leases[lease.id]
        self._cancelled[lease.id] = None
        if len(self._cancelled) > MAX_REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]
        self._finished += 1
        return [Cancel(lease.id, reason)]

    def _ended(self, lease: Lease, outcome: Outcome, now: float) -> list[Command]:
        commands: list[Command] = [*self._budget.episode(outcome)]
        group = self._groups.get(lease.group)
        if group is None:
            return commands
        if outcome.reward is not None:
            group.done[lease.member] = (lease.id, outcome)
            group.missing.discard(lease.member)
        else:
            group.failures[lease.member] += 1
            if group.failures[lease.member] < self._config.max_attempts:
                self._queue.appendleft((group, lease.member))
            else:
                group.missing.discard(lease.member)
        return commands if group.missing else commands + self._close(group)

    def _close(self, group: _Group) -> list[Command]:
        """Every member has ended for good: the group is ready, or dropped and thereby replaced."""
        commands: list[Command] = []
        del self._groups[group.id]
        for member in range(self._config.group_size):
            self._attempts.pop((group.id, member), None)
        members = [group.done[member] for member in sorted(group.done)]
        names = tuple(name for name, _ in members)
        short = len(members) < self._config.group_size
        if len(members) < self._config.min_group_size or (short and self._config.on_failure == "drop"):
            self._drops["failed"] += 1
            commands.append(Drop(group.id, group.index, "failed", names))
            commands += self._budget.group(completed=False)
        else:
            self._budget.group(completed=True)
            rewards = [outcome.reward for _, outcome in members if outcome.reward is not None]
            oldest = min(self._version if o.oldest_version is None else o.oldest_version for _, o in members)
            self._ready[group.index] = ReadyGroup(group.id, group.index, names, oldest)
            if max(rewards) == min(rewards):
                self._constant.add(group.index)
        first_open = min((other.index for other in self._groups.values()), default=self._next_index)
        return commands + self._resample(index for index in self._constant if index < first_open)

    def _to_resample(self) -> int:
        """Ready groups that will be dropped as constant; which ones is known when all before them have ended."""
        return min(self._config.max_resampled_groups - self._resampled, len(self._constant))

    def _resample(self, constant: Iterable[int]) -> list[Command]:
        """Drop the oldest of some constant groups, up to the limit. By index, so that speed decides nothing."""
        chosen = sorted(constant)[: self._config.max_resampled_groups - self._resampled]
        self._resampled += len(chosen)
        return [self._let_go(index, "constant") for index in chosen]

    def _let_go(self, index: int, reason: str) -> Command:
        ready = self._ready.pop(index)
        self._constant.discard(index)
        self._drops[reason] += 1
        return Drop(ready.id, ready.index, reason, ready.trajectories)

    def _group_limit(self, group: _Group) -> float:
        return inf if group.started_s is None else group.started_s + self._config.group_deadline_s
