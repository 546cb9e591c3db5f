"""What people see and programs read: metrics, displays, reports."""

import json
import math
from pathlib import Path

import pytest

from envhub.telemetry import MetricsSink, read_metrics, truncate_metrics
from envhub.types import EvalSummary
from envhub.viewer.live import PlainDisplay
from envhub.viewer.report import comparison_rows, write_report

ROW = {
    "update": 1,
    "reward/mean": 0.5,
    "success/mean": 0.25,
    "episode/turns_mean": 3.0,
    "throughput/tokens_per_s": 1234.5,
    "staleness/max": 2.0,
    "time/rollout_s": 0.1,
    "time/train_s": 0.2,
    "time_s": 5.0,
}
AFTER = EvalSummary(200, 1, 0.81, 0.75, 0.86, 0.8, 0.7, 0.9, 5.5, 5.5, 1.0)


def test_metrics_come_back_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    sink = MetricsSink(tmp_path / "metrics.jsonl")
    sink.write({"update": 1, "a": math.nan})
    sink.write({"update": 2, "a": 0.5})
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"update": 3, "a"')  # torn by a kill
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"update": 1, "a": None}, {"update": 2, "a": 0.5}]
    truncate_metrics(tmp_path / "metrics.jsonl", 1)
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"update": 1, "a": None}]


def test_a_sink_that_cannot_write_counts_and_goes_on(tmp_path: Path) -> None:
    sink = MetricsSink(tmp_path / "missing" / "metrics.jsonl")
    sink.write({"update": 1})
    sink.write({"update": 2})
    assert sink.lost == 2


def test_a_pipe_gets_one_line_per_update(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay()
    display.start(9)
    display.update(ROW)
    (line,) = capsys.readouterr().err.splitlines()
    for part in ("update 1/9", "reward 0.500", "success 0.250", "tokens/s 1,234", "staleness 2", "ETA 0:00"):
        assert part in line


def test_the_report_shows_numbers_and_escapes_what_models_say(tmp_path: Path) -> None:
    path = write_report(
        tmp_path,
        title="<run>",
        metrics=[ROW, {**ROW, "update": 2}],
        before=None,
        after=AFTER,
        replay="<script>alert(1)</script>",
        facts={"seed": "0"},
    )
    page = path.read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "0.810 [0.750, 0.860]" in page
    assert (tmp_path / "plots" / "reward.png").read_bytes().startswith(b"\x89PNG")


def test_the_comparison_names_failed_episodes() -> None:
    assert comparison_rows(None, AFTER)[-1] == ("episodes", "-", "200 (1 failed)")


def test_metrics_rows_are_json_objects(tmp_path: Path) -> None:
    MetricsSink(tmp_path / "m").write(ROW)
    assert json.loads((tmp_path / "m").read_text(encoding="utf-8")) == ROW
