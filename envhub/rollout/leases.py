"""The words of the scheduler: what it lends out, what it is told, and what it asks for. All frozen."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

TWIN = "its twin ended first"  # why a lease is cancelled whose member has ended well


@dataclass(frozen=True, slots=True)
class Lease:
    """The right and duty to play one episode until a deadline.

    `id` is "<group>/<member>.<attempt>"; `index` is the group's place in the task stream. The seed depends on the run's
    seed, index and member only, so that a retry plays the same episode. Times are monotonic seconds.
    """

    id: str
    group: str
    index: int
    member: int
    attempt: int
    seed: int
    started_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a lease ended; `reward` None means that it failed, by `cause`.

    `oldest_version` and `newest_version` are of the weights that sampled its tokens; None without tokens. A newest version that
    is not told is the oldest one.
    """

    reward: float | None
    oldest_version: int | None
    tokens: int
    turns: int
    cause: str | None = None
    newest_version: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Play this episode."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Cancel:
    """Abandon this episode; nothing more is expected of it."""

    lease_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """This group is not trained on; its finished trajectories are let go."""

    group: str
    index: int
    reason: str
    trajectories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PutOff:
    """This group is played anew in a later round; its finished trajectories are let go."""

    group: str
    index: int
    trajectories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The run cannot go on."""

    reason: str


Command = Start | Cancel | Drop | PutOff | Stop


@dataclass(frozen=True, slots=True)
class ReadyGroup:
    """A whole group: ids of the trajectories to train on, in order of member, and the versions and number of their tokens."""

    id: str
    index: int
    trajectories: tuple[str, ...]
    oldest_version: int
    newest_version: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """The groups of one update, and what is to be done besides."""

    groups: tuple[ReadyGroup, ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Counts since the start, and what is going on now.

    `usual_s` is the 95th percentile of the last durations in seconds; `causes` counts failures by what was said of them.
    """

    started: int
    finished: int
    failed_episodes: int
    in_flight: int
    waiting: int
    ready: int
    dropped_stale: int
    dropped_constant: int
    dropped_failed: int
    constant_kept: int
    put_off: int
    hedged: int
    causes: Mapping[str, int]
    usual_s: float | None


def episode_seed(seed: int, index: int, member: int) -> int:
    """31 bits of a hash of run seed, task index and member."""
    digest = hashlib.blake2b(f"{seed}/{index}/{member}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "little") >> 1
