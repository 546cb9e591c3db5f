"""`envhub status`: the oldest episodes, what each waits for and since when, and whether the run is still there."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from envhub.cli.main import run as command
from envhub.envs.tasks import Task
from envhub.errors import ConfigError
from envhub.journal.store import Journal
from envhub.rollout.config import RolloutConfig
from envhub.rollout.driver import RolloutDriver
from envhub.rollout.episode import Place
from envhub.rollout.scheduler import Scheduler
from envhub.runs.folder import RunFolder
from envhub.runs.status import RunStatus, Watch, read_status
from envhub.types import Trajectory
from tests.unit.builders import trajectory


class Notes:
    """A display that keeps its sentences."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)

    def start(self, total_updates: int) -> None: ...

    def update(self, metrics: object) -> None: ...

    def close(self) -> None: ...


class Forgets:
    """A record that keeps nothing."""

    def append(self, trajectories: Sequence[Trajectory]) -> None: ...

    def supersede(self, ids: Sequence[str], reason: str) -> None: ...


async def hangs(task: Task, place: Place) -> Trajectory:
    """The first member hangs in a step, the second wins."""
    if place.member:
        return trajectory(place.id)
    place.tell("step")
    await asyncio.sleep(3600)
    raise AssertionError


async def look(folder: Path, notes: Notes) -> RunStatus:
    now = 100.0
    scheduler = Scheduler(RolloutConfig(group_size=2, groups_per_update=1), seed=0)
    driver = RolloutDriver(scheduler, hangs, lambda index: Task("t", {}), Forgets(), clock=lambda: now)
    watch = Watch(folder / "status.json", driver, notes, 7, clock=lambda: now)
    async with driver.running():
        await asyncio.sleep(0.05)
        watch.doing("waiting for episodes", 3)
        now = 148.0
        watch.warn(watch.write())
        now = 170.0
        status = watch.write()
        watch.warn(status)
    return status


def test_it_names_what_is_slow_and_says_so_once(tmp_path: Path) -> None:
    notes = Notes()
    status = asyncio.run(look(tmp_path, notes))
    (oldest,) = status.oldest
    assert (oldest.id, oldest.phase, oldest.age_s, oldest.phase_s, oldest.slow) == ("train-000000/0.0", "step", 70, 70, True)
    assert notes.said == ["slow: train-000000/0.0 in step for 48 s; 48 s old"]
    assert (status.update, status.updates, status.doing, status.doing_s) == (3, 7, "waiting for episodes", 70)
    assert (status.started, status.in_flight, status.ready) == (2, 1, 0)
    (tmp_path / "config.yaml").touch()
    assert read_status(tmp_path, clock=lambda: status.written_s + 5) == (status, False, 5.0)


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({}, "there is no run"),
        ({"config.yaml": ""}, "has not begun to play"),
        ({"config.yaml": "", "status.json": "{"}, "cannot read"),
        ({"config.yaml": "", "status.json": '{"pid": 1}'}, "cannot read"),
    ],
)
def test_what_is_no_run_is_told_plainly(
    files: dict[str, str], part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=part):
        read_status(tmp_path)
    assert command(["status", str(tmp_path)]) == 2
    assert part in capsys.readouterr().err


def test_a_run_tells_its_status_and_scores_by_its_reward_workers(small_config: Path) -> None:
    """The config's workers reach the stage: every episode has their part, and their reward."""
    more = ["run.updates=1", "env.rewards=[{kind: rule, name: half, function: 'tests.unit.test_status:half'}]"]
    train = [sys.executable, "-m", "envhub.cli.main", "train", str(small_config), *more]
    subprocess.run(train, check=True, capture_output=True, timeout=120)
    folder = RunFolder(small_config.parent / "runs" / "small")
    with Journal.read(folder.journal) as journal:
        played = list(journal.trajectories())
    assert len(played) == 64
    assert all(t.turns[-1].reward_parts["half"] == 0.5 for t in played)
    shown = [sys.executable, "-m", "envhub.cli.main", "status", str(folder.root)]
    told = subprocess.run(shown, check=True, capture_output=True, text=True, timeout=60).stdout
    assert "the run has ended" in told
    assert "1 of 1" in told
    as_json = json.loads(subprocess.run([*shown, "--json"], check=True, capture_output=True, text=True, timeout=60).stdout)
    assert (as_json["alive"], as_json["started"], as_json["failed"]) == (False, 64, 0)


def half(episode: object) -> float:
    """A reward worker."""
    return 0.5
