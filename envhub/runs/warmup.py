"""Teaches a new model the action format by supervised training on random play."""

import asyncio
from collections.abc import Sequence

import numpy as np

from envhub.policy.chat_tokens import TurnFormat
from envhub.policy.models import LanguageModel
from envhub.rollout.random_play import RandomEpisode
from envhub.runs.stage import RandomPlay
from envhub.trainer.batch import TrainSequence
from envhub.trainer.config import WarmupConfig
from envhub.trainer.engine import TrainEngine
from envhub.trainer.packing import pack
from envhub.trainer.recipe import supervised_loss

RAMP_STEPS = 20  # in which the learning rate rises


async def warm_up(
    engine: TrainEngine,
    playing: RandomPlay,
    language: LanguageModel,
    layout: TurnFormat,
    config: WarmupConfig,
    *,
    seed: int,
    micro_batch_tokens: int,
    stopping: asyncio.Event,
) -> str:
    """Learn from random play, until `stopping` is set at the latest; what a person should know about it."""
    loss, won, count = 0.0, 0, 0
    for step in range(config.steps):
        if stopping.is_set():
            return f"the warm-up was stopped after {step} of {config.steps} steps"
        episodes = playing.episodes(config.episodes_per_step, seed=seed, first=step * config.episodes_per_step)
        won, count = won + sum(e.reward > 0 for e in episodes), count + len(episodes)
        rate = config.learning_rate * min(1.0, (step + 1) / RAMP_STEPS)
        given = (engine, episodes, language, layout, config)
        loss = await asyncio.to_thread(warmup_step, *given, micro_batch_tokens=micro_batch_tokens, learning_rate=rate)
    return (
        f"warm-up: {config.steps} supervised steps on {count} episodes of random play, loss {loss:.3f}. Moves were "
        "drawn evenly from those the environment calls legal under its options, solved or not: the model has seen the "
        f"action words and how observations follow moves; {won / count:.1%} of the episodes happened to earn a reward"
    )


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
