"""Before the first update: trainer and sampler must agree on real episodes at equal weights, or nothing is trained."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from envhub.errors import PreflightError
from envhub.trainer.batch import TrainSequence
from envhub.trainer.engine import TrainEngine
from envhub.trainer.packing import pack

LIMITS = {torch.float32: (1e-4, 1e-2), torch.bfloat16: (2e-2, 1.0)}  # mean and largest gap in nats


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the trainer's log-probabilities are from the sampler's, in nats."""

    tokens: int
    gap_mean: float
    gap_max: float
    packed_gap_max: float


def preflight(engine: TrainEngine, sequences: Sequence[TrainSequence], *, dtype: torch.dtype) -> Agreement:
    """Score real sampled sequences at equal weights, packed and one by one, and compare.

    Raises:
        PreflightError: the gap to the sampler, or between packed and single, is more than rounding explains.
    """
    ordered = sorted(sequences, key=lambda s: len(s.token_ids), reverse=True)
    packed = pack(ordered, max_tokens=sum(len(s.token_ids) for s in ordered))
    singles = [pack([s], max_tokens=1)[0] for s in ordered]
    together = torch.cat(engine.score(packed)).double()
    alone = torch.cat(engine.score(singles)).double()
    sampled = packed[0].old_logprobs.double()
    gap = (together - sampled).abs()
    found = Agreement(len(gap), float(gap.mean()), float(gap.max()), float((together - alone).abs().max()))
    mean_limit, max_limit = LIMITS[dtype]
    if not (found.gap_mean <= mean_limit and found.gap_max <= max_limit and found.packed_gap_max <= max_limit):
        raise PreflightError(
            f"trainer and sampler disagree at equal weights: mean {found.gap_mean:.2g}, largest {found.gap_max:.2g}, "
            f"packed against single {found.packed_gap_max:.2g} nats over {found.tokens} tokens",
            mend="check temperature, banned ids, dtype and the model's attention; training would learn from noise",
        )
    return found
