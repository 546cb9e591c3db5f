"""Binds the scheduler to asyncio: starts episodes, writes them down, and hands over whole groups."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from envhub.envs.tasks import Task
from envhub.errors import RunFailed
from envhub.rollout.bias import BiasReport, Facts, Ledger
from envhub.rollout.episode import Place, Player
from envhub.rollout.leases import TWIN
from envhub.rollout.scheduler import Cancel, Command, Drop, Lease, Outcome, PutOff, ReadyGroup, Scheduler, Start, Stop
from envhub.types import Trajectory, TrajectoryGroup


class Record(Protocol):
    """Where finished episodes are written before anybody acts on them."""

    def append(self, trajectories: Sequence[Trajectory]) -> None: ...

    def supersede(self, ids: Sequence[str], reason: str) -> None: ...


@dataclass(slots=True)
class Playing:
    """An episode in flight, and what it has been waiting for since when, in monotonic seconds."""

    lease: Lease
    clock: Callable[[], float]
    phase: str = "start"
    since_s: float = 0.0
    task: asyncio.Task[None] | None = None

    def tell(self, phase: str) -> None:
        """It waits for something else from now on."""
        self.phase, self.since_s = phase, self.clock()

    def cancel(self) -> None:
        """Abandon it."""
        if self.task is not None:
            self.task.cancel()


class RolloutDriver:
    """Plays what the scheduler asks for. Use it inside `async with driver.running():`."""

    def __init__(
        self,
        scheduler: Scheduler,
        player: Player,
        task_at: Callable[[int], Task],
        record: Record,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Join the parts.

        Args:
            scheduler: decides; it is driven by this object only.
            player: plays one episode.
            task_at: the task of a group's index.
            record: the journal.
            clock: monotonic seconds.
        """
        self.scheduler = scheduler
        self._player, self._task_at, self._record, self._clock = player, task_at, record, clock
        self._ledger = Ledger(window=512)  # it is looked at every update
        self._episodes: dict[str, Playing] = {}  # in order of their start
        self._kept: dict[str, Trajectory] = {}
        self._constant: list[tuple[int, tuple[Trajectory, ...]]] = []
        self._ended: list[tuple[Lease, Trajectory]] = []
        self._too_late: set[str] = set()  # ended well, but taken away before it was settled
        self._news = asyncio.Event()
        self._changed = asyncio.Event()
        self._stopped: str | None = None
        self._group: asyncio.TaskGroup | None = None

    @asynccontextmanager
    async def running(self, *beside: Coroutine[object, object, None]) -> AsyncIterator["RolloutDriver"]:
        """Play until the block ends; episodes still going then are cancelled and closed, and so is what runs `beside` them."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            helpers = [group.create_task(work) for work in (self._settle_forever(), self._tick_forever(), *beside)]
            self._obey(self.scheduler.begin(self._clock()))
            try:
                yield self
            finally:
                for helper in helpers:
                    helper.cancel()
                for playing in self._episodes.values():
                    playing.cancel()

    async def next_groups(self) -> tuple[TrajectoryGroup, ...]:
        """The groups of the next update, oldest first.

        Raises:
            RunFailed: too large a share of the episodes failed.
        """
        while True:
            taken = self.scheduler.take(self._clock())
            self._changed.clear()
            self._obey(taken.commands)
            if taken.groups:
                return tuple(self._hand_over(ready) for ready in taken.groups)
            if self._stopped is not None:
                raise RunFailed(self._stopped, mend="read the causes in the journal, or raise rollout.max_failed_share")
            await self._changed.wait()

    def taken_constant(self) -> list[tuple[int, tuple[Trajectory, ...]]]:
        """The groups dropped since the last call because all their rewards were equal: their index, and their episodes."""
        taken, self._constant = self._constant, []
        return taken

    def published(self, version: int) -> None:
        """Tell the scheduler that the sampler now holds `version`."""
        self._obey(self.scheduler.published(version, self._clock()))

    def resize(self, max_in_flight: int) -> None:
        """Play at most so many episodes at once from now on."""
        self._obey(self.scheduler.resize(max_in_flight, self._clock()))

    def bias(self) -> BiasReport:
        """What was issued lately against what was trained on."""
        first_new, outstanding = self.scheduler.frontier()
        return self._ledger.report(min(outstanding, default=first_new))

    def oldest(self, count: int) -> tuple[Playing, ...]:
        """The episodes that have been in flight longest."""
        return tuple(islice(self._episodes.values(), count))

    def _hand_over(self, ready: ReadyGroup) -> TrajectoryGroup:
        trajectories = tuple(self._kept.pop(name) for name in ready.trajectories)
        self._ledger.resolved(ready.index, {t.member for t in trajectories})
        return TrajectoryGroup(ready.id, ready.index, trajectories[0].task, trajectories)

    def _obey(self, commands: Sequence[Command]) -> None:
        assert self._group is not None
        for command in commands:
            match command:
                case Start(lease):
                    playing = self._episodes[lease.id] = Playing(lease, self._clock, since_s=lease.started_s)
                    playing.task = self._group.create_task(self._episode(playing), name=lease.id)
                case Cancel(lease_id, why):
                    if lease_id in self._episodes:
                        self._abandon(self._episodes.pop(lease_id), why)
                    else:
                        self._too_late.add(lease_id)
                case Drop(_, index, reason, ids):
                    self._ledger.resolved(index, (), reason)
                    held = self._let_go(ids, reason)
                    if held and reason == "constant":
                        self._constant.append((index, held))
                case PutOff(_, index, ids):
                    self._ledger.put_off(index)
                    self._let_go(ids, "put off")
                case Stop(reason):
                    self._stopped = reason
                    self._changed.set()

    def _abandon(self, playing: Playing, why: str) -> None:
        playing.cancel()
        lease = playing.lease
        if why != TWIN:
            self._ledger.ended(lease.index, lease.member, Facts(None, None, self._clock() - lease.started_s, None))

    def _let_go(self, ids: Sequence[str], reason: str) -> tuple[Trajectory, ...]:
        held = {name: self._kept.pop(name) for name in ids if name in self._kept}
        if held:
            self._record.supersede(list(held), reason)
        return tuple(held.values())

    async def _episode(self, playing: Playing) -> None:
        lease = playing.lease
        place = Place(lease.id, lease.group, lease.member, lease.attempt, lease.seed, playing.tell)
        trajectory = await self._player(self._task_at(lease.index), place)
        self._episodes.pop(lease.id, None)
        self._ended.append((lease, trajectory))
        self._news.set()

    async def _settle_forever(self) -> None:
        """Write down whatever ended since the last look, in one transaction, and only then tell the scheduler.

        The write stands on the event loop on purpose: it is one short commit, and the order of everything after it then
        depends on nothing but the episodes.
        """
        while True:
            await self._news.wait()
            self._news.clear()
            ended, self._ended = self._ended, []
            if not ended:
                continue
            self._record.append([trajectory for _, trajectory in ended])
            for lease, trajectory in ended:
                self._kept[trajectory.id] = trajectory
                if lease.id not in self._too_late:
                    self._ledger.ended(lease.index, lease.member, _facts(trajectory))
                outcome = Outcome(
                    reward=trajectory.reward,
                    oldest_version=trajectory.oldest_version,
                    tokens=trajectory.num_action_tokens,
                    turns=len(trajectory.turns),
                    cause=trajectory.failure,
                    newest_version=trajectory.newest_version,
                )
                if trajectory.failed or lease.id in self._too_late:
                    del self._kept[trajectory.id]
                    self._too_late.discard(lease.id)
                self._obey(self.scheduler.finished(lease.id, outcome, self._clock()))
            self._changed.set()

    async def _tick_forever(self) -> None:
        while True:
            due = self.scheduler.next_deadline()
            wait = 1.0 if due is None else min(1.0, max(0.01, due - self._clock()))
            await asyncio.sleep(wait)
            commands = self.scheduler.tick(self._clock())
            self._obey(commands)
            self._changed.set()


def _facts(played: Trajectory) -> Facts:
    success = None if played.success is None else float(played.success)
    return Facts(float(len(played.turns)), float(played.num_action_tokens), played.seconds, success)
