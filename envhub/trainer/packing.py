"""Packing without padding: sequences of a micro-batch lie end to end, and attend only to themselves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from envhub.trainer.batch import TrainSequence

ATTENTION = "envhub_packed"
BUCKET_ROWS = 64  # sequences of similar length that share one padded attention call


@dataclass(frozen=True, slots=True, eq=False)
class Pack:
    """One micro-batch of N packed tokens, of which n are scored.

    `input_ids` and `position_ids` int64 [1, N]; `before` int64 [n] is the place whose output predicts each scored token;
    `targets` int64 [n]; `old_logprobs`, `advantages`, `weights` [n] in the model's own float type. `buckets` are int64
    [B, L] places of sequences that attend side by side, padded by -1 on the right.
    """

    input_ids: Tensor
    position_ids: Tensor
    before: Tensor
    targets: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    weights: Tensor
    buckets: tuple[Tensor, ...]


def pack(sequences: Sequence[TrainSequence], *, max_tokens: int, dtype: torch.dtype = torch.float32) -> tuple[Pack, ...]:
    """Split sequences into micro-batches of at most `max_tokens` (a longer sequence gets one of its own).

    Sequences are ordered by length, longest first: similar lengths attend together, and memory peaks at once.
    """
    packs: list[Pack] = []
    chunk: list[TrainSequence] = []
    tokens = 0
    for sequence in sorted(sequences, key=lambda s: len(s.token_ids), reverse=True):
        if chunk and tokens + len(sequence.token_ids) > max_tokens:
            packs.append(_pack(chunk, dtype))
            chunk, tokens = [], 0
        chunk.append(sequence)
        tokens += len(sequence.token_ids)
    if chunk:
        packs.append(_pack(chunk, dtype))
    return tuple(packs)


def _pack(chunk: Sequence[TrainSequence], dtype: torch.dtype) -> Pack:
    lengths = np.array([len(s.token_ids) for s in chunk])
    begins = np.cumsum(lengths) - lengths
    places = np.concatenate([s.places + begin for s, begin in zip(chunk, begins, strict=True)])
    ids = torch.from_numpy(np.concatenate([s.token_ids for s in chunk]))
    buckets = []
    for first in range(0, len(chunk), BUCKET_ROWS):
        rows = slice(first, first + BUCKET_ROWS)
        width = torch.arange(int(lengths[rows].max()))
        start, size = torch.from_numpy(begins[rows])[:, None], torch.from_numpy(lengths[rows])[:, None]
        buckets.append(torch.where(width < size, start + width, -1))
    column = [np.concatenate([getattr(s, name) for s in chunk]) for name in ("old_logprobs", "advantages", "weights")]
    old, advantages, weights = (torch.from_numpy(values).to(dtype) for values in column)
    return Pack(
        input_ids=ids[None],
        position_ids=torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))[None],
        before=torch.from_numpy(places - 1),
        targets=ids[torch.from_numpy(places)],
        old_logprobs=old,
        advantages=advantages,
        weights=weights,
        buckets=tuple(buckets),
    )


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    buckets: tuple[Tensor, ...],
    **_: object,
) -> tuple[Tensor, None]:
    """Causal attention within each sequence of a pack; the signature is transformers' attention interface.

    Padding stands only on the right of a bucket's rows, where no real query looks.

    Args:
        module: the attention layer; unused.
        query: [1, heads, N, width]; key and value: [1, kv_heads, N, width].
        attention_mask: unused: sequences are told apart by `buckets`.
        scaling: factor of the scores before softmax.
        dropout: probability of dropping a weight.
        buckets: as in `Pack`.

    Returns:
        Attended values [1, N, heads, width], and no weights.
    """
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    attended = torch.zeros_like(q)
    grouped = k.shape[1] != q.shape[1]
    for bucket in buckets:
        real = bucket >= 0
        rows = bucket.clamp(min=0)
        seen = scaled_dot_product_attention(
            q[rows].transpose(1, 2),
            k[rows].transpose(1, 2),
            v[rows].transpose(1, 2),
            is_causal=True,
            dropout_p=dropout,
            scale=scaling,
            enable_gqa=grouped,
        ).transpose(1, 2)
        attended = attended.index_put((bucket[real],), seen[real])
    return attended[None], None


AttentionInterface.register(ATTENTION, packed_attention)
