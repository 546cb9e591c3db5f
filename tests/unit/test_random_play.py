"""Random play of environments of both kinds, alone and behind faces that wait on the shared loop."""

import asyncio
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from envhub.envs import EnvSpec
from envhub.envs.core import AsyncEnv, Info
from envhub.envs.registry import register
from envhub.envs.tasks import GeneratedTasks
from envhub.errors import ConfigError, EnvError
from envhub.runs.stage import RandomPlay, build_stage, build_tasks, random_episodes


class Mute(AsyncEnv):
    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        self.left = 3
        return f"{self.left} left", {}

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        self.left -= 1
        return f"{self.left} left", float(action == "right"), self.left == 0, False, {}

    async def close(self) -> None: ...


class Slow(Mute):
    async def legal_actions(self) -> tuple[str, ...]:
        return ("left", "right")


def tasks(**_: Any) -> GeneratedTasks:
    return GeneratedTasks(lambda seed: {"n": seed})


SLOW = register(EnvSpec(id="t/Slow-v1", make=Slow, tasks=tasks))
register(EnvSpec(id="t/Mute-v1", make=Mute, tasks=tasks))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("mixed", [False, True])
def test_asynchronous_environments_are_played_alone_and_in_a_mixture(mixed: bool) -> None:
    members = (
        {"one": {"id": "t/Slow-v1", "weight": 1.0}, "game": {"id": "game/GuessNumber-v1", "weight": 1e-9}} if mixed else None
    )
    stage = build_stage("mix/M-v1" if mixed else "t/Slow-v1", {}, members=members)
    episodes = random_episodes(stage, build_tasks(stage, {}, "train", 0), 8, seed=1)
    assert [len(e.exchanges) for e in episodes] == [3] * 8
    assert [e.reward for e in episodes] == [sum(a == "right" for _, a in e.exchanges) for e in episodes]
    assert len({tuple(a for _, a in e.exchanges) for e in episodes}) > 2
    assert episodes == random_episodes(stage, build_tasks(stage, {}, "train", 0), 8, seed=1)


@pytest.mark.timeout(20)
def test_served_environments_are_kept_between_episodes_and_replaced_when_lost() -> None:
    made: list[Any] = []

    class Counted(Slow):
        def __init__(self) -> None:
            made.append(self)
            self.resets, self.closed = 0, False

        async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
            await asyncio.sleep(0.05)
            self.resets += 1
            if self is made[0] and self.resets == 2:
                raise EnvError("its lease has run out", mend="open another")
            return await super().reset(seed=seed, options=options)

        async def close(self) -> None:
            assert not self.closed
            self.closed = True

    stage = replace(build_stage("t/Slow-v1", {}), remote=True, make_env=Counted)
    fresh = random_episodes(stage, build_tasks(stage, {}, "train", 0), 12, seed=1)
    made.clear()
    with closing(RandomPlay(stage, build_tasks(stage, {}, "train", 0))) as playing:
        assert (
            playing.episodes(4, seed=1) + playing.episodes(4, seed=1, first=4) + playing.episodes(4, seed=1, first=8) == fresh
        )
        assert [env.resets for env in made] == [2, 3, 3, 3, 2]
        assert [env.closed for env in made] == [True, False, False, False, False]
    assert all(env.closed for env in made)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("remote", [False, True])
def test_an_environment_that_names_no_actions_is_told(remote: bool) -> None:
    stage = replace(build_stage("t/Mute-v1", {}), remote=remote)
    with pytest.raises(ConfigError, match="names no legal actions"):
        random_episodes(stage, build_tasks(stage, {}, "train", 0), 3, seed=1)
