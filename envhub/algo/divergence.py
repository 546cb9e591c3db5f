"""Log-probabilities, entropies and divergences of token distributions, in nats."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def entropy_from_logprobs(logprobs: Tensor) -> Tensor:
    """Shannon entropy of each row of log-probabilities [N, V] -> [N]; impossible tokens (-inf) add nothing."""
    return -(logprobs.exp() * torch.where(logprobs == -torch.inf, 0.0, logprobs)).sum(-1)


def gathered_logprobs_and_entropy(
    hidden: Tensor,
    head_weight: Tensor,
    targets: Tensor,
    *,
    temperature: float,
    ban_ids: tuple[int, ...] = (),
    chunk: int = 1024,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Score target tokens from hidden states without ever holding all logits.

    Args:
        hidden: states that predict each target, float [N, H].
        head_weight: output embedding, float [V, H].
        targets: token ids, int64 [N].
        temperature: logits are divided by it before the softmax.
        ban_ids: ids of probability 0.
        chunk: rows whose logits exist at once; they are computed again for the gradient.
        bias: output bias, float [V].

    Returns:
        Log-probability of each target and entropy of each row, float32 (float64 for float64 input) [N] each.
    """

    def score(rows: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.nn.functional.linear(rows, head_weight, bias)
        logits = (logits if logits.dtype is torch.float64 else logits.float()) / temperature
        if ban_ids:
            banned = torch.zeros(logits.shape[-1], dtype=torch.bool, device=logits.device)
            banned[list(ban_ids)] = True
            logits = logits.masked_fill(banned, -torch.inf)
        logprobs = logits.log_softmax(-1)
        return logprobs.gather(1, wanted[:, None])[:, 0], entropy_from_logprobs(logprobs)

    if len(targets) <= chunk:
        return score(hidden, targets)
    parts = [
        checkpoint(score, rows, wanted, use_reentrant=False)
        for rows, wanted in zip(torch.split(hidden, chunk), torch.split(targets, chunk), strict=True)
    ]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """log(p/q) on samples from p: unbiased for KL(p, q); as a loss its expected gradient is 0, so use it in the reward."""
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """log(p/q)^2 / 2: a biased value, but as a loss it has the true gradient of KL(p, q)."""
    return (logprobs - ref_logprobs) ** 2 / 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """q/p - 1 - log(q/p): an unbiased value of low variance; as a loss its gradient is that of KL(q, p), mode covering."""
    log_ratio = ref_logprobs - logprobs
    return log_ratio.exp() - 1 - log_ratio
