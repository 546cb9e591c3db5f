"""What a set of episodes says about a policy, with the uncertainty of it."""

import math
from collections.abc import Sequence

import numpy as np

from envhub.types import EvalSummary, Trajectory

Z = 1.959963984540054  # two-sided 95 % of the normal distribution


def summarise(trajectories: Sequence[Trajectory], seconds: float) -> EvalSummary:
    """Sum up; a failed episode counts as failed and as nothing else.

    An episode that says nothing of success (cut by a limit, for one) is unsolved; where none says anything, the
    environment knows no success and its rate is nan.
    """
    played = [t for t in trajectories if not t.failed]
    rewards = np.array([t.reward for t in played], dtype=np.float64)
    known = [t.success for t in played] if any(t.success is not None for t in played) else []
    low, high = wilson(sum(map(bool, known)), len(known))
    mean = float(rewards.mean()) if len(rewards) else math.nan
    half = Z * float(rewards.std(ddof=1)) / math.sqrt(len(rewards)) if len(rewards) > 1 else math.nan
    return EvalSummary(
        episodes=len(played),
        failed=len(trajectories) - len(played),
        success_rate=sum(map(bool, known)) / len(known) if known else math.nan,
        success_low=low,
        success_high=high,
        reward_mean=mean,
        reward_low=mean - half,
        reward_high=mean + half,
        turns_mean=float(np.mean([len(t.turns) for t in played])) if played else math.nan,
        tokens_mean=float(np.mean([t.num_action_tokens for t in played])) if played else math.nan,
        seconds=seconds,
    )


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % score interval of a proportion; (nan, nan) without trials."""
    if not trials:
        return math.nan, math.nan
    share = successes / trials
    centre = share + Z * Z / (2 * trials)
    half = Z * math.sqrt(share * (1 - share) / trials + Z * Z / (4 * trials * trials))
    scale = 1 + Z * Z / trials
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Chance that at least one of `k` draws without replacement is correct (arXiv:2107.03374, eq. 1)."""
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"samples={samples} correct={correct} k={k}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)
