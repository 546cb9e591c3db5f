"""Vectors: Gymnasium's rules of reset, checked against Gymnasium's own vectors; steps by index; slow ones hold nobody up."""

import copy
import json
import pickle
import threading
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envhub.envs.core import Env, Info
from envhub.envs.vector import AsyncVector, SyncVector
from envhub.envs.vector_infos import Infos, merge_infos
from envhub.errors import EnvError


class Countdown(Env):
    """Ends after a number of steps that the seed decides; infos of every kind."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self._gate = gate

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 5))
        return f"start {self.left}", {"fresh": True, "left": self.left, "parts": {"a": 0.5}}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        if action == "wait" and self._gate is not None:
            assert self._gate.wait(10)
        if action == "break":
            raise RuntimeError("broken")
        self.left -= 1
        info: Info = {"left": self.left, "text": action, "array": np.array([self.left, 1])}
        if self.left % 2:
            info["odd"] = 1.5
        return f"left {self.left}", float(self.left), self.left == 0, self.left == 0 and action == "cut", info


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return set(one) == set(other) and all(equal(one[k], other[k]) for k in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and all(map(equal, one.tolist(), other.tolist()))
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other) and type(one) is type(other)


@pytest.mark.parametrize("kind", [SyncVector, AsyncVector])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_answers_as_gymnasiums_does(kind: type[SyncVector | AsyncVector], mode: AutoresetMode) -> None:
    ours = kind([Countdown] * 5, autoreset=mode)
    theirs = SyncVectorEnv([Countdown] * 5, autoreset_mode=mode)
    assert equal(ours.reset(seed=3), theirs.reset(seed=3))
    ended = 0
    for turn in range(30):
        actions = [f"{turn}.{i}" if i else "cut" for i in range(5)]
        mine, wanted = ours.step(actions), theirs.step(tuple(actions))
        assert mine[0] == wanted[0]
        assert all(equal(a, b) for a, b in zip(mine[1:], wanted[1:], strict=True))
        done = mine[2] | mine[3]
        ended += int(done.sum())
        if mode is AutoresetMode.DISABLED and done.any():
            assert equal(ours.reset(options={"reset_mask": done}), theirs.reset(options={"reset_mask": done}))
    assert ended > 20
    assert ours.metadata["autoreset_mode"] is mode
    ours.close()


@pytest.mark.parametrize("kind", [SyncVector, AsyncVector])
def test_an_ended_environment_is_not_stepped_where_reset_is_the_callers(kind: type[SyncVector | AsyncVector]) -> None:
    vector = kind([Countdown] * 2, autoreset=AutoresetMode.DISABLED)
    vector.reset(seed=[1, 1])
    for _ in range(5):
        last = vector.step(["go"] * 2)
        if last[2].any():
            break
    with pytest.raises(EnvError, match="environment 0 has ended"):
        vector.step(["go"] * 2)
    for mask in (np.zeros(2, bool), np.ones(3, bool), [True, False]):
        with pytest.raises(ValueError, match="reset_mask"):
            vector.reset(options={"reset_mask": mask})
    vector.close()


def test_some_are_stepped_by_index_and_the_others_stand_still() -> None:
    vector = SyncVector([Countdown] * 4)
    vector.reset(seed=[0, 1, 2, 3])
    envs = cast(list[Countdown], vector.envs)
    left = [env.left for env in envs]
    stepped = vector.step_some([2, 0], ["x", "y"])
    assert (stepped.indices, stepped.infos[0]["text"], stepped.infos[1]["text"]) == ((2, 0), "x", "y")
    assert [env.left for env in envs] == [left[0] - 1, left[1], left[2] - 1, left[3]]


def test_the_final_observation_is_kept_when_the_step_resets() -> None:
    vector = SyncVector([Countdown], autoreset=AutoresetMode.SAME_STEP)
    vector.reset(seed=1)
    while not (last := vector.step(["go"]))[2][0]:
        pass
    assert last[0][0].startswith("start")
    assert last[4]["final_obs"].tolist() == ["left 0"]
    assert last[4]["final_info"]["text"].tolist() == ["go"]


def test_a_slow_environment_holds_nobody_up() -> None:
    gate = threading.Event()
    vector = AsyncVector([partial(Countdown, gate)] * 3)
    vector.reset(seed=[4, 4, 4])
    vector.send([0, 1, 2], ["wait", "go", "go"])
    assert sorted(vector.recv(at_least=2).indices) == [1, 2]
    with pytest.raises(EnvError, match="stepping already"):
        vector.send([0], ["go"])
    with pytest.raises(EnvError, match=r"environments \[0\] are still stepping"):
        vector.step(["go"] * 3)
    vector.send([1], ["go"])
    assert vector.recv().indices == (1,)
    gate.set()
    assert vector.recv(at_least=3).indices == (0,)
    assert vector.recv().indices == ()
    vector.close()


def test_one_that_raises_is_named_and_the_others_keep_their_steps() -> None:
    vector = AsyncVector([Countdown] * 2, threads=1)
    vector.reset(seed=[4, 4])
    vector.send([0, 1], ["go", "break"])
    with pytest.raises(EnvError, match="environment 1 raised RuntimeError: broken"):
        vector.recv(at_least=2)
    assert vector.recv().indices == (0,)
    vector.close()


def test_a_wait_has_a_deadline() -> None:
    gate = threading.Event()
    vector = AsyncVector([partial(Countdown, gate)], deadline_s=0.05)
    vector.reset(seed=0)
    vector.send([0], ["wait"])
    with pytest.raises(EnvError, match=r"took over 0.05 s"):
        vector.recv()
    gate.set()
    vector.close()


def test_infos_of_mixed_kinds_are_kept_as_objects() -> None:
    merged = merge_infos([{"a": 1}, {"a": 2.5}, {}])
    assert (merged["a"].tolist(), merged["_a"].tolist()) == ([1, 2.5, None], [True, True, False])


@pytest.mark.parametrize(
    "look",
    [
        dict,
        lambda infos: {**infos},
        lambda infos: infos | {},
        lambda infos: {} | infos,
        copy.deepcopy,
        copy.copy,
        lambda infos: pickle.loads(pickle.dumps(infos)),
        lambda infos: dict(zip(infos.keys(), infos.values(), strict=True)),
        lambda infos: {key: infos[key] for key in infos},
        lambda infos: dict(infos.items()) if len(infos) == 2 else {},
        lambda infos: infos.update(b=1) or {k: v for k, v in infos.items() if k != "b"},
    ],
)
def test_infos_are_merged_whatever_looks_first(look: Any) -> None:
    rows = [{"a": 1}, {"a": 2}]
    assert equal(dict(look(Infos(rows))), {"a": np.array([1, 2]), "_a": np.array([True, True])})
    assert json.loads(json.dumps(Infos([{}]))) == {}
    assert "a" in Infos(rows)
    assert bool(Infos(rows)) is True
