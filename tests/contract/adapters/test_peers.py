"""Adapters whose peers have virtual environments of their own: each is really played, and its rewards are the peer's."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from envhub.envs.adapters.browsergym import SIGNATURES, parse_actions
from envhub.envs.check import check
from envhub.envs.runtime.process import EnvProcess, child_command, spec_of
from envhub.envs.spec import EnvSpec
from envhub.envs.tasks import Task
from envhub.errors import ConfigError
from tests.contract.adapters.peers import adapted, peer_python

pytestmark = pytest.mark.slow
SOFT = {"builds"}  # some peers take any keyword, and say nothing


def failures(spec: EnvSpec) -> list[tuple[str, str]]:
    return [(f.rule, f.detail) for f in check(spec, {}) if f.verdict == "failed" and f.rule not in SOFT]


def begin(spec: EnvSpec, index: int = 0) -> Any:
    env: Any = spec.make()
    task = spec.tasks().get("train", index) if spec.tasks else Task("", {})
    env.first = env.reset(seed=1, options={"task": dict(task.data)} if task.data else None)
    return env


BROWSERGYM = """
import inspect, json
from browsergym.core.action import functions
from browsergym.core.action.highlevel import HighLevelActionSet
actions = HighLevelActionSet(subsets=["chat", "infeas", "bid", "coord", "nav", "tab"]).action_set
told = {name: [inspect.signature(getattr(functions, name)), action.examples] for name, action in actions.items()}
for name in ("check", "uncheck"):  # of some of its sets
    told[name] = [inspect.signature(getattr(functions, name)), []]
needed = lambda p: p.default is p.empty
print(json.dumps({name: [[[p.name, needed(p)] for p in s.parameters.values()], e] for name, (s, e) in told.items()}))
"""


def test_every_action_of_browsergym_is_read() -> None:
    command = [peer_python(["browsergym-core==0.14.3"]), "-c", BROWSERGYM]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    assert set(told) == set(SIGNATURES)
    for name, (parameters, examples) in told.items():
        required, optional, keywords = SIGNATURES[name]
        assert [needed for _, needed in parameters] == [True] * len(required) + [False] * len(optional), name
        assert {parameter for parameter, _ in parameters} == keywords
        for example in examples:
            (action,) = parse_actions(example)
            assert action.name in (name, "keyboard_up")  # keyboard_down's examples are those of keyboard_up


def test_textarena_plays_one_and_two_players() -> None:
    spec = adapted(["textarena==0.7.4"], "textarena", "TicTacToe-v0")
    assert spec.players == 2
    env = begin(spec)
    assert "Player 0 in Tic Tac Toe" in env.first[0]
    seen = [env.step(move) for move in ("[4]", "[0]", "[3]", "[1]", "[5]")]
    assert [step[4]["player"] for step in seen[:-1]] == [1, 0, 1, 0]
    assert seen[-1][:3] == ("Player 0 has won!", 1.0, True)
    assert seen[-1][4]["rewards"] == [1.0, -1.0]
    assert failures(spec) == []
    one = adapted(["textarena==0.7.4"], "textarena", "GuessTheNumber-v0")
    env = begin(one)
    low, high = 1, 20
    for _ in range(6):
        middle = (low + high) // 2
        observation, reward, terminated, *_ = env.step(f"[{middle}]")
        if terminated:
            break
        low, high = (middle + 1, high) if observation.rstrip().endswith("higher.") else (low, middle - 1)
    assert (reward, terminated) == (1, True)
    assert failures(one) == []
    with pytest.raises(ConfigError, match="downloads a word list"):
        adapted(["textarena==0.7.4"], "textarena", "Wordle-v0")


def test_minigrid_is_walked_as_text() -> None:
    spec = adapted(["minigrid==3.2.0"], "minigrid_text", "MiniGrid-Empty-5x5-v0")
    env = begin(spec)
    assert env.first[0].startswith("Mission: get to the green goal square")
    for word in ("forward", "forward", "right", "forward", "forward"):
        _, reward, terminated, _, info = env.step(f"I go {word}.")
    assert (terminated, info["success"]) == (True, True)
    assert reward == pytest.approx(1 - 0.9 * 5 / 100)
    assert failures(spec) == []
    assert failures(adapted(["minigrid==3.2.0"], "minigrid_text", "BabyAI-GoToRedBall-v0")) == []


def test_textworlds_walkthrough_wins() -> None:
    spec = adapted(["textworld==1.7.0"], "textworld", "new")
    assert spec.solver is not None
    for index in range(3):
        env = begin(spec, index)
        total, info = 0.0, {}
        for _ in range(spec.max_turns):
            action = spec.solver(env)
            assert action in env.legal_actions()
            _, reward, terminated, _, info = env.step(action)
            total += reward
            if terminated:
                break
        assert (total, info["success"]) == (1.0, True)
    assert failures(spec) == []


@pytest.mark.parametrize("game", ["game:Mastermind-v0-easy", "game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy"])
def test_gems_games_are_played(game: str) -> None:
    spec = adapted(["gem-llm==0.1.0"], "gem", game)
    assert failures(spec) == []
    if "Guess" in game:
        env, low, high = begin(spec), 1, 10
        for _ in range(12):
            middle = (low + high) // 2
            observation, reward, terminated, truncated, info = env.step(f"\\boxed{{{middle}}}")
            if terminated or truncated:
                break
            low, high = (middle + 1, high) if "higher than" in observation else (low, middle - 1)
        assert (reward, info["success"]) == (1.0, True)


def test_skyrl_gym_scores_as_it_does() -> None:
    spec = adapted(["skyrl-gym==0.4.0"], "skyrl_gym", "gsm8k")
    env: Any = spec.make()
    for answer, wanted in (("so #### 18", 1.0), ("so #### 17", 0.0)):
        task = {"prompt": [{"role": "user", "content": "9 + 9?"}], "extras": {"reward_spec": {"ground_truth": "18"}}}
        assert env.reset(options={"task": task})[0] == "9 + 9?"
        assert env.step(answer)[1:3] == (wanted, True)
    assert failures(adapted(["skyrl-gym==0.4.0"], "skyrl_gym", "aime")) == []


OLD = '''
import verifiers as vf
from datasets import Dataset

def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: first
        b: second
    """
    return a + b

