"""`envhub plan`: the config's own schedule on a virtual clock, with assumed durations or those of a recorded run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from envhub.cli.main import run as command
from envhub.errors import ConfigError
from envhub.journal.store import Journal
from envhub.runs.config import TrainConfig
from envhub.runs.folder import RunFolder
from envhub.runs.plan import plan, read_recording
from tests.unit.builders import trajectory

CONFIG = "configs/quickstart.yaml"


def small(**rollout: object) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "run": {"name": "a", "updates": 3},
            "env": {"id": "game/FrozenLake-v1"},
            "model": {"path": "m"},
            "rollout": {"group_size": 2, "groups_per_update": 2, **rollout},
        }
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two groups of two: 1, 2, 3 and 4 s; one more attempt that failed; two updates, of 0.5 s and 0.7 s."""
    folder = RunFolder(tmp_path / "run")
    folder.root.mkdir()
    played = [
        replace(trajectory(f"train-{index:06d}/{member}.0"), seconds=1.0 + 2 * index + member)
        for index in range(2)
        for member in range(2)
    ]
    failed = replace(trajectory("train-000002/0.0", reward=None), seconds=9.0)
    measured = replace(trajectory("before-000000/0.0"), seconds=100.0)
    with Journal.open(folder.journal) as journal:
        journal.append([*played, failed, measured])
    rows = [
        {"update": 1, "time/train_s": 0.4, "time/publish_s": 0.1},
        {"update": 2, "time/train_s": 0.6, "time/publish_s": 0.1},
    ]
    folder.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder.root


def test_a_recording_tells_durations_by_place_and_the_share_of_failures(recorded: Path) -> None:
    found = read_recording(recorded)
    assert found.seconds == {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (1, 1): 4.0}
    assert found.failing == pytest.approx(1 / 5)
    assert found.train_s == pytest.approx(0.6)


def test_a_recorded_run_is_replayed_with_its_own_durations(recorded: Path) -> None:
    assumed = {"slots": 4, "updates": 1, "failing": 0.0}
    _, (own, *_) = plan(small(), assumed=assumed, recording=read_recording(recorded))
    assert own.simulation is not None
    assert own.simulation.seconds == pytest.approx(4.0 + 0.6)  # the slowest of four, then the update
    _, (narrow, *_) = plan(small(), assumed=assumed | {"slots": 1}, recording=read_recording(recorded))
    assert narrow.simulation is not None
    assert narrow.simulation.seconds == pytest.approx(1 + 2 + 3 + 4 + 0.6)


def test_what_is_assumed_wins_over_what_was_recorded(recorded: Path) -> None:
    assumed = {"slots": 4, "updates": 1, "failing": 0.0, "mean_s": 10.0, "sigma": 0.0, "train_s": 2.0}
    workload, (own, *_) = plan(small(), assumed=assumed, recording=read_recording(recorded))
    assert workload.recorded_s == ()
    assert own.simulation is not None
    assert own.simulation.seconds == pytest.approx(12.0)


def test_the_configs_own_schedule_comes_first_and_others_beside_it() -> None:
    _, planned = plan(small(max_staleness=2), assumed={"updates": 20, "slots": 4})
    assert [each.name for each in planned] == ["this config", "staleness 0", "staleness 1", "staleness 4"]
    own, synchronous = planned[0].simulation, planned[1].simulation
    assert own is not None
    assert synchronous is not None
    assert synchronous.staleness_max == 0
    assert own.staleness_max <= 2
    assert own.steady_s < synchronous.steady_s


def test_a_schedule_that_would_stop_says_why() -> None:
    _, (own, *_) = plan(small(), assumed={"failing": 1.0})
    assert own.simulation is None
    assert "failed" in own.problem


@pytest.mark.parametrize("assumed", [{"sgma": 1}, {"sigma": -1}, {"slots": "many"}])
def test_wrong_assumptions_are_refused(assumed: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="--assume"):
        plan(small(), assumed=assumed)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no run"):
        read_recording(tmp_path)


def test_the_command_gives_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["plan", CONFIG, "--simulate", "--assume", "updates=5", "--assume", "sigma=0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schedule"]["episodes"] == 20480
    assert found["assumed"]["sigma"] == 0.5
    assert [row["schedule"] for row in found["simulated"]][:2] == ["this config", "staleness 1"]
    assert command(["plan", CONFIG]) == 0
    assert "20,480" in capsys.readouterr().out
    assert command(["plan", CONFIG, "--assume", "sigma=1"]) == 2
