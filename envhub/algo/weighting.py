"""What the loss's mean runs over, decided once for the whole batch."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Aggregation = Literal["token_mean", "trajectory_mean", "trajectory_sum", "constant"]


def token_weights(lengths: Sequence[int], *, aggregation: Aggregation, constant: int | None = None) -> NDArray[np.float64]:
    """Weight of every action token of each trajectory, float64 [trajectories].

    Args:
        lengths: action tokens of each trajectory of the global batch.
        aggregation: "token_mean" 1/N (DAPO, arXiv:2503.14476); "trajectory_mean" 1/(B len_i) (GRPO); "trajectory_sum" 1/B;
            "constant" 1/(B constant) (Dr.GRPO, arXiv:2503.20783).
        constant: the length that "constant" divides by.

    Returns:
        Weights; 0 for trajectories without action tokens.
    """
    sizes = np.asarray(lengths, dtype=np.float64)
    written = sizes > 0
    count = max(1, len(sizes))
    match aggregation:
        case "token_mean":
            weights = np.full(len(sizes), 1.0 / max(1.0, sizes.sum()))
        case "trajectory_mean":
            weights = 1.0 / (count * np.where(written, sizes, 1.0))
        case "trajectory_sum":
            weights = np.full(len(sizes), 1.0 / count)
        case "constant":
            if constant is None:
                raise ValueError("aggregation 'constant' needs the constant")
            weights = np.full(len(sizes), 1.0 / (count * constant))
    return np.where(written, weights, 0.0)
