"""The house itself: what an import costs, and what a newcomer may rely on when opening a room."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = sorted(p for p in (ROOT / "envhub").iterdir() if (p / "__init__.py").exists())


def test_importing_envhub_is_light() -> None:
    code = (
        "import sys, time; began = time.process_time(); import envhub; used = time.process_time() - began;"
        "heavy = {'torch', 'ray', 'vllm', 'deepspeed', 'docker', 'playwright', 'fastapi'} & set(sys.modules);"
        "print(used, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    used, _, heavy = done.stdout.strip().partition(" ")
    assert heavy == "[]"
    assert float(used) < 0.3


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.name)
def test_every_room_explains_itself_in_thirty_lines(room: Path) -> None:
    assert 3 <= len((room / "README.md").read_text(encoding="utf-8").splitlines()) <= 30


def test_files_stay_short() -> None:
    long = {p.name: n for p in (ROOT / "envhub").rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_readmes_environment_runs() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    program = snippet + (
        "\nfrom envhub import make\nenv = make('my/Guess-v1')\nenv.reset(seed=0)\n"
        "print([env.step(str(n))[1] for n in range(10)].count(1.0))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
