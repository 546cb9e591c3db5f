"""Policy losses as weighted sums over tokens; what the mean runs over lives in the weights."""

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # beyond it the ratio's exponential means nothing


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Tensor:
    """PPO's clipped surrogate (arXiv:1707.06347, eq. 7), with asymmetric (arXiv:2503.14476) and dual clip (arXiv:1912.09729).

    Args:
        logprobs: log-probability of each token in nats, float [T]; carries the gradient.
        old_logprobs: the same under the weights that sampled it, float [T].
        advantages: how far the trajectory beat its group, float [T]; a constant.
        weights: each token's share of the objective over the whole batch, float [T]; 0 where nothing was written.
        clip_low: the ratio is clipped at 1 - clip_low.
        clip_high: the ratio is clipped at 1 + clip_high.
        dual_clip: where the advantage is negative, the loss is at most -advantage * dual_clip.

    Returns:
        Scalar loss to minimise; a sum, so parts of a batch may be added in any split.
    """
    ratio, kept = _ratio(logprobs, old_logprobs, weights)
    gain_of = torch.where(kept, advantages, 0.0)
    gain = torch.minimum(ratio * gain_of, ratio.clamp(1 - clip_low, 1 + clip_high) * gain_of)
    if dual_clip is not None:
        gain = torch.where(gain_of < 0, torch.maximum(gain, gain_of * dual_clip), gain)
    return -(torch.where(kept, weights, 0.0) * gain).sum()


def clip_fraction(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, weights: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """Weighted share of tokens whose gradient the clip removed; same arguments as `clipped_policy_loss`."""
    ratio, kept = _ratio(logprobs, old_logprobs, weights)
    clipped = torch.where(advantages > 0, ratio > 1 + clip_high, ratio < 1 - clip_low) & (advantages != 0) & kept
    return (torch.where(kept, weights, 0.0) * clipped).sum()


def _ratio(logprobs: Tensor, old_logprobs: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    kept = weights != 0  # elsewhere padding may hold inf or NaN
    log_ratio = torch.where(kept, logprobs, 0.0) - torch.where(kept, old_logprobs, 0.0)
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp(), kept
