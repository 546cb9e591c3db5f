"""Logs for people and metrics for machines; neither may ever stop a run."""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger("envhub")
MOST_ALIKE, MOST_KINDS = 20, 1000
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class _Format(logging.Formatter):
    """Time, level, event, and whatever `extra` says."""

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{k}={v!r}" for k, v in vars(record).items() if k not in _STANDARD)
        return f"{super().format(record)} {extra}".rstrip()


class Calm(logging.Filter):
    """Lets the first `MOST_ALIKE` lines of one kind a minute pass; the first one after that tells how many there were."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Count minutes by `clock`."""
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written."""
        kind, now = (record.name, str(record.msg)[:200]), self._clock()
        began, count = self._seen.get(kind, (now, 0))
        if now - began >= 60.0:
            if count > MOST_ALIKE:
                record.msg = f"{record.msg} ({count - MOST_ALIKE} more of these were left out)"
            began, count = now, 0
        if kind not in self._seen and len(self._seen) >= MOST_KINDS:
            self._seen.clear()
        self._seen[kind] = began, count + 1
        return count < MOST_ALIKE


def setup_logging(level: str, file: Path | None = None, *, calm: bool = False) -> None:
    """Send EnvHub's log events to `file`, and warnings to stderr; without a file all to stderr. Replaces earlier set-ups.

    With `calm` what anybody can cause cannot fill the log: see `Calm`.
    """
    to_people = logging.StreamHandler()
    handlers: list[logging.Handler] = [to_people]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(logging.FileHandler(file, encoding="utf-8"))
        to_people.setLevel("WARNING")
    for handler in handlers:
        if calm:
            handler.addFilter(Calm())
        handler.setFormatter(_Format("%(asctime)s %(levelname)s %(message)s"))
    for old in log.handlers[:]:
        log.removeHandler(old)
        old.close()
    log.setLevel(level)
    for handler in handlers:
        log.addHandler(handler)
    log.propagate = False


class MetricsSink:
    """Appends one JSON object per update to a file. A full disk loses metrics, never the run; `lost` counts them."""

    def __init__(self, path: Path) -> None:
        """Write to `path`."""
        self._path = path
        self._start = ""
        self.lost = 0

    def write(self, row: Mapping[str, float]) -> None:
        """Append a row; what is not finite becomes null."""
        clean = {k: v if math.isfinite(v) else None for k, v in row.items()}
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{self._start}{json.dumps(clean)}\n")
            self._start = ""
        except OSError as error:
            self._start = "\n"  # half a row may stand there; the next one begins on a line of its own
            self.lost += 1
            if self.lost == 1:
                log.error("metrics cannot be written", extra={"path": str(self._path), "error": str(error)})


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a torn line is left out. Empty if there is no file."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def truncate_metrics(path: Path, after_update: int) -> None:
    """Drop the rows of updates later than `after_update`: they will be written again."""
    kept = [row for row in read_metrics(path) if row.get("update", 0) <= after_update]
    scratch = path.with_suffix(".tmp")
    scratch.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    os.replace(scratch, path)
