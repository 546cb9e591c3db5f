"""The rollout scheduler: a deterministic state machine without I/O, clock or randomness of its own.

Events go in (`begin`, `finished`, `published`, `tick`, `take`, `resize`), commands come out. Every wait has a deadline, every
lease ends once, and a group that cannot be completed is replaced, so that `take` never waits for something that cannot happen.
An event costs the same however much is going on, except `published` and `take`, which look at what is ready once an update.
"""

import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from math import inf

from envhub.rollout.budget import FailureBudget
from envhub.rollout.config import RolloutConfig
from envhub.rollout.due import Line, Usual
from envhub.rollout.groups import Group, Places
from envhub.rollout.leases import (
    TWIN,
    Cancel,
    Command,
    Drop,
    Lease,
    Outcome,
    PutOff,
    ReadyGroup,
    SchedulerStats,
    Start,
    Stop,
    Taken,
    episode_seed,
)
from envhub.rollout.resampling import Resampling

__all__ = ["Cancel", "Command", "Drop", "Lease", "Outcome", "PutOff", "ReadyGroup", "Scheduler", "Start", "Stop", "Taken"]
MOST_TWINS = 3  # of one member
MAX_REMEMBERED = 4096  # cancelled leases whose late end is still expected


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
        self._version = version
        self._places = Places(next_index, backlog, round_size=config.groups_per_update, extra=config.extra_groups)
        self._training = False
        self._wanted = total_groups_wanted
        self._limit = config.first_in_flight
        self._attempts = dict(attempts or {})
        self._queue: deque[tuple[Group, int, bool]] = deque()  # members not started yet; True for the twin of one that is
        self._leases: dict[str, Lease] = {}
        self._cancelled: dict[str, None] = {}  # in order of cancelling
        self._groups: dict[str, Group] = {}
        self._indices: list[int] = []  # of the groups, a heap; may hold some that are over
        self._ready: dict[int, ReadyGroup] = {}
        self._ready_tokens = 0
        self._resampling = Resampling(config)
        self._lease_line: Line[Lease] = Line(self._in_flight)
        self._hedge_line: Line[Lease] = Line(self._in_flight)
        self._group_line: Line[Group] = Line(self._in_play)
        self._usual = Usual()
        self._counts: Counter[str] = Counter()
        self._taken = 0
        self._budget = FailureBudget(config.max_failed_share, config.groups_per_update)

    # Events

    def begin(self, now: float) -> list[Command]:
        """Admit the first groups."""
        self._plan_round()
        return self._admit(now)

    def finished(self, lease_id: str, outcome: Outcome, now: float) -> list[Command]:
        """A lease has ended. Ends of cancelled leases are ignored; an unknown one is a bug of the caller (ValueError)."""
        if lease_id in self._cancelled:
            del self._cancelled[lease_id]
            return []
        lease = self._leases.get(lease_id)
        if lease is None:
            raise ValueError(f"lease {lease_id!r} is not in flight")
        return self._ended(lease, outcome, now) + self._admit(now)

    def published(self, version: int, now: float) -> list[Command]:
        """The sampler now holds weights `version`."""
        if version < self._version:
            raise ValueError(f"version {version} after {self._version}")
        self._version = version
        self._training = False
        self._resampling.next_update()
        self._plan_round()
        stale = [ready.index for ready in self._ready.values() if self._is_stale(ready)]
        return [self._let_go(index, "stale") for index in sorted(stale)] + self._admit(now)

    def tick(self, now: float) -> list[Command]:
        """Time has passed: overdue episodes are given out again, slow ones get a twin, overdue groups are closed."""
        commands: list[Command] = []
        while (lease := self._lease_line.first()) is not None and lease.deadline_s <= now:
            commands.append(self._cancel(lease, "deadline"))
            commands += self._ended(lease, Outcome(None, None, 0, 0, "episode deadline"), now)
        while (group := self._group_line.first()) is not None and self._group_limit(group) <= now:
            commands += self._close(group, "group deadline")
        while (lease := self._hedge_line.first()) is not None and self._hedge_at(lease) <= now:
            self._hedge_line.skip()
            self._hedge(lease)
        return commands + self._admit(now)

    def take(self, now: float) -> Taken:
        """The groups of the next update, oldest first; no groups if there are not enough yet."""
        count = self._config.groups_per_update
        if len(self._ready) - self._resampling.owed < count:
            return Taken((), ())
        commands = self._resample(inf)
        groups = tuple(self._unready(index) for index in heapq.nsmallest(count, self._ready))
        for group in groups:
            self._forget(group.id)
            self._counts["constant_kept"] += self._resampling.gone(group.index)
        self._taken += count
        self._training = True
        if self._config.max_staleness == 0:
            commands += self._put_off_the_rest()
        return Taken(groups, (*commands, *self._admit(now)))

    def resize(self, max_in_flight: int | None, now: float) -> list[Command]:
        """Play at most so many episodes at once from now on; those in flight go on."""
        self._limit = max_in_flight
        return self._admit(now)

    # Looking

    def next_deadline(self) -> float | None:
        """When `tick` next has something to do, in monotonic seconds."""
        lease, group, slow = self._lease_line.first(), self._group_line.first(), self._hedge_line.first()
        limits = [] if lease is None else [lease.deadline_s]
        limits += [] if group is None else [self._group_limit(group)]
        limits += [] if slow is None else [self._hedge_at(slow)]
        return min((limit for limit in limits if limit < inf), default=None)

    def stats(self) -> SchedulerStats:
        """Counts so far."""
        counts = self._counts
        return SchedulerStats(
            started=counts["started"],
            finished=counts["finished"],
            failed_episodes=self._budget.failed_episodes,
            in_flight=len(self._leases),
            waiting=len(self._queue),
            ready=len(self._ready),
            dropped_stale=counts["stale"],
            dropped_constant=counts["constant"],
            dropped_failed=counts["failed"],
            constant_kept=counts["constant_kept"],
            put_off=counts["put_off"],
            hedged=counts["hedged"],
            causes=dict(self._budget.causes),
            usual_s=self._usual.seconds,
        )

    def frontier(self) -> tuple[int, tuple[int, ...]]:
        """What a checkpoint needs: the next new place, and the places before it that are neither taken nor dropped."""
        outstanding = {group.index for group in self._groups.values()} | set(self._ready) | self._places.waiting()
        return self._places.first_new, tuple(sorted(outstanding))

    # Admission

    def _plan_round(self) -> None:
        self._places.begin_round(inf if self._wanted is None else self._wanted - self._taken)

    def _admit(self, now: float) -> list[Command]:
        """Open groups up to the staleness bound, and start members up to the number in flight."""
        bound = self._bound()
        while len(self._groups) + len(self._ready) < bound and not self._is_full():
            self._open()
        commands: list[Command] = []
        while self._queue and (self._limit is None or len(self._leases) < self._limit):
            group, member, twin = self._queue.popleft()
            if self._in_play(group) and member in group.missing and bool(group.plays(member)) == twin:
                commands.append(Start(self._lend(group, member, now)))
        return commands

    def _bound(self) -> int:
        """How many groups may be outstanding.

        They are those of the updates that may still use the current weights: this one and `max_staleness` more, the one in
        training included. A group that lacks only its last members counts whole: if it made room for more, slots would never
        be idle, but what is whole would age while it waits, and more tokens would be lost than are gained. A constant group
        that will be dropped makes room for the one that replaces it.
        """
        config = self._config
        bound = (config.max_staleness + 1 - self._training) * config.groups_per_update
        if self._wanted is not None:
            bound = min(bound, self._wanted - self._taken)
        if bound <= 0:
            return 0
        return bound + self._places.extra + max(self._resampling.expected(), self._resampling.owed)

    def _is_full(self) -> bool:
        """Whether what is ready weighs too much; never while the trainer still waits for it."""
        limit = self._config.max_ready_tokens
        enough = len(self._ready) - self._resampling.owed >= self._config.groups_per_update
        return limit is not None and self._ready_tokens > limit and enough

    def _open(self) -> None:
        index = self._places.next()
        members = range(self._config.group_size + self._config.extra_members)
        group = Group(f"{self._stream}-{index:06d}", index, set(members))
        self._groups[group.id] = group
        if self._config.max_resampled_groups:
            heapq.heappush(self._indices, index)
        self._queue.extend((group, member, False) for member in members)

    def _lend(self, group: Group, member: int, now: float) -> Lease:
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
        self._leases[lease.id] = group.playing[lease.id] = lease
        self._lease_line.add(lease)
        if self._config.hedge_after is not None:
            self._hedge_line.add(lease)
        if group.started_s is None:
            group.started_s = now
            self._group_line.add(group)
        self._counts["started"] += 1
        return lease

    def _hedge(self, lease: Lease) -> None:
        """A slow episode gets a twin; so does a twin that is slow itself, within limits."""
        group = self._groups[lease.group]
        if group.hedged[lease.member] < MOST_TWINS:
            group.hedged[lease.member] += 1
            self._counts["hedged"] += 1
            self._queue.appendleft((group, lease.member, True))

    # Endings

    def _cancel(self, lease: Lease, reason: str) -> Cancel:
        self._cancelled[lease.id] = None
        if len(self._cancelled) > MAX_REMEMBERED:
            del self._cancelled[next(iter(self._cancelled))]
        return Cancel(lease.id, reason)

    def _over(self, lease: Lease) -> Group:
        """The lease is no longer in flight; its group."""
        del self._leases[lease.id]
        self._counts["finished"] += 1
        group = self._groups[lease.group]
        del group.playing[lease.id]
        return group

    def _ended(self, lease: Lease, outcome: Outcome, now: float) -> list[Command]:
        group, member = self._over(lease), lease.member
        commands: list[Command] = [*self._budget.episode(outcome)]
        twins = group.plays(member)
        if outcome.reward is not None:
            self._usual.add(now - lease.started_s)
            group.done[member] = (lease.id, outcome)
            group.missing.discard(member)
            commands += [self._cancel(twin, TWIN) for twin in twins]
            for twin in twins:
                self._over(twin)
        else:
            group.failures[member] += 1
            if twins:
                return commands
            if group.failures[member] < self._config.max_attempts:
                self._queue.appendleft((group, member, False))
            else:
                group.missing.discard(member)
        whole = not group.missing or len(group.done) >= self._config.group_size
        return commands + self._close(group, "its group is whole") if whole else commands

    def _abandon(self, group: Group, reason: str) -> list[Command]:
        """Nothing of a group is played any more."""
        leases = list(group.playing.values())
        for lease in leases:
            self._over(lease)
        del self._groups[group.id]
        return [self._cancel(lease, reason) for lease in leases]

    def _close(self, group: Group, reason: str) -> list[Command]:
        """Every member has ended for good, or enough have: the group is ready, or dropped and thereby replaced."""
        commands = self._abandon(group, reason)
        members = [group.done[member] for member in sorted(group.done)]
        names = tuple(name for name, _ in members)
        short = len(members) < self._config.group_size
        if len(members) < self._config.min_group_size or (short and self._config.on_failure == "drop"):
            self._counts["failed"] += 1
            self._forget(group.id)
            commands.append(Drop(group.id, group.index, "failed", names))
            commands += self._budget.group(completed=False)
        else:
            self._budget.group(completed=True)
            commands += self._make_ready(group, names, [outcome for _, outcome in members])
        while self._indices and f"{self._stream}-{self._indices[0]:06d}" not in self._groups:
            heapq.heappop(self._indices)
        if self._resampling.owed:
            first_open = self._indices[0] if self._indices else self._places.first_new
            commands += self._resample(first_open)
        return commands

    def _make_ready(self, group: Group, names: tuple[str, ...], outcomes: Sequence[Outcome]) -> list[Command]:
        rewards = [outcome.reward for outcome in outcomes]
        oldest = [self._version if o.oldest_version is None else o.oldest_version for o in outcomes]
        newest = [old if o.newest_version is None else o.newest_version for o, old in zip(outcomes, oldest, strict=True)]
        tokens = sum(outcome.tokens for outcome in outcomes)
        ready = ReadyGroup(group.id, group.index, names, min(oldest), max(newest), tokens)
        self._ready[group.index] = ready
        self._ready_tokens += tokens
        self._resampling.ready(group.index, constant=all(reward == rewards[0] for reward in rewards))
        return [self._let_go(group.index, "stale")] if self._is_stale(ready) else []

    def _is_stale(self, ready: ReadyGroup) -> bool:
        """Whether nothing of a group may be trained on; or something may not, where that is enough to drop it."""
        version = ready.newest_version if self._config.stale == "mask" else ready.oldest_version
        return version < self._version - self._config.max_staleness

    def _put_off_the_rest(self) -> list[Command]:
        """What the update that was taken does not need is played anew later: under these weights it would be off-policy."""
        commands: list[Command] = []
        slow, ended = sorted(self._groups.values(), key=lambda group: group.index), sorted(self._ready)
        for group in slow:
            commands += self._abandon(group, "its round is over")
            commands.append(PutOff(group.id, group.index, tuple(name for name, _ in group.done.values())))
        for index in ended:
            ready = self._unready(index)
            self._resampling.gone(index)
            commands.append(PutOff(ready.id, index, ready.trajectories))
        self._counts["put_off"] += len(slow) + len(ended)
        self._places.give_back([group.index for group in slow], ended)
        return commands

    def _resample(self, before: float) -> list[Command]:
        return [self._let_go(index, "constant") for index in self._resampling.choose(before)]

    def _let_go(self, index: int, reason: str) -> Command:
        ready = self._unready(index)
        self._resampling.gone(index)
        self._forget(ready.id)
        self._counts[reason] += 1
        return Drop(ready.id, ready.index, reason, ready.trajectories)

    def _unready(self, index: int) -> ReadyGroup:
        ready = self._ready.pop(index)
        self._ready_tokens -= ready.tokens
        return ready

    def _forget(self, group_id: str) -> None:
        """The group is resolved: its ids are not used again."""
        for member in range(self._config.group_size + self._config.extra_members):
            self._attempts.pop((group_id, member), None)

    def _in_flight(self, lease: Lease) -> bool:
        return lease.id in self._leases

    def _in_play(self, group: Group) -> bool:
        return self._groups.get(group.id) is group

    def _group_limit(self, group: Group) -> float:
        return inf if group.started_s is None else group.started_s + self._config.group_deadline_s

    def _hedge_at(self, lease: Lease) -> float:
        factor, usual = self._config.hedge_after, self._usual.seconds
        return inf if factor is None or usual is None else lease.started_s + factor * usual
