"""A run killed at any moment and resumed ends with the weights of the run that was not."""

import contextlib
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from safetensors.torch import load_file

from envhub.journal import Journal
from envhub.telemetry import read_metrics
from envhub.trainer.publish import checksum
from tests.conftest import write_small_config


def train(config: Path, name: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "envhub.cli.main", "train", str(config), f"run.name={name}", *more]


def weights(config: Path, name: str) -> str:
    return checksum(load_file(config.parent / "runs" / name / "model" / "model.safetensors"))


def killed(command: list[str], line_start: str, delay_s: float) -> None:
    """Run until a line of its output, and kill -9 it a moment later."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith(line_start))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=delay_s)
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of the run that nobody killed."""
    config = write_small_config(tmp_path_factory.mktemp("whole"))
    subprocess.run(train(config, "whole"), check=True, capture_output=True, timeout=120)
    return weights(config, "whole")


@pytest.mark.parametrize("moments", [("warm-up", "update"), ("update 2/", "update"), ("update 4/",)])
def test_a_run_killed_at_random_moments_ends_with_the_same_weights(
    small_config: Path, moments: tuple[str, ...], whole: str
) -> None:
    chance = random.Random(str(moments))
    more: list[str] = []
    for moment in moments:
        killed(train(small_config, "killed", *more), moment, chance.uniform(0.0, 0.08))
        more = ["--resume"]
    subprocess.run(train(small_config, "killed", *more), check=True, capture_output=True, timeout=120)
    assert weights(small_config, "killed") == whole
    rows = read_metrics(small_config.parent / "runs" / "killed" / "metrics.jsonl")
    assert [row["update"] for row in rows] == [1, 2, 3, 4, 5]
    assert sum(row["policy/grad_norm"] is not None and row["policy/grad_norm"] > 0 for row in rows) >= 4  # it did learn


def test_a_killed_curriculum_goes_on_with_the_same_tasks(tmp_path: Path) -> None:
    """Weights depend on every task; a level or a decision that was forgotten would change them."""
    config = write_small_config(tmp_path, curriculum=True)
    subprocess.run(train(config, "whole"), check=True, capture_output=True, timeout=120)
    killed(train(config, "killed"), "update 3/", 0.02)
    subprocess.run(train(config, "killed", "--resume"), check=True, capture_output=True, timeout=120)
    assert weights(config, "killed") == weights(config, "whole")
    levels = [row["curriculum/level"] for row in read_metrics(tmp_path / "runs" / "killed" / "metrics.jsonl")]
    assert levels == [row["curriculum/level"] for row in read_metrics(tmp_path / "runs" / "whole" / "metrics.jsonl")]
    assert set(levels) == {0.0, 1.0}


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


def test_asynchronous_training_loses_no_task_when_it_is_killed(small_config: Path) -> None:
    more = ["rollout.max_staleness=2", "run.updates=8", "rollout.episode_deadline_s=30", "sampler.engines=2"]
    more += ["rollout.max_in_flight=auto", "rollout.replay={groups: 2, uses: 3}"]
    runs = small_config.parent / "runs"
    for stop_after in ("update 2/", "update 5/"):
        killed(train(small_config, "async", *more), stop_after, 0.0)
        more = [m for m in more if m != "--resume"] + ["--resume"]
    subprocess.run(train(small_config, "async", *more), check=True, capture_output=True, timeout=120)
    rows = read_metrics(runs / "async" / "metrics.jsonl")
    assert [row["update"] for row in rows] == list(range(1, 9))
    assert max(row["staleness/max"] for row in rows) <= 2
    with Journal.open(runs / "async" / "journal.sqlite") as journal:
        claimed = [group.index for _, groups in journal.claims() for group in groups]
    uses = Counter(claimed)
    assert len(uses) == 64
    assert 2 <= max(uses.values()) <= 3
    assert sum(uses.values()) == 64 + sum(row["groups/replayed"] for row in rows)
    dropped = int(rows[-1]["groups/dropped"])
    assert len(set(range(max(claimed) + 1)) - set(claimed)) <= dropped  # every task before the last was trained on


def test_a_run_is_not_resumed_with_another_algorithm(small_config: Path) -> None:
    subprocess.run(train(small_config, "once", "run.updates=1"), check=True, capture_output=True, timeout=120)
    again = train(small_config, "once", "run.updates=2", "algorithm.clip_low=0.1", "--resume")
    done = subprocess.run(again, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "algorithm.clip_low was 0.2 and is 0.1" in done.stderr


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


def test_a_full_disk_ends_the_run_in_a_sentence_and_loses_nothing(small_config: Path) -> None:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))  # no file may grow beyond it

    command = train(small_config, "full", "run.updates=9")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, preexec_fn=fill)
    assert done.returncode == 1, done.stderr
    assert "cannot write" in done.stderr
    assert "mend: " in done.stderr
    assert "Traceback" not in done.stderr
    subprocess.run([*command, "--resume"], check=True, capture_output=True, timeout=120)
    rows = read_metrics(small_config.parent / "runs" / "full" / "metrics.jsonl")
    assert [row["update"] for row in rows] == list(range(1, 10))


def test_a_signal_during_the_warm_up_ends_the_run_at_once(small_config: Path) -> None:
    command = train(small_config, "early", "trainer.warmup.steps=100000")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("warming up"))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
