"""Groups in, training sequences out: every per-token constant is computed here, once, on the host, in float64."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envhub.algo.advantages import group_advantages, is_constant, max_variance_subset
from envhub.algo.weighting import token_weights
from envhub.trainer.config import AlgorithmConfig
from envhub.types import Trajectory, TrajectoryGroup

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TrainSequence:
    """One context to score.

    Attributes:
        token_ids: int64 [L].
        places: int64 [n]; where in `token_ids` the scored tokens stand, each at least 1.
        old_logprobs: float64 [n]; under the weights that sampled them.
        advantages: float64 [n].
        weights: float64 [n]; each token's share of the objective over the whole batch.
    """

    token_ids: NDArray[np.int64]
    places: NDArray[np.int64]
    old_logprobs: Floats
    advantages: Floats
    weights: Floats


@dataclass(frozen=True, slots=True)
class Batch:
    """What one update trains on, and what was left out of it."""

    sequences: tuple[TrainSequence, ...]
    trajectories: int
    constant_groups: int
    stale_tokens: int = 0


def collate(groups: Sequence[TrajectoryGroup], config: AlgorithmConfig, *, seed: int, floor: int = 0) -> Batch:
    """Turn groups into weighted sequences.

    Advantages compare each trajectory with the kept ones of its own group. A constant group has advantage exactly 0 and
    is left out, from the weights' normaliser too. So are tokens of a version below `floor`: their episode counts in its group,
    and its newer tokens are trained on. `seed` breaks ties between equal rewards when `keep_per_group` is set.
    """
    chance = np.random.default_rng(seed)
    chosen: list[tuple[Trajectory, float]] = []
    constant = 0
    for group in groups:
        kept, advantages = _advantages(group, config, chance)
        if advantages is None:
            constant += 1
            continue
        chosen += [(t, float(a)) for t, a in zip(kept, advantages, strict=True) if t.num_action_tokens]
    stale = sum(t.num_action_tokens - _fresh_tokens(t, floor) for t, _ in chosen)
    chosen = [(t, a) for t, a in chosen if _fresh_tokens(t, floor)]
    shares = token_weights(
        [_fresh_tokens(t, floor) for t, _ in chosen],
        aggregation=config.aggregation,
        constant=config.aggregation_constant,
    )
    sequences = [
        sequence
        for (trajectory, advantage), share in zip(chosen, shares, strict=True)
        for sequence in _sequences(trajectory, advantage, float(share), config.blame_discount, floor)
    ]
    return Batch(tuple(sequences), len(chosen), constant, stale)


def scored_only(trajectories: Sequence[Trajectory]) -> tuple[TrainSequence, ...]:
    """The sequences of some trajectories with no advantage and no weight: for comparing log-probabilities."""
    return tuple(sequence for trajectory in trajectories for sequence in _sequences(trajectory, 0.0, 0.0, 1.0, 0))


def _fresh_tokens(trajectory: Trajectory, floor: int) -> int:
    return sum(int((segment.mask & (segment.versions >= floor)).sum()) for segment in trajectory.segments)


def _advantages(
    group: TrajectoryGroup, config: AlgorithmConfig, chance: np.random.Generator
) -> tuple[Sequence[Trajectory], Floats | None]:
    rewards = np.array([t.reward for t in group.trajectories], dtype=np.float64)  # a failed one would be NaN, and refused
    kept: Sequence[Trajectory] = group.trajectories
    if config.keep_per_group is not None:
        places = max_variance_subset(rewards, config.keep_per_group, chance)
        kept, rewards = [group.trajectories[i] for i in places], rewards[places]
    if is_constant(rewards):
        return kept, None
    return kept, group_advantages(rewards, scale=config.scale, ddof=config.ddof, eps=config.eps)


def _sequences(trajectory: Trajectory, advantage: float, share: float, blame: float, floor: int) -> list[TrainSequence]:
    fade = blame if advantage < 0 else 1.0
    by_turn = advantage * fade ** np.arange(len(trajectory.turns) - 1, -1, -1, dtype=np.float64)
    made = []
    for number, segment in enumerate(trajectory.segments):
        places = np.flatnonzero(segment.mask & (segment.versions >= floor))
        if not len(places):
            continue
        advantages = np.zeros(len(segment))
        for turn, value in zip(trajectory.turns, by_turn, strict=True):
            if turn.segment == number:
                advantages[slice(*turn.reply)] = value
        made.append(
            TrainSequence(
                segment.token_ids.astype(np.int64),
                places,
                segment.logprobs[places].astype(np.float64),
                advantages[places],
                np.full(len(places), share),
            )
        )
    return made
