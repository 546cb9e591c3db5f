"""A run killed at any moment and resumed ends with the weights of the run that was not."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from envhub.telemetry import read_metrics
from envhub.trainer.publish import checksum


def train(config: Path, name: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "envhub.cli.main", "train", str(config), f"run.name={name}", *more]


def weights(config: Path, name: str) -> str:
    return checksum(load_file(config.parent / "runs" / name / "model" / "model.safetensors"))


def test_a_run_killed_at_random_moments_ends_with_the_same_weights(small_config: Path) -> None:
    began = time.monotonic()
    subprocess.run(train(small_config, "whole"), check=True, capture_output=True, timeout=120)
    seconds = time.monotonic() - began
    chance = random.Random(11)
    runs = small_config.parent / "runs"
    kills = 0
    while kills < 5:
        shutil.rmtree(runs / "killed", ignore_errors=True)
        more: list[str] = []
        for _ in range(2):
            process = subprocess.Popen(train(small_config, "killed", *more), stderr=subprocess.DEVNULL)
            try:
                process.wait(timeout=chance.uniform(0.5, 1.0) * seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            process.wait()
            if (runs / "killed" / "config.yaml").exists():
                more = ["--resume"]
        done = subprocess.run(train(small_config, "killed", *more), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert weights(small_config, "killed") == weights(small_config, "whole")
        assert [row["update"] for row in read_metrics(runs / "killed" / "metrics.jsonl")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_a_checkpoint_to_resume_from(small_config: Path, number: signal.Signals, code: int) -> None:
    metrics = small_config.parent / "runs" / "stopped" / "metrics.jsonl"
    with subprocess.Popen(train(small_config, "stopped", "run.updates=500"), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("update 3/"):
                process.send_signal(number)
                break
        process.stderr.read()
        assert process.wait(timeout=60) == code
    done = len(read_metrics(metrics))
    checkpoints = sorted(p.name for p in (metrics.parent / "checkpoints").iterdir())
    assert checkpoints[-1] == f"update-{done:06d}"
    again = train(small_config, "stopped", f"run.updates={done + 2}", "--resume")
    subprocess.run(again, check=True, capture_output=True, timeout=120)
    assert [row["update"] for row in read_metrics(metrics)] == list(range(1, done + 3))


def test_a_run_folder_is_never_overwritten(small_config: Path) -> None:
    short = train(small_config, "once", "run.updates=1")
    subprocess.run(short, check=True, capture_output=True, timeout=120)
    before = (small_config.parent / "runs" / "once" / "metrics.jsonl").read_bytes()
    again = subprocess.run(short, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert (small_config.parent / "runs" / "once" / "metrics.jsonl").read_bytes() == before


def test_there_is_nothing_to_resume_in_a_new_folder(small_config: Path) -> None:
    done = subprocess.run(train(small_config, "new", "--resume"), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "no run to resume" in done.stderr
