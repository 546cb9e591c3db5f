"""One update's row of metrics.jsonl."""

from collections.abc import Mapping, Sequence

import numpy as np

from envhub.trainer.batch import Batch
from envhub.trainer.engine import UpdateStats
from envhub.types import TrajectoryGroup


def update_metrics(
    update: int,
    groups: Sequence[TrajectoryGroup],
    batch: Batch,
    stats: UpdateStats | None,
    facts: Mapping[str, float],
    *,
    max_staleness: int,
) -> dict[str, float]:
    """What an update saw and did; `stats` is None where every group was constant and nothing was trained.

    "staleness" is of the tokens that may be trained on, "tokens/stale" the share of those that lag more than `max_staleness`.
    """
    played = [t for group in groups for t in group.trajectories]
    rewards = [t.reward for t in played if t.reward is not None]
    versions = [s.versions[s.mask] for t in played for s in t.segments]
    lags = update - 1 - np.concatenate(versions) if versions else np.zeros(0)
    trained = lags[lags <= max_staleness]
    actions = sum(t.num_action_tokens for t in played)
    total = sum(len(s) for t in played for s in t.segments)
    seconds = facts.get("time/rollout_s", 0.0) + facts.get("time/train_s", 0.0)
    row = {
        "update": update,
        "reward/mean": float(np.mean(rewards)),
        "reward/std": float(np.std(rewards)),
        "success/mean": float(np.mean([bool(t.success) for t in played])),
        "episode/turns_mean": float(np.mean([len(t.turns) for t in played])),
        "episode/truncated": float(np.mean([t.truncated for t in played])),
        "tokens/action": float(actions),
        "tokens/total": float(total),
        "throughput/tokens_per_s": total / seconds if seconds else 0.0,
        "staleness/mean": float(trained.mean()) if trained.size else 0.0,
        "staleness/max": float(trained.max()) if trained.size else 0.0,
        "tokens/stale": 1.0 - trained.size / lags.size if lags.size else 0.0,
        "groups/constant": float(batch.constant_groups),
        "groups/dropped": 0.0,
        "episodes/failed": 0.0,
        "policy/skipped": 1.0 if stats is None or stats.skipped else 0.0,
    }
    names = ("loss", "entropy", "kl", "clip_fraction", "grad_norm")
    row |= {f"policy/{name}": float("nan") if stats is None else getattr(stats, name) for name in names}
    row["policy/logprob_gap_mean"] = float("nan") if stats is None else stats.gap
    row["policy/logprob_gap_max"] = float("nan") if stats is None else stats.gap_max
    return row | dict(facts)
