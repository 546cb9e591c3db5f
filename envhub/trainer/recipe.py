"""GRPO's loss for one pack: the clipped surrogate and the entropy bonus, as weighted sums."""

from dataclasses import dataclass

import torch
from torch import Tensor

from envhub.algo.losses import clip_fraction, clipped_policy_loss
from envhub.trainer.config import AlgorithmConfig
from envhub.trainer.packing import Pack


@dataclass(frozen=True, slots=True, eq=False)
class LossParts:
    """A pack's loss, and weighted sums over its tokens worth watching; sums of all packs are the batch's means.

    `kl` is the k1 estimate of KL(sampler, trainer) in nats; `gap` is the mean absolute difference of log-probabilities
    between sampling and training, `gap_max` its largest value.
    """

    loss: Tensor
    entropy: Tensor
    kl: Tensor
    clip_fraction: Tensor
    gap: Tensor
    gap_max: Tensor


def grpo_loss(logprobs: Tensor, entropy: Tensor, pack: Pack, config: AlgorithmConfig) -> LossParts:
    """GRPO (arXiv:2402.03300, eq. 3, without the KL term) on one pack.

    Args:
        logprobs: under the current weights, float [n]; carries the gradient.
        entropy: of each scored token's distribution in nats, float [n]; carries the gradient.
        pack: the constants of the same n tokens.
        config: clipping and bonus.

    Returns:
        The loss to minimise and the sums to watch, all scalars.
    """
    loss = clipped_policy_loss(
        logprobs,
        pack.old_logprobs,
        pack.advantages,
        pack.weights,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
    )
    mean_entropy = (pack.weights * entropy).sum()
    seen = logprobs.detach()
    gap = seen - pack.old_logprobs
    clipped = clip_fraction(
        seen, pack.old_logprobs, pack.advantages, pack.weights, clip_low=config.clip_low, clip_high=config.clip_high
    )
    return LossParts(
        loss=loss - config.entropy_bonus * mean_entropy,
        entropy=mean_entropy.detach(),
        kl=-(pack.weights * gap).sum(),
        clip_fraction=clipped,
        gap=(pack.weights * gap.abs()).sum(),
        gap_max=gap.abs().max(),
    )


def supervised_loss(logprobs: Tensor, entropy: Tensor, pack: Pack) -> LossParts:
    """Cross-entropy: the negative weighted log-likelihood, in nats."""
    zero = torch.zeros((), dtype=logprobs.dtype)
    return LossParts(-(pack.weights * logprobs).sum(), (pack.weights * entropy).sum().detach(), zero, zero, zero, zero)
