"""Reward workers of a config: rules in threads, code behind the wall, judges over a socket."""

import asyncio
import json
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from envhub.envs import Task
from envhub.envs.rubrics import Graded
from envhub.errors import ConfigError
from envhub.rollout.scoring import RewardConfig, RewardWorkers, build_rewards
from envhub.runs.config import EnvConfig
from envhub.runs.stage import build_stage
from envhub.settings import checked
from envhub.types import Trajectory
from tests.unit.builders import trajectory
from tests.unit.chat_model import Model, serving

TASK = Task.of({"n": 2})
EXCHANGES = (("see", "go"), ("seen", "stop"))
CONFIG: TypeAdapter[RewardConfig] = TypeAdapter(RewardConfig)


def applied(rewards: RewardWorkers, to: Trajectory | None = None) -> Trajectory:
    return asyncio.run(rewards.apply(to or trajectory(), TASK, EXCHANGES))


CALLS: list[Callable[[], float]] = []


def called_last(episode: Graded) -> float:
    return CALLS[-1]()


def brevity(episode: Graded) -> dict[str, float]:
    return {"turns": float(len(episode.turns)), "own": episode.env_reward or 0.0}


def rule(function: str, **terms: Any) -> RewardWorkers:
    return build_rewards([CONFIG.validate_python({"kind": "rule", "name": "rule", "function": function, **terms})])


def test_a_rule_is_a_function_of_installed_code() -> None:
    assert applied(rule(f"{__name__}:brevity", weight=0.5)).reward == 1.0 + 0.5 * (2.0 + 1.0)
    for wrong in ("nowhere_at_all:score", f"{__name__}:nothing", f"{__name__}:EXCHANGES"):
        with pytest.raises(ConfigError, match="reward '"):
            rule(wrong)


def test_a_function_that_hangs_in_its_thread_is_left_behind_at_its_deadline() -> None:
    release = threading.Event()
    CALLS.append(lambda: float(release.wait(20)))
    began = time.monotonic()
    try:
        found = applied(rule(f"{__name__}:called_last", deadline_s=0.1))
        assert time.monotonic() - began < 5
        assert found.failure == "reward worker rule took over 0.1 s"
    finally:
        release.set()


SANDBOXED = """
import os
def score(episode):
    print("noise")
    return {"length": len(episode.answer), "shown": len(episode.final_observation), "sees": os.path.exists("/etc/passwd")}
def hang(episode):
    while True: pass
def loud(episode):
    raise KeyError(episode.task_id)
"""


def sandboxed(tmp_path: Path, name: str, **terms: Any) -> Trajectory:
    (tmp_path / "reward.py").write_text(SANDBOXED)
    config = {"kind": "sandbox", "name": "box", "function": f"{tmp_path}/reward.py:{name}", "memory_mib": 512, **terms}
    return applied(build_rewards([CONFIG.validate_python(config)]), replace(trajectory(), final_observation="the end"))


def test_a_file_of_code_is_run_behind_the_wall(tmp_path: Path) -> None:
    found = sandboxed(tmp_path, "score")
    assert found.turns[-1].reward_parts == {"environment": 1.0, "box/length": 4.0, "box/shown": 7.0, "box/sees": 0.0}
    assert found.reward == 1.0 + 4.0 + 7.0


def test_what_breaks_behind_the_wall_is_named(tmp_path: Path) -> None:
    found = sandboxed(tmp_path, "loud")
    assert found.failed
    assert "reward worker box failed: " in str(found.failure)
    assert TASK.id in str(found.failure)
    began = time.monotonic()
    assert sandboxed(tmp_path, "hang", deadline_s=1.5).failure == "reward worker box took over 1.5 s"
    assert time.monotonic() - began < 8
    with pytest.raises(ConfigError, match="no such file"):
        build_rewards([CONFIG.validate_python({"kind": "sandbox", "name": "box", "function": f"{tmp_path}/none.py:score"})])


@pytest.fixture
def base_url() -> Iterator[str]:
    with serving() as url:
        yield url


def test_a_judge_scores_over_a_real_socket_and_is_closed(base_url: str) -> None:
    config = {"kind": "judge", "name": "judge", "criterion": "polite?", "model": "m", "base_url": base_url, "concurrency": 2}
    rewards = build_rewards([CONFIG.validate_python(config)], env_weight=0.0)

    async def run() -> list[Trajectory]:
        async with asyncio.TaskGroup() as group:
            scoring = [group.create_task(rewards.apply(trajectory(), TASK, EXCHANGES)) for _ in range(6)]
        Model.status = 500
        broken = await rewards.apply(trajectory(), TASK, EXCHANGES)
        await rewards.close()
        return [*(task.result() for task in scoring), broken, await rewards.apply(trajectory(), TASK, EXCHANGES)]

    Model.answer, Model.status, Model.most = '{"reason": "so", "score": 0.75}', 200, 0
    *found, broken, late = asyncio.run(run())
    assert [t.reward for t in found] == [0.75] * 6
    assert Model.most == 2
    shown = {"task": {"n": 2}, "answer": "stop", "turns": [["see", "go"], ["seen", "stop"]], "final_observation": ""}
    assert json.loads(Model.asked["messages"][1]["content"]) == shown
    assert "reward worker judge failed: the judge answered 500" in str(broken.failure)
    assert "reward worker judge raised RuntimeError" in str(late.failure)


# From a config


def test_a_config_declares_workers_and_build_stage_builds_them() -> None:
    rewards = [{"kind": "rule", "name": "brief", "function": f"{__name__}:brevity", "weight": 0.25}]
    config = checked(
        EnvConfig, {"id": "game/FrozenLake-v1", "rewards": rewards, "reward_weight": 3.0, "options": {"size": 2}}, source="test"
    )
    on = build_stage(config.id, config.options, rewards=config.rewards, reward_weight=config.reward_weight)
    assert on.rewards is not None
    assert applied(on.rewards).reward == 3.0 + 0.25 * 3.0
    assert build_stage(config.id, config.options).rewards is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"rewards": [{"kind": "oracle", "name": "x"}]}, "rewards"),
        ({"rewards": [{"kind": "rule", "name": "x"}]}, "function"),
        ({"rewards": [{"kind": "rule", "name": "a/b", "function": "a:b"}]}, "name"),
        ({"rewards": [{"kind": "rule", "name": "x", "function": "a:b", "memory_mib": 64}]}, "memory_mib"),
        ({"rewards": [{"kind": "rule", "name": "x", "function": "a:b", "concurrency": 0}]}, "concurrency"),
        ({"reward_weight": 0.5}, "reward_weight"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        checked(EnvConfig, {"id": "x", **wrong}, source="test")


def test_the_page_on_environments_tells_the_truth() -> None:
    page = (Path(__file__).parents[2] / "docs/environments.md").read_text(encoding="utf-8")
    section = page.split("## Reward workers\n")[1].split("\n## ")[0]
    written = yaml.safe_load(textwrap.dedent("\n".join(re.findall(r"^    (?:env:|  ).*$", section.split("```")[0], re.M))))
    assert [reward.name for reward in checked(EnvConfig, written["env"], source="page").rewards] == ["brief", "plan"]
    program, said = re.findall(r"```(?:python|text)\n(.*?)```", section, re.S)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == said
