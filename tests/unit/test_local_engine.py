import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from envhub.errors import ConfigError, EnvHubError, PolicyError
from envhub.policy.core import Completion, Sampling
from envhub.policy.local_engine import LocalEngine
from envhub.policy.models import LanguageModel, ModelInit, build
from envhub.policy.sampling import draw, uniform
from envhub.types import FinishReason

T = TypeVar("T")
WORDS = [f"w{i}" for i in range(30)]


def language(*, seed: int = 0, architecture: str = "qwen3") -> LanguageModel:
    init = ModelInit.model_validate(
        {"architecture": architecture, "hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 32}
    )
    return build(init, WORDS, seed=seed)


def engine(*, rows: int = 8, context: int = 64, seed: int = 0) -> LocalEngine:
    return LocalEngine(language(seed=seed).model, max_rows=rows, max_context_tokens=context)


def run(opened: LocalEngine, work: Coroutine[Any, Any, T]) -> T:
    """The work's result with the engine running; its own error is raised as it is, outside the engine's task group."""

    async def inside() -> Callable[[], T]:
        async with asyncio.timeout(30), opened.running():
            try:
                result = await work
            except EnvHubError as error:
                raised = error  # Python unbinds `error` at the end of the block
                return lambda: _raise(raised)
            return lambda: result

    return asyncio.run(inside())()


def _raise(error: EnvHubError) -> NoReturn:
    raise error


def expected(ids: list[int], reply: Completion, *, temperature: float, seed: int = 0) -> NDArray[np.float32]:
    whole = torch.tensor([[*ids, *reply.token_ids.tolist()]])
    with torch.no_grad():
        logits = language(seed=seed).model(whole).logits[0].float() / temperature
    scores = logits.log_softmax(-1)[len(ids) - 1 : -1]
    found: NDArray[np.float32] = (
        scores.gather(1, torch.from_numpy(reply.token_ids.astype(np.int64))[:, None])[:, 0].numpy().astype(np.float32)
    )
    return found


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_logprobs_are_those_of_the_plain_model(architecture: str, temperature: float) -> None:
    model = language(architecture=architecture)
    plain = model.copy()
    opened = LocalEngine(model.model, max_rows=4, max_context_tokens=64)
    prompts = [[2, 3, 4], [5], [6, 7, 8, 9, 10, 11, 12], [3] * 20, [9, 9]]  # more than there are rows

    async def ask() -> list[Completion]:
        sampling = Sampling(temperature, 9)
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(opened.generate(ids, sampling, episode=str(i), seed=i)) for i, ids in enumerate(prompts)]
        return [call.result() for call in calls]

    for ids, reply in zip(prompts, run(opened, ask()), strict=True):
        assert len(reply.token_ids) == 9
        assert reply.finish is FinishReason.LENGTH
        whole = torch.tensor([[*ids, *reply.token_ids.tolist()]])
        with torch.no_grad():
            scores = (plain(whole).logits[0].float() / temperature).log_softmax(-1)[len(ids) - 1 : -1]
        wanted = scores.gather(1, torch.from_numpy(reply.token_ids.astype(np.int64))[:, None])[:, 0]
        np.testing.assert_allclose(reply.logprobs, wanted.numpy(), atol=2e-6)


def test_a_reply_depends_on_its_seed_and_not_on_its_neighbours() -> None:
    sampling = Sampling(1.0, 12)

    async def ask(opened: LocalEngine, others: int) -> Completion:
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(opened.generate([4, 5], sampling, episode=str(i), seed=100 + i)) for i in range(others + 1)
            ]
        return calls[0].result()

    one, two = engine(), engine()
    alone, crowded = run(one, ask(one, 0)), run(two, ask(two, 7))
    assert alone.token_ids.tolist() == crowded.token_ids.tolist()


def test_later_turns_read_only_their_new_tokens() -> None:
    opened = engine()
    seen: list[int] = []
    forward = opened._model.forward

    def counting(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["input_ids"].shape[1])
        return forward(*args, **kwargs)

    opened._model.forward = counting

    async def turns() -> None:
        ids = list(range(2, 12))
        for turn in range(3):
            reply = await opened.generate(ids, Sampling(1.0, 1), episode="e", seed=turn)
            ids += [*reply.token_ids.tolist(), 5, 6]

    run(opened, turns())
    assert seen == [10, 3, 3]


