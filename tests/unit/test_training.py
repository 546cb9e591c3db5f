"""The one loss law: no split, order or packing of a batch changes the gradient; and what the engine does with it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envhub.algo.losses import clipped_policy_loss
from envhub.errors import PreflightError
from envhub.policy.models import ModelInit, build
from envhub.trainer.batch import TrainSequence, collate
from envhub.trainer.config import AlgorithmConfig, TrainerConfig
from envhub.trainer.engine import TrainEngine
from envhub.trainer.packing import pack
from envhub.trainer.preflight import preflight
from envhub.trainer.publish import checksum
from envhub.trainer.recipe import grpo_loss
from envhub.trainer.schedule import learning_rate
from envhub.trainer.scorer import TokenScorer
from envhub.types import TrajectoryGroup
from tests.unit.builders import group, trajectory

INIT = ModelInit.model_validate({"hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 32})
WORDS = [f"w{i}" for i in range(20)]
CONFIG = AlgorithmConfig(entropy_bonus=0.01)


def sequences(seed: int, count: int = 7) -> list[TrainSequence]:
    chance = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        length = int(chance.integers(3, 30))
        places = np.sort(chance.choice(np.arange(1, length), size=int(chance.integers(1, length - 1)), replace=False))
        shape = len(places)
        made.append(
            TrainSequence(
                chance.integers(2, 20, size=length),
                places,
                chance.normal(-3, 0.2, size=shape),
                chance.normal(size=shape),
                chance.uniform(0.01, 0.1, size=shape),
            )
        )
    return made


def gradient(parts: list[TrainSequence], *, max_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    scorer = TokenScorer(build(INIT, WORDS, seed=1).model.double(), temperature=0.8, ban_ids=(0,))
    total = torch.zeros((), dtype=torch.float64)
    for packed in pack(parts, max_tokens=max_tokens, dtype=torch.float64):
        logprobs, entropy = scorer(packed)
        loss = grpo_loss(logprobs, entropy, packed, CONFIG).loss
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    flat = torch.cat([p.grad.flatten() for p in scorer.parameters() if p.grad is not None])
    return total, flat


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), max_tokens=st.integers(1, 120), order=st.permutations(range(7)))
def test_no_split_and_no_order_changes_the_gradient(seed: int, max_tokens: int, order: list[int]) -> None:
    parts = sequences(seed)
    whole = gradient(parts, max_tokens=10_000)
    split = gradient([parts[i] for i in order], max_tokens=max_tokens)
    for one, other in zip(whole, split, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-12)


def test_packed_scores_are_those_of_the_plain_model() -> None:
    parts = sequences(5)
    language = build(INIT, WORDS, seed=1)
    plain = language.copy()
    scorer = TokenScorer(language.model, temperature=0.8, ban_ids=(0,))
    ordered = sorted(parts, key=lambda s: len(s.token_ids), reverse=True)
    (packed,) = pack(ordered, max_tokens=10_000)
    scores, _ = scorer(packed)
    wanted = []
    for part in ordered:
        logits = plain(torch.from_numpy(part.token_ids)[None]).logits[0] / 0.8
        logits[:, 0] = -torch.inf
        wanted.append(logits.log_softmax(-1)[part.places - 1, part.token_ids[part.places]])
    torch.testing.assert_close(scores, torch.cat(wanted), rtol=0, atol=1e-5)


def test_a_batch_weighs_every_token_once_and_leaves_constant_groups_out() -> None:
    groups = [group(0, [0.0, 1.0], turns=3), group(1, [1.0, 1.0]), group(2, [1.0, 0.0, 0.5], turns=2)]
    batch = collate(groups, AlgorithmConfig(), seed=0)
    assert (batch.trajectories, batch.constant_groups) == (5, 1)
    assert sum(s.weights.sum() for s in batch.sequences) == pytest.approx(1.0)
    assert [round(float(s.advantages[0]), 5) for s in batch.sequences[:2]] == [-0.70711, 0.70711]
    assert batch.sequences[0].places.tolist() == [3, 7, 11]
    assert batch.sequences[0].old_logprobs.tolist() == [-0.5] * 3


def test_blame_falls_on_the_last_turns_of_a_lost_episode_only() -> None:
    batch = collate([group(0, [0.0, 1.0], turns=3)], AlgorithmConfig(blame_discount=0.5), seed=0)
    lost, won = (s.advantages for s in batch.sequences)
    np.testing.assert_allclose(lost / lost[-1], [0.25, 0.5, 1.0])
    np.testing.assert_allclose(won / won[-1], [1.0, 1.0, 1.0])


def test_an_update_moves_weights_down_the_loss_and_a_bad_one_moves_nothing() -> None:
    engine = TrainEngine(build(INIT, WORDS, seed=1).model, TrainerConfig(), temperature=1.0)
    packs = pack(sequences(3), max_tokens=40)
    loss = partial(grpo_loss, config=CONFIG)
    first = engine.update(packs, loss, learning_rate=1e-3)
    second = engine.update(packs, loss, learning_rate=1e-3)
    assert second.loss < first.loss
    assert first.grad_norm > 0
    before = checksum(engine.weights())
    bad = sequences(3)
    bad[0].advantages[0] = np.nan
    skipped = engine.update(pack(bad, max_tokens=40), loss, learning_rate=1e-3)
    assert skipped.skipped
    assert checksum(engine.weights()) == before
    again = engine.update(packs, loss, learning_rate=1e-3)
    assert not again.skipped
    assert again.loss < second.loss


def test_the_engine_takes_the_step_that_plain_adamw_takes() -> None:
    config = TrainerConfig(max_grad_norm=0.05)
    engine = TrainEngine(build(INIT, WORDS, seed=1).model, config, temperature=1.0)
    engine.update(pack(sequences(3), max_tokens=40), partial(grpo_loss, config=CONFIG), learning_rate=1e-2)

    plain = build(INIT, WORDS, seed=1).model
    scorer = TokenScorer(plain, temperature=1.0, ban_ids=())
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2, betas=config.betas, weight_decay=0.0)
    (packed,) = pack(sequences(3), max_tokens=10_000)
    logprobs, entropy = scorer(packed)
    loss = clipped_policy_loss(logprobs, packed.old_logprobs, packed.advantages, packed.weights, clip_low=0.2, clip_high=0.2)
    (loss - 0.01 * (packed.weights * entropy).sum()).backward()
    torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
    optimizer.step()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(engine.weights()[name], tensor, rtol=1e-4, atol=1e-5)


def test_preflight_refuses_logprobs_of_other_weights() -> None:
    engine = TrainEngine(build(INIT, WORDS, seed=1).model, TrainerConfig(), temperature=1.0)
    parts = sequences(9)
    ordered = sorted(parts, key=lambda s: len(s.token_ids), reverse=True)
    (scores,) = engine.score(pack(ordered, max_tokens=10_000))
    honest, start = [], 0
    for part in ordered:
        end = start + len(part.places)
        honest.append(
            TrainSequence(part.token_ids, part.places, scores[start:end].double().numpy(), part.advantages, part.weights)
        )
        start = end
    assert preflight(engine, honest, dtype=torch.float32).gap_max < 1e-5
    with pytest.raises(PreflightError, match="disagree"):
        preflight(engine, parts, dtype=torch.float32)


@pytest.mark.parametrize(("update", "rate"), [(1, 0.1), (10, 1.0), (55, 0.55), (100, 0.1)])
def test_the_rate_warms_up_and_follows_a_cosine_to_a_tenth(update: int, rate: float) -> None:
    config = TrainerConfig(learning_rate=1.0, warmup_updates=10, schedule="cosine")
    assert learning_rate(config, update, 100) == pytest.approx(rate)


def test_tokens_that_are_too_old_are_left_out_and_the_rest_of_their_episode_is_trained_on() -> None:
    first, second, third = (trajectory(f"train-000000/{n}.0", reward=float(n == 1), turns=4) for n in range(3))
    mixed = replace(first.segments[0], versions=np.where(first.segments[0].mask, np.arange(16) // 8 + 4, -1).astype(np.int32))
    first = replace(first, segments=(mixed,))  # two tokens of version 4, two of 5
    second = replace(second, segments=(replace(second.segments[0], versions=np.where(second.segments[0].mask, 5, -1)),))
    group = TrajectoryGroup("train-000000", 0, "t", (first, second, third))  # the third's are of version 0
    batch = collate([group], AlgorithmConfig(scale="none"), seed=0, floor=5)
    assert [sequence.places.tolist() for sequence in batch.sequences] == [[11, 15], [3, 7, 11, 15]]
    assert (batch.trajectories, batch.stale_tokens) == (2, 2 + 4)
    for sequence, advantage in zip(batch.sequences, (-1 / 3, 2 / 3), strict=True):  # of all three
        np.testing.assert_allclose(sequence.advantages, advantage)
    assert sum(float(sequence.weights.sum()) for sequence in batch.sequences) == pytest.approx(1.0)
    assert collate([group], AlgorithmConfig(), seed=0, floor=6).sequences == ()
    assert len(collate([group], AlgorithmConfig(), seed=0).sequences) == 3
