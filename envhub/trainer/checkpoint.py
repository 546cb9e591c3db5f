"""Checkpoints that are whole or absent: files first, the manifest last, then one rename."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envhub.errors import CheckpointError

MANIFEST = "MANIFEST.json"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk: everything a run needs to go on after `update`."""

    folder: Path
    update: int
    state: Mapping[str, Any]


def save_checkpoint(
    root: Path, update: int, state: Mapping[str, Any], write_files: Callable[[Path], None], *, keep: int
) -> Path:
    """Write checkpoint `update` under `root`, then delete all but the newest `keep`.

    `write_files` fills the folder with weights and optimiser state; `state` is plain JSON.

    Raises:
        CheckpointError: the disk refused; earlier checkpoints are untouched.
    """
    final = root / f"update-{update:06d}"
    scratch = root / f".tmp-{update:06d}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        write_files(scratch)
        files = {str(p.relative_to(scratch)): _sealed(p) for p in sorted(scratch.rglob("*")) if p.is_file()}
        manifest = json.dumps({"update": update, "state": state, "files": files}, allow_nan=False, indent=1)
        (scratch / MANIFEST).write_text(manifest, encoding="utf-8")
        _sync(scratch / MANIFEST)
        _sync(scratch)
        if final.exists():
            shutil.rmtree(final)
        os.replace(scratch, final)
        _sync(root)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise CheckpointError(f"cannot write checkpoint {update}: {error}", mend="free disk space, then resume") from error
    for old in sorted(root.glob("update-*"))[:-keep]:
        shutil.rmtree(old)
    return final


def newest_checkpoint(root: Path) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The newest complete checkpoint, or None; and a sentence for each newer one that is torn."""
    problems: list[str] = []
    for folder in sorted(root.glob("update-*"), reverse=True):
        try:
            return read_checkpoint(folder), tuple(problems)
        except CheckpointError as error:
            problems.append(error.what)
    return None, tuple(problems)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint after checking every file against the manifest.

    Raises:
        CheckpointError: a file is missing, torn or changed.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        update, state, files = int(manifest["update"]), dict(manifest["state"]), dict(manifest["files"])
        broken = next((name for name, seal in files.items() if _seal(folder / name) != seal), None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {folder.name} is incomplete: {error}", mend="resume from an older one") from error
    if broken is not None:
        raise CheckpointError(f"checkpoint {folder.name} is damaged: {broken} is not as written", mend="resume an older one")
    return Checkpoint(folder, update, state)


def _sealed(path: Path) -> list[object]:
    _sync(path)
    return _seal(path)


def _seal(path: Path) -> list[object]:
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()]


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
