"""Drawing tokens: deterministic per request, whatever else stands in the batch."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envhub.policy.core import Sampling

_MASK = np.uint64(0xFFFFFFFFFFFFFFFF)


def uniform(seeds: Sequence[int], places: Sequence[int]) -> NDArray[np.float64]:
    """Counter-based uniforms in [0, 1): one per (seed, place), by the SplitMix64 finaliser (Steele et al., 2014)."""
    with np.errstate(over="ignore"):
        seed = np.array([s & int(_MASK) for s in seeds], dtype=np.uint64)
        place = np.array(places, dtype=np.uint64)
        z = _mix(seed + np.uint64(0x9E3779B97F4A7C15)) + (place + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        return (_mix(z) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw(logits: Tensor, sampling: Sampling, chance: NDArray[np.float64]) -> tuple[Tensor, Tensor]:
    """Draw one token per row by inverting the cumulative distribution.

    Args:
        logits: float [R, V].
        sampling: temperature and banned ids; at temperature 0 the likeliest token is taken and scored at temperature 1.
        chance: uniforms in [0, 1), float64 [R].

    Returns:
        Token ids int64 [R], and their float32 log-probabilities in nats under the distribution drawn from, [R].
    """
    scores = logits.float() / (sampling.temperature or 1.0)
    if sampling.ban_ids:
        scores[:, list(sampling.ban_ids)] = -torch.inf
    logprobs = scores.log_softmax(-1)
    if sampling.temperature == 0:
        chosen = logprobs.argmax(-1)
    else:
        below = logprobs.double().exp().cumsum(-1)
        chosen = torch.searchsorted(below, torch.from_numpy(chance)[:, None] * below[:, -1:], right=True)[:, 0]
        chosen = chosen.clamp(max=logits.shape[-1] - 1)
    return chosen, logprobs.gather(1, chosen[:, None])[:, 0]
