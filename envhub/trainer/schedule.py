"""The learning rate of each update: a pure function of its number."""

import math

from envhub.trainer.config import TrainerConfig


def learning_rate(config: TrainerConfig, update: int, total_updates: int) -> float:
    """Rate of update `update` (from 1) of `total_updates`: linear warm-up, then constant or a cosine to 10 %."""
    if update <= config.warmup_updates:
        return config.learning_rate * update / config.warmup_updates
    if config.schedule == "constant":
        return config.learning_rate
    done = (update - config.warmup_updates) / max(1, total_updates - config.warmup_updates)
    return config.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))