def test_new_weights_are_used_from_the_next_token_on_and_old_keys_are_forgotten() -> None:
    opened = engine(seed=0)
    state = language(seed=1).model.state_dict()

    async def work() -> tuple[list[int], Completion]:
        first = await opened.generate([2, 3, 4], Sampling(1.0, 4), episode="e", seed=1)
        await opened.update_weights(state, 7)
        ids = [2, 3, 4, *first.token_ids.tolist()]
        assert first.versions.tolist() == [0] * 4
        return ids, await opened.generate(ids, Sampling(1.0, 4), episode="e", seed=2)

    ids, second = run(opened, work())
    assert second.versions.tolist() == [7] * 4
    np.testing.assert_allclose(second.logprobs, expected(ids, second, temperature=1.0, seed=1), atol=2e-6)


def test_a_reply_cut_by_an_update_keeps_its_tokens_and_goes_on() -> None:
    opened = engine(seed=0)
    state = language(seed=1).model.state_dict()

    async def work() -> Completion:
        async with asyncio.TaskGroup() as group:
            call = group.create_task(opened.generate([2, 3], Sampling(1.0, 40), episode="e", seed=1))
            while opened.tokens_sampled < 5:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await opened.update_weights(state, 1)
        return call.result()

    reply = run(opened, work())
    versions = reply.versions.tolist()
    assert versions == sorted(versions)
    assert set(versions) == {0, 1}
    fresh = versions.index(1)
    wanted = expected([2, 3], reply, temperature=1.0, seed=1)
    np.testing.assert_allclose(reply.logprobs[fresh:], wanted[fresh:], atol=2e-6)


def test_weights_of_another_model_are_refused() -> None:
    opened = engine()

    async def work() -> None:
        await opened.update_weights({"other": torch.zeros(1)}, 1)

    with pytest.raises(ConfigError, match="do not match"):
        run(opened, work())
    assert opened.version == 0


def test_a_cancelled_call_leaves_its_row_to_others() -> None:
    opened = engine(rows=1)

    async def work() -> Completion:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await opened.generate([2, 3], Sampling(1.0, 60), episode="slow", seed=1)
        opened.release("slow")
        return await opened.generate([4], Sampling(1.0, 2), episode="next", seed=1)

    assert len(run(opened, work()).token_ids) == 2


@pytest.mark.parametrize("prompt", [[], [2] * 61])
def test_a_prompt_that_does_not_fit_is_refused_before_the_model(prompt: list[int]) -> None:
    opened = engine(context=64)
    with pytest.raises(PolicyError, match="do not fit"):
        run(opened, opened.generate(prompt, Sampling(1.0, 4), episode="e", seed=1))


def test_a_stop_token_ends_the_reply_and_belongs_to_it() -> None:
    opened = engine()
    stops = tuple(range(2, 17))
    reply = run(opened, opened.generate([20], Sampling(1.0, 50, stop_ids=stops), episode="e", seed=3))
    assert reply.finish is FinishReason.STOP
    assert reply.token_ids[-1] in stops
    assert not set(reply.token_ids[:-1].tolist()) & set(stops)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_draws_follow_the_distribution(seed: int) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]]).expand(4000, -1)
    chance = uniform([seed] * 4000, range(4000))
    chosen, logprobs = draw(logits, Sampling(0.6, 1), chance)
    share = np.bincount(chosen.numpy(), minlength=4) / 4000
    wanted = torch.softmax(logits[0] / 0.6, -1).numpy()
    assert np.abs(share - wanted).max() < 0.05
    assert logprobs[chosen == 0][0].item() == pytest.approx(-0.208060405, abs=1e-6)


def test_banned_tokens_are_never_drawn_and_their_share_goes_to_the_others() -> None:
    logits = torch.zeros(1000, 4)
    chosen, logprobs = draw(logits, Sampling(1.0, 1, ban_ids=(0, 2)), uniform(range(1000), [0] * 1000))
    assert set(chosen.tolist()) == {1, 3}
    assert logprobs[0].item() == pytest.approx(-np.log(2))
