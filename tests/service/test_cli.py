"""The commands as a person runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def envhub(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "envhub.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, input=given)


def test_list_names_the_games_without_importing_them() -> None:
    done = envhub("list", "--json")
    assert done.returncode == 0
    assert "game/FrozenLake-v1" in [e["id"] for e in json.loads(done.stdout)]


def test_show_tells_splits_and_an_observation() -> None:
    facts = json.loads(envhub("show", "game/FrozenLake-v1", "--json").stdout)
    assert facts["splits"] == {"train": "endless", "validation": "endless", "test": "endless"}
    assert facts["observation"].startswith("@")


def test_an_unknown_environment_is_a_wrong_request_with_a_mend() -> None:
    done = envhub("show", "game/FrozenLak-v1")
    assert done.returncode == 2
    assert done.stderr == "error: no environment 'game/FrozenLak-v1'\n  mend: did you mean game/FrozenLake-v1?\n"


def test_eval_is_the_same_twice() -> None:
    arguments = ("eval", "game/FrozenLake-v1", "--policy", "random", "--episodes", "50", "--json")
    first, second = (json.loads(envhub(*arguments).stdout) for _ in range(2))
    first.pop("seconds"), second.pop("seconds")
    assert first == second
    assert first["episodes"] == 50
    assert first["failed"] == 0


def test_a_script_is_played(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("left\n" * 100, encoding="utf-8")
    done = envhub("eval", "game/FrozenLake-v1", "--policy", f"scripted:{tmp_path}/script", "--episodes", "3", "--json")
    assert json.loads(done.stdout)["success_rate"] == 0.0


def test_a_person_can_play_and_leave() -> None:
    done = envhub("play", "game/FrozenLake-v1", given="right\nnonsense\n")
    assert done.returncode == 0
    assert "Answer with one word" in done.stdout
    assert "the player left after" in done.stdout


def test_a_dry_run_shows_config_and_schedule_and_writes_nothing(small_config: Path) -> None:
    done = envhub("train", str(small_config), "--dry-run", "--json")
    shown = json.loads(done.stdout)
    assert shown["schedule"]["episodes"] == 320
    assert shown["config"]["algorithm"]["clip_low"] == 0.2
    assert not (small_config.parent / "runs").exists()


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["rollout.group_size=1"], "rollout.group_size: input should be greater than or equal to 2"),
        (["algorithm.keep_per_group=9"], "keep_per_group 9 is more than rollout.group_size 8"),
        (["sampler.max_tokens=-3"], "sampler.max_tokens"),
        (["model.init=null", "model.path=/nowhere"], "is for models built by model.init"),
        (["model.init=null", "model.path=/nowhere", "trainer.warmup.steps=0"], "no model at /nowhere"),
        (["sampler.format=chat"], "no chat template"),
        (["env.split=tset"], "use one of: train, validation, test"),
        (["env.options={size: 1}"], "refuses its options"),
        (["run.name=../escape"], "run.name"),
        (["run.dir=/proc/envhub"], "cannot write to"),
    ],
)
def test_a_wrong_request_is_refused_in_a_sentence(small_config: Path, overrides: list[str], part: str) -> None:
    done = envhub("train", str(small_config), *overrides)
    assert done.returncode == 2, done.stderr
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_always_answers() -> None:
    done = envhub("doctor", "--json")
    assert done.returncode == 0
    assert {"torch", "vllm"} <= {line["what"] for line in json.loads(done.stdout)}
