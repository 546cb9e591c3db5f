"""A run while it runs: a live display on a terminal, plain lines on a pipe. All of it goes to stderr."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table


class Display(Protocol):
    """Where a run shows itself."""

    def note(self, text: str) -> None:
        """One sentence that stays."""
        ...

    def start(self, total_updates: int) -> None:
        """Updates begin."""
        ...

    def update(self, metrics: Mapping[str, float]) -> None:
        """One update is done."""
        ...

    def close(self) -> None:
        """Updates have ended."""
        ...


class PlainDisplay:
    """One line per update."""

    def __init__(self) -> None:
        self._total = self._first = 0
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        """Print the sentence."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def start(self, total_updates: int) -> None:
        """Remember how many there will be."""
        self._total, self._began = total_updates, time.monotonic()

    def update(self, metrics: Mapping[str, float]) -> None:
        """Print the update's line."""
        done = int(metrics["update"])
        self._first = self._first or done
        left = (time.monotonic() - self._began) / (done - self._first + 1) * (self._total - done)
        minutes, seconds = divmod(int(left), 60)
        self.note(f"update {done}/{self._total}  {_line(metrics)}  ETA {minutes}:{seconds:02d}")

    def close(self) -> None:
        """Nothing is open."""


class RichDisplay:
    """A progress bar with the newest numbers under it."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        )
        self._live: Live | None = None

    def note(self, text: str) -> None:
        """Print the sentence above the bar."""
        self._console.print(text, markup=False, highlight=False)

    def start(self, total_updates: int) -> None:
        """Show the bar."""
        self._task = self._progress.add_task("training", total=total_updates)
        self._live = Live(self._progress, console=self._console, refresh_per_second=4)
        self._live.start()

    def update(self, metrics: Mapping[str, float]) -> None:
        """Move the bar and show the numbers."""
        table = Table.grid(padding=(0, 2))
        for name, value in _facts(metrics):
            table.add_row(name, value)
        self._progress.update(self._task, completed=int(metrics["update"]))
        if self._live is not None:
            self._live.update(Group(self._progress, table))

    def close(self) -> None:
        """Leave the last picture standing."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def open_display() -> Display:
    """A live display on a terminal, else plain lines."""
    return RichDisplay() if sys.stderr.isatty() else PlainDisplay()


def _facts(metrics: Mapping[str, float]) -> Sequence[tuple[str, str]]:
    shown = [
        ("reward", f"{metrics['reward/mean']:.3f}"),
        ("success", f"{metrics['success/mean']:.3f}"),
        ("turns", f"{metrics['episode/turns_mean']:.1f}"),
        ("entropy", f"{metrics.get('policy/entropy', float('nan')):.3f}"),
        ("tokens/s", f"{metrics['throughput/tokens_per_s']:,.0f}"),
        ("staleness", f"{metrics['staleness/max']:.0f}"),
        ("rollout", f"{metrics['time/rollout_s']:.2f} s"),
        ("train", f"{metrics['time/train_s']:.2f} s"),
        ("elapsed", f"{metrics['time_s']:.0f} s"),
    ]
    if "eval/success" in metrics:
        shown.append(("validation", f"{metrics['eval/success']:.3f}"))
    return shown


def _line(metrics: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value}" for name, value in _facts(metrics))
