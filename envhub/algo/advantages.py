"""From rewards to advantages: how far each trajectory of a group beat the others. Float64, on the host."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Scale = Literal["std", "none", "loo", "mean"]


def is_constant(rewards: Floats) -> bool:
    """Whether all rewards are equal up to rounding, so that comparing them says nothing."""
    return bool(np.ptp(rewards) <= 1e-8 + 1e-6 * np.abs(rewards).max())


def group_advantages(rewards: Floats, *, scale: Scale, ddof: int = 1, eps: float = 1e-6) -> Floats:
    """Advantages within one group, float64 [n]; exactly 0 for constant groups and groups of one.

    Args:
        rewards: one total reward per trajectory, float64 [n], all finite.
        scale: "std" divides by the standard deviation (GRPO, arXiv:2402.03300, section 4.1.1), "none" does not
            (Dr.GRPO, arXiv:2503.20783), "loo" compares with the mean of the others (RLOO, arXiv:2402.14740), "mean"
            divides by the mean (MaxRL; 0 where the mean is 0).
        ddof: 1 for the sample's deviation, 0 for the population's.
        eps: added to the deviation.

    Raises:
        ValueError: no rewards, or one that is not finite.
    """
    rewards = np.asarray(rewards, dtype=np.float64)
    if not len(rewards) or not np.isfinite(rewards).all():
        raise ValueError(f"rewards must be finite and at least one, got {rewards}")
    if len(rewards) == 1 or is_constant(rewards):
        return np.zeros(len(rewards))
    mean = float(rewards.mean())
    centred: Floats = rewards - mean
    match scale:
        case "std":
            return np.asarray(centred / (float(rewards.std(ddof=ddof)) + eps))
        case "none":
            return centred
        case "loo":
            return np.asarray(centred * (len(rewards) / (len(rewards) - 1)))
        case "mean":
            return np.asarray(centred / mean) if mean else np.zeros(len(rewards))


def max_variance_subset(rewards: Floats, keep: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Places of the `keep` trajectories with the most varied rewards (arXiv:2504.13818): lowest and highest halves.

    Ties are broken at random. All places if `keep` covers them; sorted.
    """
    if keep >= len(rewards):
        return np.arange(len(rewards))
    order = np.lexsort((rng.random(len(rewards)), rewards))
    low = keep // 2
    return np.sort(np.concatenate([order[:low], order[len(order) - (keep - low) :]]))
