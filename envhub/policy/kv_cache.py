"""Key/value rows for continuous batching: packed new tokens in, attention over each row's own past.

A forward pass takes the new tokens of many episodes in one packed line, without padding. Only attention looks at rows:
there the queries are gathered into buckets of similar length, and each row attends to its own cached keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig

ATTENTION = "envhub_cached"
BUCKET_ROWS = 64  # rows of similar length that share one padded attention call


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """Rows that attend together. `gather` int64 [B, n] places of queries in the packed line; `mask` bool [B, 1, n, kv]."""

    rows: Tensor
    gather: Tensor
    real: Tensor
    mask: Tensor
    kv_length: int


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One forward pass: where each of the N packed tokens is written, and which rows attend together."""

    cache: "KeyValueRows"
    token_rows: Tensor
    positions: Tensor
    buckets: tuple[Bucket, ...]
    last: Tensor

    @staticmethod
    def of(cache: "KeyValueRows", rows: Sequence[int], starts: Sequence[int], lengths: Sequence[int]) -> "Plan":
        """Plan a pass in which row `rows[i]` gets `lengths[i]` new tokens at positions from `starts[i]`."""
        counts = torch.tensor(lengths)
        begins = torch.cumsum(counts, 0) - counts
        first = torch.tensor(starts)
        token_rows = torch.repeat_interleave(torch.tensor(rows), counts)
        within = torch.arange(int(counts.sum())) - torch.repeat_interleave(begins, counts)
        positions = within + torch.repeat_interleave(first, counts)
        order = sorted(range(len(rows)), key=lambda i: (lengths[i], starts[i]))
        buckets: list[Bucket] = []
        chunk: list[int] = []
        for i in order:
            if chunk and (len(chunk) == BUCKET_ROWS or lengths[i] > 2 * lengths[chunk[0]]):
                buckets.append(_bucket(chunk, rows, begins, first, counts))
                chunk = []
            chunk.append(i)
        buckets.append(_bucket(chunk, rows, begins, first, counts))
        return Plan(cache, token_rows, positions, tuple(buckets), begins + counts - 1)


def _bucket(chunk: list[int], rows: Sequence[int], begins: Tensor, first: Tensor, counts: Tensor) -> Bucket:
    chosen = torch.tensor(chunk)
    width = torch.arange(int(counts[chosen].max()))
    real = width < counts[chosen, None]
    gather = torch.where(real, begins[chosen, None] + width, begins[chosen, None])
    limit = first[chosen, None] + torch.where(real, width, 0)  # a padded query sees what the first one sees
    kv_length = int((first[chosen] + counts[chosen]).max())
    mask = (torch.arange(kv_length) <= limit[..., None])[:, None]
    return Bucket(torch.tensor([rows[i] for i in chunk]), gather, real, mask, kv_length)


class KeyValueRows:
    """Keys and values of `num_rows` contexts of up to `length` tokens, for every layer of a model."""

    def __init__(self, config: PretrainedConfig, *, num_rows: int, length: int, dtype: torch.dtype) -> None:
        heads = config.num_key_value_heads or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (num_rows, heads, length, width)
        self.keys = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_hidden_layers)]
        self.values = [torch.zeros(shape, dtype=dtype) for _ in range(config.num_hidden_layers)]
        self.num_rows, self.length = num_rows, length


def cached_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    plan: Plan,
    **_: object,
) -> tuple[Tensor, None]:
    """Write the new keys and values, then attend row by row; the signature is transformers' attention interface.

    Args:
        module: the attention layer; its `layer_idx` picks the cache layer.
        query: [1, heads, N, width]; key and value: [1, kv_heads, N, width]; N packed tokens.
        attention_mask: unused: the plan knows what each token may see.
        scaling: factor of the scores before softmax.
        dropout: unused: engines only sample.
        plan: this pass.

    Returns:
        Attended values [1, N, heads, width], and no weights.
    """
    layer: int = module.layer_idx  # type: ignore[assignment]
    keys, values = plan.cache.keys[layer], plan.cache.values[layer]
    keys[plan.token_rows, :, plan.positions] = key[0].transpose(0, 1)
    values[plan.token_rows, :, plan.positions] = value[0].transpose(0, 1)
    packed = query[0].transpose(0, 1)
    attended = torch.empty_like(packed)
    grouped = keys.shape[1] != packed.shape[1]
    for bucket in plan.buckets:
        seen = scaled_dot_product_attention(
            packed[bucket.gather].transpose(1, 2),
            keys[bucket.rows, :, : bucket.kv_length],
            values[bucket.rows, :, : bucket.kv_length],
            attn_mask=bucket.mask,
            scale=scaling,
            enable_gqa=grouped,
        ).transpose(1, 2)
        attended[bucket.gather[bucket.real]] = seen[bucket.real]
    return attended[None], None


AttentionInterface.register(ATTENTION, cached_attention)
