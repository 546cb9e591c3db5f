import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from envhub.errors import PolicyError, PublishError
from envhub.policy.core import Completion, Load, Sampling
from envhub.policy.fleet import Fleet
from envhub.policy.local_engine import LocalEngine
from envhub.trainer.publish import publish
from envhub.types import FinishReason
from tests.unit.test_local_engine import engine, language

ONE = Sampling(1.0, 1)


class Answering:
    """An engine that answers when it is told to."""

    def __init__(self, name: int) -> None:
        self.name, self.version = name, 0
        self.asked: list[str] = []
        self.released: list[str] = []
        self.may = asyncio.Event()
        self.broken = False
        self.pressed = Load()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Answering"]:
        yield self

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, *, episode: str, seed: int) -> Completion:
        self.asked.append(episode)
        await self.may.wait()
        if self.broken:
            raise PolicyError("broken", mend="none")
        ids = np.array([self.name], dtype=np.int32)
        return Completion(ids, np.zeros(1, np.float32), np.zeros(1, np.int32), FinishReason.STOP)

    def release(self, episode: str) -> None:
        self.released.append(episode)

    def load(self) -> Load:
        return self.pressed


def fleet(count: int, *, adapts: bool = False, slow: Sequence[int] = ()) -> Fleet[Answering]:
    made = Fleet([Answering(number) for number in range(count)], adapts=adapts)
    for number, each in enumerate(made.engines):
        if number not in slow:
            each.may.set()
    return made


async def turn(opened: Fleet[Any], episode: str) -> int:
    return int((await opened.generate([1], ONE, episode=episode, seed=0)).token_ids[0])


def test_turns_of_an_episode_go_where_its_cache_is() -> None:
    async def work() -> None:
        opened = fleet(3, slow=(0, 1, 2))
        calls = [asyncio.create_task(turn(opened, name)) for name in "abcabc"[:3]]
        await asyncio.sleep(0)
        assert [each.asked for each in opened.engines] == [["a"], ["b"], ["c"]]
        for each in opened.engines:
            each.may.set()
        assert await asyncio.gather(*calls) == [0, 1, 2]
        assert [await turn(opened, name) for name in "cbacba"] == [2, 1, 0] * 2
        opened.release("b")
        assert [each.released for each in opened.engines] == [[], ["b"], []]

    asyncio.run(work())


def test_an_engine_that_falls_behind_loses_its_episodes() -> None:
    async def work() -> None:
        opened = fleet(2, slow=(0,))
        opened._turns[1] = 9
        waiting = [asyncio.create_task(turn(opened, f"e{i}")) for i in range(6)]
        await asyncio.sleep(0)
        opened._turns[1] = 0
        assert opened.engines[0].asked == [f"e{i}" for i in range(6)]
        assert await turn(opened, "e0") == 1
        assert opened.engines[0].released == ["e0"]
        for each in waiting:
            each.cancel()

    asyncio.run(work())


def test_an_engine_that_does_not_answer_is_avoided_until_it_does() -> None:
    async def work() -> None:
        opened = fleet(2, slow=(0,))
        opened._turns[1] = 9
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(turn(opened, f"lost{number}"), 0.01)
        opened._turns[1] = 0
        assert [await turn(opened, f"e{number}") for number in range(5)] == [1] * 5  # one is always idle, and never asked
        opened.engines[0].may.set()
        opened._turns[1] += 9
        assert await turn(opened, "back") == 0
        opened._turns[1] -= 9
        assert await turn(opened, "new") == 0

    asyncio.run(work())


def test_what_an_engine_raises_counts_against_it() -> None:
    async def work() -> None:
        opened = fleet(2)
        opened.engines[0].broken = True
        with pytest.raises(PolicyError, match="broken"):
            await turn(opened, "a")
        assert [await turn(opened, name) for name in "bcd"] == [1, 1, 1]

    asyncio.run(work())


def test_a_pressed_engine_serves_its_oldest_episodes_first() -> None:
    async def work() -> None:
        opened = fleet(1, adapts=True)
        names = [f"e{i}" for i in range(8)]
        for name in names:
            await turn(opened, name)
        only = opened.engines[0]
        only.pressed = Load(8, 8, 0, 0)
        assert opened.adapt() == 6
        assert only.asked == names
        late = asyncio.create_task(turn(opened, "e7"))
        given_up = asyncio.create_task(turn(opened, "e6"))
        await asyncio.sleep(0)
        assert await turn(opened, "e5") == 0
        assert not late.done()
        given_up.cancel()
        opened.release("e6")
        opened.release("e0")
        assert await late == 0
        only.pressed = Load(6, 0, 0, 0)
        assert [opened.adapt(), opened.adapt()] == [6, 7]  # the first look is that after the cut

    asyncio.run(work())


def test_new_weights_reach_one_engine_while_another_samples() -> None:
    states = language(seed=1).model.state_dict()

    async def work() -> tuple[Completion, int]:
        opened = Fleet([engine(seed=0), engine(seed=0)])
        first, second = opened.engines
        async with asyncio.timeout(30), opened.running(), asyncio.TaskGroup() as group:
            async with first.paused():
                publishing = group.create_task(publish(states, *opened.engines, version=1))
                going = group.create_task(second.generate([2, 3], Sampling(1.0, 40), episode="e", seed=1))
                while second.tokens_sampled < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                assert (first.version, second.version, opened.version) == (0, 0, 0)
            await publishing
            return await going, opened.version

    reply, version = asyncio.run(work())
    assert version == 1
    assert reply.versions[0] == 0
    assert reply.versions.tolist() == sorted(reply.versions.tolist())


def test_every_engine_must_hold_what_was_published() -> None:
    class Deaf(LocalEngine):
        async def update_weights(self, state: Any, version: int) -> None:
            pass

    async def work() -> None:
        one, other = engine(), Deaf(language(seed=0).model, max_rows=8, max_context_tokens=64)
        with pytest.raises(PublishError, match="version 0"):
            await publish(language(seed=1).model.state_dict(), one, other, version=1)
        assert one.version == 1

    asyncio.run(work())


def test_a_step_that_breaks_fails_its_calls_and_the_engine_goes_on() -> None:
    async def work() -> None:
        opened = engine()
        forward = opened._model.forward

        def breaking(*args: Any, **kwargs: Any) -> Any:
            opened._model.forward = forward
            raise RuntimeError("out of memory")

        opened._model.forward = breaking
        async with asyncio.timeout(30), opened.running():
            with pytest.raises(PolicyError, match="RuntimeError: out of memory"):
                await opened.generate([2, 3], Sampling(1.0, 4), episode="e", seed=1)
            again = await opened.generate([2, 3], Sampling(1.0, 4), episode="e", seed=1)
        assert len(again.token_ids) == 4

    asyncio.run(work())


def test_the_local_engine_tells_how_pressed_it_is() -> None:
    async def work() -> Load:
        opened = engine(rows=2)
        async with asyncio.timeout(30), opened.running():
            async with asyncio.TaskGroup() as group:
                for name in "abc":
                    group.create_task(opened.generate([4, 5, 6], Sampling(1.0, 6), episode=name, seed=1))
                while opened.tokens_sampled < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                seen = opened.load()
            assert (opened.load().waiting, opened.load().computed) == (0, 9)  # the rest are replies' own tokens
        return seen

    seen = asyncio.run(work())
    assert (seen.running, seen.waiting, seen.evicted) == (2, 1, 0)
