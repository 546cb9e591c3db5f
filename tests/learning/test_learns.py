"""A tiny model learns to cross maps that it has never seen; the same command line as the quickstart, cut short."""

import json
import subprocess
import sys
from pathlib import Path

CONFIG = Path(__file__).parents[2] / "configs" / "quickstart.yaml"


def test_success_on_held_out_maps_rises(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "envhub.cli.main", "train", str(CONFIG), "--json", f"run.dir={tmp_path}"]
    short = ["run.updates=15", "eval.every=0", "trainer.warmup_updates=5", "eval.episodes=200"]
    done = subprocess.run([*command, *short], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["before"]["success_rate"] < 0.25
    assert result["after"]["success_rate"] > 0.5
    assert result["after"]["episodes"] == 200
    assert (tmp_path / "quickstart" / "report.html").read_text(encoding="utf-8").count("<img") >= 6
    again = [sys.executable, "-m", "envhub.cli.main", "eval", "game/FrozenLake-v1", "--policy"]
    model = [f"hf:{tmp_path}/quickstart/model", "--option", "style=cells", "--max-tokens", "1", "--max-turns", "10"]
    more = ["--episodes", "200", "--json"]
    played = subprocess.run([*again, *model, *more], capture_output=True, text=True, timeout=120, check=True)
    assert abs(json.loads(played.stdout)["success_rate"] - result["after"]["success_rate"]) < 0.12
