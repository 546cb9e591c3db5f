"""Every tool environment keeps the rules of `envhub check`, in every style of calls, and shrugs at hostile replies."""

import json
import random
from dataclasses import replace
from typing import Any, cast

import pytest
from gymnasium.utils.env_checker import check_env

from envhub.envs import Env, EnvSpec, TaskStream, load_spec, make
from envhub.envs.check import check
from envhub.envs.parsers import STYLES
from envhub_tools.styles import tagged_answer, write_answer, write_call

IDS = ["tool/Calculator-v1", "tool/Memory-v1", "tool/Search-v1"]
HOSTILE = [
    "",
    "\0",
    "a" * 1_000_000,
    "\ud800",
    "\x1b[2J",
    "<|im_end|><|im_start|>system",
    "\uff11",
    "<answer></answer>",
    "nan",
    "1/0",
]
BAD_CALLS = [
    "<tool_call>",
    "<tool_call>{",
    '<tool_call>{"name": "no_such_tool"}</tool_call>',
    '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "calculate", "arguments": {"\\ud800": 1}}</tool_call>',
    '<tool_call>{"name": "put", "arguments": {"\\ud800": "\\ud800"}}</tool_call>',
    '<tool_call>{"name": "search", "arguments": {"query": ["\\ud800"]}}</tool_call>',
    '<tool_call>{"name": "\\ud800", "arguments": 3}</tool_call>',
    '<tool_call>{"name": "read", "arguments": {"title": ' + "[" * 9000 + "</tool_call>",
    '<tool_call>{"name": "keys", "arguments": {}}</tool_call>' * 33,
]


def spec_of(env_id: str) -> EnvSpec:
    return load_spec(env_id)


def stream(env_id: str, split: str = "test", **options: Any) -> TaskStream:
    tasks = spec_of(env_id).tasks
    assert tasks is not None
    return TaskStream(tasks(**options), split, 0)


def play(env: Env, spec: EnvSpec, task: dict[str, Any], *, chance: random.Random | None = None) -> list[Any]:
    """The solver's episode, or a random one."""
    seen: list[Any] = [env.reset(seed=3, options={"task": task})]
    for _ in range(spec.max_turns):
        assert spec.solver is not None
        seen.append(env.step(chance.choice(env.legal_actions()) if chance else spec.solver(env)))
        if seen[-1][2]:
            break
    return seen


@pytest.mark.parametrize("env_id", IDS)
def test_every_rule_of_the_kit_is_kept(env_id: str) -> None:
    check_env(cast(Env, make(env_id)), skip_render_check=True)
    findings = check(spec_of(env_id), {})
    assert [f"{f.rule}: {f.detail}" for f in findings if f.verdict != "passed"] == []


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("style", STYLES)
def test_the_solver_earns_all_of_the_reward_in_every_style(env_id: str, style: str) -> None:
    spec = spec_of(env_id)
    for place in range(4):
        env = cast(Env, make(env_id, style=style))
        seen = play(env, spec, dict(stream(env_id, style=style).at(place).data))
        assert seen[-1][4]["success"] is True
        assert sum(step[1] for step in seen[1:]) == pytest.approx(1.0)
        assert not any(step[4].get("illegal") for step in seen[1:])


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("action", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_answer_earns_nothing(env_id: str, action: str) -> None:
    env = cast(Env, make(env_id))
    env.reset(seed=1)
    observation, reward, _, truncated, info = env.step(action)
    assert (float(reward), truncated, info.get("success", False)) == (0.0, False, False)
    assert len(observation.encode()) < 2000
    json.dumps(info)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("action", BAD_CALLS, ids=range(len(BAD_CALLS)))
def test_a_bad_call_is_answered_in_words_and_the_episode_goes_on(env_id: str, action: str) -> None:
    spec, env = spec_of(env_id), cast(Env, make(env_id))
    env.reset(seed=1)
    observation, reward, terminated, _, info = env.step(action)
    assert observation.encode().startswith(b"error: ")
    assert (reward, terminated, info["illegal"]) == (0.0, False, True)
    assert spec.solver is not None
    while not terminated:
        *_, terminated, _, info = env.step(spec.solver(env))
    assert info["success"] is True


@pytest.mark.parametrize("env_id", IDS)
def test_an_answer_of_nothing_or_thoughts_alone_is_none(env_id: str) -> None:
    for reply in ("", "<think>", "<answer>", "</answer><answer>", "I do not know."):
        env = cast(Env, make(env_id))
        env.reset(seed=2)
        total, ended = 0.0, False
        while not ended:
            _, reward, ended, _, info = env.step(reply)
            total += float(reward)
        assert (total, info["success"]) == (0.0, False)


@pytest.mark.parametrize("env_id", IDS)
def test_a_fork_in_mid_episode_has_the_same_future(env_id: str) -> None:
    spec = spec_of(env_id)
    for place in range(6):
        env = cast(Env, make(env_id))
        env.reset(seed=place, options={"task": dict(stream(env_id).at(place).data)})
        assert spec.solver is not None
        for _ in range(2):
            env.step(spec.solver(env))
        twin, held = env.fork(), env.snapshot()

        def future(one: Env) -> list[Any]:
            chance, steps = random.Random(4), []
            for _ in range(12):
                steps.append(one.step(chance.choice(one.legal_actions())))
            return steps

        wanted = future(env)
        assert future(twin) == wanted
        env.restore(held)
        assert future(env) == wanted


@pytest.mark.parametrize("env_id", IDS)
def test_tasks_repeat_and_splits_share_none(env_id: str) -> None:
    streams = {split: stream(env_id, split) for split in ("train", "validation", "test")}
    seen = {split: {one.at(place).id for place in range(150)} for split, one in streams.items()}
    again = stream(env_id, "test")
    assert seen["test"] == {again.at(place).id for place in range(150)}
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & (seen["train"] | seen["test"])


@pytest.mark.parametrize("env_id", IDS)
def test_an_unknown_style_is_refused(env_id: str) -> None:
    spec = replace(spec_of(env_id))
    for build in (spec.make, spec.tasks):
        assert build is not None
        with pytest.raises(ValueError, match="must be one of: hermes"):
            build(style="latin")


@pytest.mark.parametrize("style", STYLES)
def test_what_is_written_is_read_back(style: str) -> None:
    arguments = {"title": 'a "quoted"\ntitle <b>', "limit": 3}
    read = STYLES[style](write_call(style, "read", **arguments))
    assert [(call.name, dict(call.arguments)) for call in read.calls] == [("read", arguments)]
    assert not read.problems
    answer = STYLES[style](write_answer(style, "42"))
    assert not answer.calls
    assert tagged_answer(answer.text if answer.answer is None else answer.answer)[0] == "42"


def test_the_last_tagged_answer_counts_and_thoughts_do_not() -> None:
    assert tagged_answer("<answer>1</answer> no: <answer> 2 </answer> done") == ("2", True)
    assert tagged_answer("<think><answer>1</answer></think>so it is 5") == ("so it is 5", False)
    assert tagged_answer("<think><answer>1</answer>") == ("", False)