def right(completion, answer, **kw):
    return float(answer in completion[-1]["content"])

def brief(completion, **kw):
    return 0.5

class Guess(vf.MultiTurnEnv):
    async def is_completed(self, messages, state, **kw):
        said = [m["content"].strip() for m in messages if m["role"] == "assistant"]
        return state["answer"] in said or await self.max_turns_reached(state)
    async def env_response(self, messages, state, **kw):
        word = "higher" if int(messages[-1]["content"]) < int(state["answer"]) else "lower"
        return [{"role": "user", "content": word}], state

def load_environment(kind="single"):
    data = Dataset.from_list([{"question": f"{i}+{i}?", "answer": str(2 * i)} for i in range(1, 6)])
    rubric = vf.Rubric(funcs=[right, brief], weights=[1.0, 0.2])
    if kind == "single":
        return vf.SingleTurnEnv(dataset=data, rubric=rubric, system_prompt="Add.")
    if kind == "tools":
        return vf.ToolEnv(dataset=data, rubric=rubric, tools=[add], max_turns=4)
    return Guess(dataset=data, rubric=rubric, max_turns=5)
'''
NEW = """
import verifiers.v1 as vf

__all__ = ["Sums"]

class Sum(vf.TaskData):
    answer: str

class SumTask(vf.Task[Sum]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        return float(trace.assistant_messages[-1].content.strip() == self.data.answer)

    @vf.reward(weight=0.5)
    async def brief(self, trace) -> float:
        return float(len(trace.assistant_messages[-1].content) < 10)

class Sums(vf.Taskset[SumTask]):
    def load(self):
        for i in range(1, 6):
            yield SumTask(Sum(prompt=f"{i}+{i}?", system_prompt="Add.", answer=str(2 * i)), self.config.task)
"""


def hosted(requirements: list[str], target: str) -> EnvSpec:
    running = EnvProcess(child_command(peer_python(requirements), target), name=target)
    return spec_of(lambda: running)


def test_an_old_verifiers_environment_is_hosted_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sums.py").write_text(OLD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = hosted(["verifiers==0.1.5"], "envhub.envs.adapters.verifiers_v0:spec(sums)")
    assert spec.tasks is not None
    task = {"task": dict(spec.tasks().get("train", 2).data)}
    single: Any = spec.make()
    assert single.reset(options=task)[0] == "Add.\n\n3+3?"
    _, reward, terminated, _, info = single.step("It is 6")
    assert (reward, terminated, info["reward_parts"]) == (pytest.approx(1.1), True, {"right": 1.0, "brief": 0.5})
    single.reset(options=task)
    assert single.step("It is 7")[1] == pytest.approx(0.1)
    tools: Any = spec.make(kind="tools")
    tools.reset(options=task)
    call = '<tool_call>{"name": "add", "arguments": {"a": 3, "b": 3}}</tool_call>'
    assert tools.step(call)[:3] == ("6", 0.0, False)
    assert tools.step("6")[1:3] == (pytest.approx(1.1), True)
    guess: Any = spec.make(kind="guess")
    guess.reset(options=task)
    assert [guess.step("3")[0], guess.step("9")[0]] == ["higher", "lower"]
    assert guess.step("6")[1:3] == (pytest.approx(1.1), True)
    guess.reset(options=task)
    guess.close()
    assert failures(spec) == []


def test_a_new_verifiers_task_set_is_hosted_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sums_v1.py").write_text(NEW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec = hosted(["verifiers==0.4.0"], "envhub.envs.adapters.verifiers_v1:spec(sums_v1)")
    assert spec.tasks is not None
    task = {"task": dict(spec.tasks().get("train", 2).data)}
    env: Any = spec.make()
    assert env.reset(options=task)[0] == "Add.\n\n3+3?"
    _, reward, terminated, _, info = env.step("6")
    assert (reward, terminated, info["reward_parts"]) == (2.5, True, {"right": 1.0, "brief": 1.0})
    env.reset(options=task)
    assert env.step("a very long answer")[1] == 0.0
    assert failures(spec) == []


def test_random_play_of_textarena_ends_within_its_limits() -> None:
    spec = adapted(["textarena==0.7.4"], "textarena", "Mastermind-v0")
    env, chance = begin(spec), random.Random(1)
    for _ in range(spec.max_turns):
        digits = chance.sample("123456", 4)
        _, reward, terminated, truncated, _ = env.step(f"[{' '.join(digits)}]")
        if terminated or truncated:
            break
    assert terminated
    assert -1.0 <= reward <= 1.0
