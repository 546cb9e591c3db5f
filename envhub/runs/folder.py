"""The run folder: made once, never overwritten, taken up again only by `--resume`."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from envhub.errors import ConfigError
from envhub.runs.config import TrainConfig
from envhub.settings import redacted, to_yaml


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths of one run."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        return self.root / "model"

    @property
    def status(self) -> Path:
        return self.root / "status.json"

    @property
    def log(self) -> Path:
        return self.root / "logs" / "train.log"


@contextmanager
def open_folder(config: TrainConfig, *, resume: bool) -> Iterator[RunFolder]:
    """Create the run's folder, or take up an existing one, and hold its lock.

    Raises:
        ConfigError: it exists already, cannot be written, is in use, or there is nothing to resume.
    """
    folder = RunFolder(config.run.dir / config.run.name)
    if folder.config.exists() and not resume:
        raise ConfigError(f"the run folder {folder.root} exists", mend="pass --resume, or choose another run.name")
    if resume and not folder.config.exists():
        raise ConfigError(f"there is no run to resume in {folder.root}", mend="leave out --resume, or check run.name")
    with ExitStack() as stack:
        _prepare(folder, config, stack, resume=resume)
        yield folder


def _prepare(folder: RunFolder, config: TrainConfig, stack: ExitStack, *, resume: bool) -> None:
    try:
        folder.log.parent.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context((folder.root / ".lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not resume:
            scratch = folder.root / ".config.tmp"
            scratch.write_text(to_yaml(redacted(config)), encoding="utf-8")
            os.replace(scratch, folder.config)
    except BlockingIOError as error:
        raise ConfigError(f"another process is training in {folder.root}", mend="wait for it, or end it") from error
    except OSError as error:
        raise ConfigError(f"cannot write to {folder.root}: {error}", mend="choose another run.dir") from error
