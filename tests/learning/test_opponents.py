"""A game of two: learning against itself and against another model, and measuring one model against another."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envhub.telemetry import read_metrics
from tests.conftest import LAKE, write_small_config

GAME = "duel/TicTacToe-v1"


def envhub(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "envhub.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_small_config(tmp_path_factory.mktemp("duel"))
    path.write_text(path.read_text().replace(LAKE, f"{{id: {GAME}, max_turns: 27}}"))
    assert envhub("train", str(path), "run.updates=2").returncode == 0  # against itself
    return path


def test_a_model_learns_against_another(config: Path) -> None:
    folder = config.parent / "runs"
    more = ["run.name=other", "run.updates=2", f"env.opponents=[hf:{folder / 'small' / 'model'}]"]
    done = envhub("train", str(config), *more)
    assert done.returncode == 0, done.stderr
    rows = list(read_metrics(folder / "other" / "metrics.jsonl"))
    assert [row["update"] for row in rows if "update" in row][-1] == 2
    wrong = envhub("train", str(config), "run.name=third", f"env.opponents=[hf:{folder / 'none'}]")
    assert wrong.returncode == 2
    assert str(folder / "none") in wrong.stderr


def test_what_one_seat_wins_the_other_loses(config: Path) -> None:
    model = f"hf:{config.parent / 'runs' / 'small' / 'model'}"
    greedy = ["--temperature", "0.01", "--max-tokens", "1", "--episodes", "6", "--json"]

    def reward(seat: int) -> Any:
        done = envhub("eval", GAME, "--policy", model, "--opponent", model, "--seat", str(seat), *greedy)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["reward_mean"]

    assert reward(0) == -reward(1)
