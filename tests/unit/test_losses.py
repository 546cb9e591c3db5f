import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envhub.algo.divergence import entropy_from_logprobs, gathered_logprobs_and_entropy, k1, k2, k3
from envhub.algo.losses import clip_fraction, clipped_policy_loss
from envhub.algo.weighting import Aggregation, token_weights

LIMITS = {"clip_low": 0.2, "clip_high": 0.28}


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.5, 1.0, -1.28, 0.0),
        (1.5, -1.0, 1.5, 1.5),
        (0.5, 1.0, -0.5, -0.5),
        (0.5, -1.0, 0.8, 0.0),
        (5.0, -1.0, 3.0, 0.0),
        (1.0, 1.0, -1.0, -1.0),
    ],
)
def test_the_clipped_loss_has_the_worked_values_and_slopes(ratio: float, advantage: float, loss: float, slope: float) -> None:
    old = torch.tensor([-2.0], dtype=torch.float64)
    new = (old + torch.tensor([ratio], dtype=torch.float64).log()).requires_grad_()
    found = clipped_policy_loss(
        new, old, torch.tensor([advantage]), torch.ones(1, dtype=torch.float64), dual_clip=3.0, **LIMITS
    )
    (gradient,) = torch.autograd.grad(found, new)
    torch.testing.assert_close(found.item(), loss)
    torch.testing.assert_close(gradient.item(), slope)


@given(st.lists(st.floats(width=32), min_size=4, max_size=4))
def test_tokens_without_weight_never_reach_loss_or_gradient(padding: list[float]) -> None:
    logprobs, weights = torch.tensor([-1.0, -2.0, -0.5, -1.5]), torch.tensor([0.5, 0.0, 0.5, 0.0])
    noisy = torch.where(weights != 0, logprobs, torch.tensor(padding)).requires_grad_()
    advantages = torch.where(weights != 0, 1.0, torch.tensor(padding))

    loss = clipped_policy_loss(noisy, logprobs, advantages, weights, **LIMITS)
    (gradient,) = torch.autograd.grad(loss, noisy)

    torch.testing.assert_close(loss, torch.tensor(-1.0))  # by hand: ratio 1, advantage 1
    torch.testing.assert_close(gradient, torch.tensor([-0.5, 0.0, -0.5, 0.0]))


def test_the_clip_fraction_counts_only_tokens_whose_gradient_is_gone() -> None:
    old = torch.zeros(4)
    new = torch.log(torch.tensor([1.5, 1.5, 0.5, 1.0]))
    share = clip_fraction(new, old, torch.tensor([1.0, -1.0, -1.0, 1.0]), torch.full((4,), 0.25), **LIMITS)
    assert share.item() == 0.5


@pytest.mark.parametrize(
    ("aggregation", "constant", "expected"),
    [
        ("token_mean", None, 1.6),
        ("trajectory_mean", None, 2.5),
        ("trajectory_sum", None, 8.0),
        ("constant", 8, 1.0),
        ("constant", 16, 0.5),
    ],
)
def test_aggregations_have_their_worked_values(aggregation: Aggregation, constant: int | None, expected: float) -> None:
    weights = token_weights([8, 2], aggregation=aggregation, constant=constant)
    assert 8 * weights[0] * 1 + 2 * weights[1] * 4 == pytest.approx(expected)


def test_a_trajectory_without_tokens_weighs_nothing() -> None:
    for aggregation in ("token_mean", "trajectory_mean", "trajectory_sum"):
        assert token_weights([0, 0], aggregation=aggregation).tolist() == [0.0, 0.0]


def test_entropy_has_its_worked_values() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    entropy = entropy_from_logprobs(logits.log_softmax(-1))
    (slope,) = torch.autograd.grad(entropy, logits)
    assert entropy.item() == pytest.approx(0.947536964, abs=1e-9)
    expected = torch.tensor([[-0.3266881389, 0.1167009681, 0.1300762057, 0.0799109651]], dtype=torch.float64)
    torch.testing.assert_close(slope, expected, atol=1e-9, rtol=0)
    certain = torch.tensor([[0.0, -torch.inf, 1.0]], dtype=torch.float64).log_softmax(-1)
    assert entropy_from_logprobs(certain).item() == pytest.approx(0.5822031089, abs=1e-9)


def test_logprobs_are_taken_at_the_sampling_temperature() -> None:
    hidden = torch.tensor([[2.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    found, _ = gathered_logprobs_and_entropy(hidden, torch.eye(4, dtype=torch.float64), torch.tensor([0]), temperature=0.6)
    assert found.item() == pytest.approx(-0.208060405, abs=1e-9)


@pytest.mark.parametrize("bans", [(), (0, 5)])
def test_chunks_change_neither_values_nor_gradients(bans: tuple[int, ...]) -> None:
    chance = torch.Generator().manual_seed(3)
    hidden = torch.randn(7, 4, dtype=torch.float64, generator=chance).requires_grad_()
    head = torch.randn(9, 4, dtype=torch.float64, generator=chance).requires_grad_()
    targets = torch.tensor([1, 2, 3, 4, 6, 7, 8])
    results = []
    for chunk in (2, 100):
        logprobs, entropy = gathered_logprobs_and_entropy(hidden, head, targets, temperature=0.7, ban_ids=bans, chunk=chunk)
        results.append((logprobs, entropy, *torch.autograd.grad((logprobs * 2 + entropy).sum(), (hidden, head))))
    for small, whole in zip(*results, strict=True):
        torch.testing.assert_close(small, whole, rtol=1e-12, atol=1e-12)


def test_divergence_estimators_have_their_worked_values() -> None:
    p, q = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.2, 0.5, 0.3]).double()
    assert (p * k1(p.log(), q.log())).sum().item() == pytest.approx(0.2238046572, abs=1e-7)
    assert (p * k2(p.log(), q.log())).sum().item() == pytest.approx(0.2654787944, abs=1e-7)
    assert (p * k3(p.log(), q.log())).sum().item() == pytest.approx(0.2238046572, abs=1e-7)
