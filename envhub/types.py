"""What an episode leaves behind: frozen, token-exact records, one type from rollout to loss.

Token ids are kept as they were sampled and are never made again from text. A trajectory is a list of turns over one or
more segments; a new segment starts only where the context was rewritten (a summary, a window).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

NO_PARTS: Mapping[str, float] = MappingProxyType({})


class StopReason(StrEnum):
    """How an episode ended; the three are never the same thing."""

    TERMINATED = "terminated"  # the task itself ended: solved, lost, answered
    TRUNCATED = "truncated"  # a limit cut it off: turns, tokens, context, time
    FAILED = "failed"  # the machinery broke; there is no reward, not even 0


class FinishReason(StrEnum):
    """How one reply ended."""

    STOP = "stop"  # the policy wrote a stop token, or a text policy gave its answer
    LENGTH = "length"  # the reply reached its token limit
    CONTEXT = "context"  # the model's context is full; no room for a reply
    ABORTED = "aborted"  # cancelled or past its deadline


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Tokens that stood in one context, in order. All arrays have length T.

    Attributes:
        token_ids: int32; observations and replies interleaved, exactly as the engine saw and sampled them.
        mask: bool; True on tokens that the policy sampled, hence trains on.
        logprobs: float32; log-probability in nats at the sampling temperature when sampled; 0 where `mask` is False.
        versions: int32; the weights' version that sampled the token; -1 where `mask` is False.
    """

    token_ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    versions: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class Turn:
    """One observation, one reply, one reward.

    Attributes:
        segment: index of the segment that holds this turn; -1 for policies without tokens.
        observation: token span [start, end) of the observation within the segment.
        reply: token span [start, end) of the sampled reply within the segment.
        reward: what `Env.step` gave for this reply.
        finish: how the reply ended.
        anchor: the environment's name of the state the reply was made in, if it gives one.
        reward_parts: the reward's named parts, if the environment gives them.
        texts: (observation, reply) for policies without tokens; None where the tokens tell.
    """

    segment: int
    observation: tuple[int, int]
    reply: tuple[int, int]
    reward: float
    finish: FinishReason = FinishReason.STOP
    anchor: str | None = None
    reward_parts: Mapping[str, float] = field(default_factory=lambda: NO_PARTS)
    texts: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An episode's frozen record.

    Attributes:
        id: unique within a run: "<group>/<member>.<attempt>".
        group: the group's id, "<stream>-<index>".
        member: which of the group's episodes this is, from 0.
        attempt: how often this member was started before, from 0.
        task: content hash of the task.
        seed: seed given to the environment and, with the turn, to the sampler.
        success: whether the environment says the task was solved; None where it does not say.
        failure: what broke, for failed episodes; None otherwise.
        seconds: wall time from reset to end; `policy_s` and `env_s` are the shares of the two.
        final_observation: what the environment showed after the last reply; for people and replays only.
    """

    id: str
    group: str
    member: int
    attempt: int
    env_id: str
    env_version: str
    task: str
    seed: int
    stop: StopReason
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...] = ()
    success: bool | None = None
    failure: str | None = None
    seconds: float = 0.0
    policy_s: float = 0.0
    env_s: float = 0.0
    final_observation: str = ""

    @property
    def terminated(self) -> bool:
        return self.stop is StopReason.TERMINATED

    @property
    def truncated(self) -> bool:
        return self.stop is StopReason.TRUNCATED

    @property
    def failed(self) -> bool:
        return self.stop is StopReason.FAILED

    @property
    def reward(self) -> float | None:
        """Sum of the turns' rewards; None for a failed episode, which has no reward."""
        return None if self.failed else float(sum(turn.reward for turn in self.turns))

    @property
    def num_action_tokens(self) -> int:
        return sum(int(segment.mask.sum()) for segment in self.segments)

    @property
    def oldest_version(self) -> int | None:
        """The lowest weights' version that sampled any token; None without sampled tokens."""
        lows = [int(s.versions[s.mask].min()) for s in self.segments if s.mask.any()]
        return min(lows, default=None)

    @property
    def newest_version(self) -> int | None:
        """The highest weights' version that sampled any token; None without sampled tokens."""
        highs = [int(s.versions[s.mask].max()) for s in self.segments if s.mask.any()]
        return max(highs, default=None)


@dataclass(frozen=True, slots=True)
class TrajectoryGroup:
    """All records of one task that are compared with one another. Failed episodes are left out by the scheduler.

    `index` is the group's place in the task stream.
    """

    id: str
    index: int
    task: str
    trajectories: tuple[Trajectory, ...]


@dataclass(frozen=True, slots=True)
class EvalSummary:
    """Means over the episodes that did not fail, with 95 % intervals.

    Success has Wilson's interval (1927), reward the normal one of the mean. All numbers are NaN where nothing was played.
    """

    episodes: int
    failed: int
    success_rate: float
    success_low: float
    success_high: float
    reward_mean: float
    reward_low: float
    reward_high: float
    turns_mean: float
    tokens_mean: float
    seconds: float
