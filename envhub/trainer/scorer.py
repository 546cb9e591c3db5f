"""Scores tokens under the model being trained: logits exist only for the scored tokens."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from envhub.algo.divergence import gathered_logprobs_and_entropy
from envhub.trainer.packing import ATTENTION, Pack

CHUNK_ROWS = 4096


class TokenScorer(torch.nn.Module):
    """The module that DeepSpeed wraps: a pack in, log-probabilities and entropies of its scored tokens out."""

    def __init__(self, model: PreTrainedModel, *, temperature: float, ban_ids: tuple[int, ...]) -> None:
        """Score as the sampler draws: at its temperature, without its banned ids."""
        super().__init__()
        model.set_attn_implementation(ATTENTION)
        self.model = model
        self._temperature, self._ban_ids = temperature, ban_ids

    def forward(self, pack: Pack) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy in nats of each scored token, float [n] each."""
        hidden = self.model.base_model(
            input_ids=pack.input_ids, position_ids=pack.position_ids, use_cache=False, buckets=pack.buckets
        ).last_hidden_state[0]
        head = self.model.get_output_embeddings()  # type: ignore[no-untyped-call]
        return gathered_logprobs_and_entropy(
            hidden[pack.before],
            head.weight,
            pack.targets,
            temperature=self._temperature,
            ban_ids=self._ban_ids,
            chunk=CHUNK_ROWS,
            bias=head.bias,
        )
