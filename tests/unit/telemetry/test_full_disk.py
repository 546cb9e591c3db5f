"""A disk that fills up in the middle of a row costs that row and no other."""

import subprocess
import sys
from pathlib import Path

from envhub.telemetry import read_metrics

PROGRAM = """
import resource, signal, sys
from pathlib import Path
from envhub.telemetry import MetricsSink

sink = MetricsSink(Path(sys.argv[1]))
sink.write({"update": 1, "reward/mean": 0.25})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
sink.write({"update": 2, "reward/mean": 0.5})
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
sink.write({"update": 3, "reward/mean": 0.75})
print(sink.lost)
"""


def test_a_row_cut_short_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
    assert done.stderr.count("metrics cannot be written") == 1
    assert read_metrics(path) == [{"update": 1, "reward/mean": 0.25}, {"update": 3, "reward/mean": 0.75}]
    assert '{"update": 2' in path.read_text(encoding="utf-8")  # the disk did fill up within a row
