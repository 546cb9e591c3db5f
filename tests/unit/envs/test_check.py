"""The kit: a good environment passes every rule, and each way of breaking it is caught by the rule's name."""

import json
import os
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from envhub.cli.main import run
from envhub.envs import Env, EnvSpec, GeneratedTasks, ListTasks, RewardKind, register
from envhub.envs.check import RULES, check
from envhub.envs.core import Info, StateLevel


class Climb(Env):
    """Say up as often as the goal is high; every true step earns 1/goal."""

    state_level: ClassVar[StateLevel] = StateLevel.STATE

    def __init__(self, *, highest: int = 9) -> None:
        self.highest = highest

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        super().reset(seed=seed)
        task = self.task_of(options)
        self.goal = int(task["goal"] if task else self.np_random.integers(3, self.highest + 1))
        self.at = 0
        return self.show(), {"anchor": str(self.at)}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        if self.at >= self.goal or action not in self.legal_actions():
            return f"{self.show()} Say up or down.", 0.0, self.at >= self.goal, False, {"illegal": True}
        self.at = max(0, self.at + (1 if action == "up" else -1))
        done = self.at == self.goal
        return self.show(), 1.0 if done else 0.0, done, False, {"anchor": str(self.at), "success": done}

    def show(self) -> str:
        return f"At {self.at} of {self.goal}."

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down")


def tasks(*, highest: int = 9) -> GeneratedTasks:
    return GeneratedTasks(lambda seed: {"goal": 3 + seed % (highest - 2), "name": seed % 1000})


SPEC = EnvSpec(id="test/Climb-v1", make=Climb, tasks=tasks, max_turns=100, solver=lambda env: "up", success_reward=1.0)


class Unseeded(Climb):
    def reset(self, **kwargs: Any) -> tuple[str, Info]:
        super().reset(**kwargs)
        self.goal = random.randint(3, 10**6)
        return self.show(), {}


class Remembers(Climb):
    ever = 0

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        self.ever += 1
        observation, *rest = super().step(action)
        return f"{observation} ({self.ever} steps)", *rest  # type: ignore[return-value]


class Shared(Climb):
    places: ClassVar[dict[str, int]] = {}

    @property
    def at(self) -> int:
        return Shared.places["at"]

    @at.setter
    def at(self, value: int) -> None:
        Shared.places["at"] = value


class NotANumber(Climb):
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        observation, _, *rest = super().step(action)
        return observation, float("nan"), *rest  # type: ignore[return-value]


class Generous(Climb):
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        observation, reward, *rest = super().step(action)
        return observation, reward + 0.5, *rest  # type: ignore[return-value]


class Fragile(Climb):
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        action.encode("utf-8")
        return super().step(action)


class Echoes(Climb):
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        observation, *rest = super().step(action)
        return observation + action[:10], *rest  # type: ignore[return-value]


class Deaf(Climb):
    def task_of(self, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return {"goal": 5}


class Siamese(Climb):
    def reset(self, **kwargs: Any) -> tuple[str, Info]:
        self.where = [0]
        return super().reset(**kwargs)

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        self.where[0] += 1
        observation, *rest = super().step(action)
        return f"{observation} {self.where[0]}", *rest  # type: ignore[return-value]

    def snapshot(self) -> Any:
        return dict(self.__dict__)

    def restore(self, snapshot: Any) -> None:
        self.__dict__.update(snapshot)


class Pays(Climb):
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        if self.at >= self.goal:
            return self.show(), 0.001, True, False, {}
        return super().step(action)


class Leaks(Climb):
    def reset(self, **kwargs: Any) -> tuple[str, Info]:
        self.files = os.dup(0)
        return super().reset(**kwargs)


class Number(Climb):
    def show(self) -> str:
        return self.at  # type: ignore[return-value]


class Objects(Climb):
    def reset(self, **kwargs: Any) -> tuple[str, Info]:
        return super().reset(**kwargs)[0], {"goal": np.int64(self.goal)}


class OneInfo(Climb):
    def reset(self, **kwargs: Any) -> tuple[str, Info]:
        self.info = super().reset(**kwargs)[1]
        return self.show(), self.info

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        *step, info = super().step(action)
        self.info.update(info)
        return *step, self.info  # type: ignore[return-value]


class Meddles(Climb):
    def reset(self, **kwargs: Any) -> tuple[str, Info]:
        np.random.random()
        return super().reset(**kwargs)


class Hangs(Climb):
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        threading.Event().wait(3)
        return super().step(action)


class Easy(Climb):
    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "down", "")

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        return super().step(action or "up")


