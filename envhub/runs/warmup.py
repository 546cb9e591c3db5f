"""Teaches a new model the action format by supervised training on random play."""

from collections.abc import Sequence

import numpy as np

from envhub.policy.chat_tokens import TurnFormat
from envhub.policy.models import LanguageModel
from envhub.rollout.random_play import RandomEpisode
from envhub.trainer.batch import TrainSequence
from envhub.trainer.config import WarmupConfig
from envhub.trainer.engine import TrainEngine
from envhub.trainer.packing import pack
from envhub.trainer.recipe import supervised_loss


def warmup_step(
    engine: TrainEngine,
    episodes: Sequence[RandomEpisode],
    language: LanguageModel,
    layout: TurnFormat,
    config: WarmupConfig,
    *,
    micro_batch_tokens: int,
    learning_rate: float,
) -> float:
    """One supervised step on random episodes; returns the loss in nats per weighted token."""
    sequences = [_sequence(episode, language, layout, config.observation_weight) for episode in episodes]
    total = sum(float(s.weights.sum()) for s in sequences)
    scaled = [TrainSequence(s.token_ids, s.places, s.old_logprobs, s.advantages, s.weights / total) for s in sequences]
    packs = pack(scaled, max_tokens=micro_batch_tokens)
    return engine.update(packs, supervised_loss, learning_rate=learning_rate).loss


def _sequence(episode: RandomEpisode, language: LanguageModel, layout: TurnFormat, observation_weight: float) -> TrainSequence:
    ids: list[int] = []
    weights: list[float] = []
    for turn, (observation, action) in enumerate(episode.exchanges):
        shown = layout.between(observation, stopped=bool(layout.stop_ids)) if turn else layout.opening("", observation)
        said = list(language.tokenizer.encode(action, add_special_tokens=False))
        ids += [*shown, *said]
        weights += [observation_weight] * len(shown) + [1.0] * len(said)
    places = np.arange(1, len(ids))
    none = np.zeros(len(places))
    return TrainSequence(np.array(ids, dtype=np.int64), places, none, none, np.array(weights[1:]))
