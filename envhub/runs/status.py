"""What a run is doing right now, and what it waits for: written by the run every second, read by `envhub status`."""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from envhub.errors import ConfigError
from envhub.rollout.driver import RolloutDriver
from envhub.settings import Settings
from envhub.viewer.live import Display

EVERY_S = 1.0
SHOWN = 10  # of the oldest episodes in flight
SLOW_FACTOR, SLOW_S = 3.0, 10.0  # an episode is slow that takes longer than both: times the usual, and seconds
NOTE_EVERY_S = 10.0
MAX_BYTES = 1 << 20


class LeaseStatus(Settings):
    """An episode in flight: its id, the attempt, its age, and what it has been waiting for since when."""

    id: str
    attempt: int
    age_s: float
    phase: str
    phase_s: float
    slow: bool

    def why(self, usual_s: float | None) -> str:
        """A sentence for people."""
        times = f", {self.age_s / usual_s:.1f} times the usual {usual_s:.1f} s" if usual_s else ""
        return f"in {self.phase} for {self.phase_s:.0f} s; {self.age_s:.0f} s old{times}"


class RunStatus(Settings):
    """A moment of a run. `doing_s` is how long it has been at it; `usual_s` the 95th percentile of the last durations."""

    written_s: float
    pid: int
    update: int
    updates: int
    doing: str
    doing_s: float
    in_flight: int
    waiting: int
    ready: int
    started: int
    failed: int
    dropped: dict[str, int]
    causes: dict[str, int]
    usual_s: float | None
    oldest: tuple[LeaseStatus, ...]


class Watch:
    """Looks at a run's rollout, writes down what it sees, and says once of each episode that it is slow."""

    def __init__(
        self,
        path: Path,
        driver: RolloutDriver,
        display: Display,
        updates: int,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write to `path`; `clock` is the driver's."""
        self._path, self._driver, self._display, self._updates, self._clock = path, driver, display, updates, clock
        self._update, self._doing, self._since = 0, "starting", clock()
        self._named: set[str] = set()
        self._noted = clock() - NOTE_EVERY_S

    def doing(self, what: str, update: int) -> None:
        """The run does something else from now on; `update` is the last one that is done."""
        self._doing, self._update, self._since = what, update, self._clock()

    async def forever(self) -> None:
        """Look every second."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.warn(self.write())

    def write(self) -> RunStatus:
        """Write down this moment; a full disk is no reason to stop a run."""
        status = self._look()
        scratch = self._path.with_name(".status.tmp")
        try:
            scratch.write_text(status.model_dump_json(), encoding="utf-8")
            os.replace(scratch, self._path)
        except OSError as error:
            self._note(f"cannot write {self._path}: {error}")
        return status

    def _look(self) -> RunStatus:
        stats, now = self._driver.scheduler.stats(), self._clock()
        usual = stats.usual_s
        slow_s = max(SLOW_S, SLOW_FACTOR * (usual or 0.0))
        return RunStatus(
            written_s=time.time(),
            pid=os.getpid(),
            update=self._update,
            updates=self._updates,
            doing=self._doing,
            doing_s=now - self._since,
            in_flight=stats.in_flight,
            waiting=stats.waiting,
            ready=stats.ready,
            started=stats.started,
            failed=stats.failed_episodes,
            dropped={"stale": stats.dropped_stale, "constant": stats.dropped_constant, "failed": stats.dropped_failed},
            causes=dict(stats.causes),
            usual_s=usual,
            oldest=tuple(
                LeaseStatus(
                    id=playing.lease.id,
                    attempt=playing.lease.attempt,
                    age_s=now - playing.lease.started_s,
                    phase=playing.phase,
                    phase_s=now - playing.since_s,
                    slow=now - playing.lease.started_s > slow_s,
                )
                for playing in self._driver.oldest(SHOWN)
            ),
        )

    def warn(self, status: RunStatus) -> None:
        """Say of each slow episode once that it is slow, a few at a time."""
        fresh = [lease for lease in status.oldest if lease.slow and lease.id not in self._named]
        if fresh and self._note(f"slow: {fresh[0].id} {fresh[0].why(status.usual_s)}"):
            self._named = {lease.id for lease in status.oldest if lease.slow}

    def _note(self, text: str) -> bool:
        """Say it, unless something was said just now."""
        if self._clock() - self._noted < NOTE_EVERY_S:
            return False
        self._noted = self._clock()
        self._display.note(text)
        return True


def read_status(run_dir: Path, *, clock: Callable[[], float] = time.time) -> tuple[RunStatus, bool, float]:
    """What a run wrote last, whether its process is still there, and how many seconds ago it wrote.

    Raises:
        ConfigError: there is no such run, or it has not begun to play.
    """
    path = run_dir / "status.json"
    if not (run_dir / "config.yaml").exists():
        raise ConfigError(f"there is no run in {run_dir}", mend="give a run's folder, as in runs/NAME")
    try:
        with path.open("rb") as file:
            status = RunStatus.model_validate_json(file.read(MAX_BYTES))
    except FileNotFoundError as error:
        raise ConfigError(f"the run in {run_dir} has not begun to play", mend="ask again after its warm-up") from error
    except (OSError, ValidationError, json.JSONDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {str(error).splitlines()[0]}", mend="wait a second, then ask again") from error
    return status, _held(run_dir / ".lock"), max(0.0, clock() - status.written_s)


def _held(lock: Path) -> bool:
    """Whether a process holds the run's lock."""
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