def takes_all(**options: Any) -> Climb:
    return Climb()


def overlapping(**_: Any) -> ListTasks:
    return ListTasks({"train": [{"goal": 3}, {"goal": 4}], "test": [{"goal": 4}]})


def changed(make: Callable[..., Any] = Climb, **facts: Any) -> EnvSpec:
    return replace(SPEC, make=make, **facts)


WAYS = [
    (changed(takes_all), "builds"),
    (changed(Unseeded), "seeds"),
    (changed(Remembers), "reset"),
    (changed(Shared), "instances"),
    (changed(NotANumber), "answers"),
    (changed(Number), "answers"),
    (changed(Objects), "answers"),
    (changed(OneInfo), "answers"),
    (changed(Echoes), "hostile"),
    (changed(Fragile), "hostile"),
    (changed(Generous), "rewards"),
    (changed(Pays), "rewards"),
    (changed(reward_range=(0.0, 0.5)), "rewards"),
    (changed(Deaf), "task_option"),
    (changed(tasks=overlapping), "tasks"),
    (changed(Siamese), "state"),
    (changed(Leaks), "close"),
    (changed(Meddles), "surroundings"),
    (changed(solver=lambda env: "down"), "gold"),
    (changed(Easy), "gold"),
    (changed(tools=({"function": {"name": "f", "parameters": {}}},)), "tools"),
]


def test_a_good_environment_passes_every_rule() -> None:
    findings = check(SPEC, {})
    assert {f.rule: (f.verdict, f.detail) for f in findings if f.verdict != "passed"} == {
        "tools": ("skipped", "it declares no tools")
    }
    assert len(findings) == len(RULES) == 16


@pytest.mark.parametrize(("spec", "rule"), WAYS, ids=[f"{i}-{rule}" for i, (_, rule) in enumerate(WAYS)])
def test_a_way_of_breaking_it_is_caught_by_name(spec: EnvSpec, rule: str) -> None:
    caught = {f.rule: f.detail for f in check(spec, {}) if f.verdict == "failed"}
    assert rule in caught
    assert len(caught[rule]) < 600


def test_a_verb_that_hangs_fails_its_rule_and_the_others_go_on() -> None:
    rules = [rule for rule in RULES if rule.__name__ in ("builds", "limits")]
    findings = check(changed(Hangs), {}, rules=rules, deadline_s=0.2)
    assert [(f.rule, f.verdict) for f in findings] == [("builds", "passed"), ("limits", "failed")]
    assert findings[1].detail == "took over 0.2 s"


def test_cumulative_rewards_are_not_added_up() -> None:
    class Total(Climb):
        def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
            observation, _, *rest = super().step(action)
            return observation, self.at / self.goal, *rest  # type: ignore[return-value]

    def failed(spec: EnvSpec) -> list[str]:
        return [f.rule for f in check(spec, {}) if f.verdict == "failed"]

    assert failed(changed(Total, reward_kind=RewardKind.CUMULATIVE)) == []
    assert "rewards" in failed(changed(Total))


def test_the_command_ends_with_one_on_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    register(replace(changed(Generous), id="test/Generous-v1"))
    assert run(["check", "test/Generous-v1", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert [f["rule"] for f in told["findings"] if f["verdict"] == "failed"] == ["rewards", "gold"]
    register(replace(SPEC, id="test/Good-v1"))
    assert run(["check", "test/Good-v1"]) == 0
    assert "FAILED" not in capsys.readouterr().out
    assert run(["check", "no/Such-v1"]) == 2
