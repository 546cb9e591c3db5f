"""Task sets from files: JSON lines, Parquet, a Hugging Face dataset folder. Rows are read when a task is asked for.

A row is a task's data, so it must be plain JSON: text, numbers, lists and objects. Files are not trusted: a line that is no
JSON object is a ConfigError with its file and line.
"""

import bisect
import json
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from envhub.envs.tasks import Task, check_split
from envhub.errors import ConfigError

Row = Callable[[int], Mapping[str, Any]]
MAX_LINE_BYTES = 16 << 20
SUFFIXES = (".jsonl", ".ndjson", ".parquet")


class RowTasks:
    """A finite task set over rows that are read on demand: each split is a length and a function from a place to a row."""

    def __init__(self, splits: Mapping[str, tuple[int, Row]]) -> None:
        """Take the splits. Raises ConfigError if there are none, or one is empty."""
        empty = [name for name, (length, _) in splits.items() if not length]
        if empty or not splits:
            raise ConfigError(f"no tasks in {', '.join(empty) or 'there'}", mend="give at least one row a split")
        self._splits = dict(splits)

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self._splits)

    def size(self, split: str) -> int:
        """How many tasks the split has."""
        check_split(split, self.splits)
        return self._splits[split][0]

    def get(self, split: str, index: int) -> Task:
        """The task at a place."""
        length, row = self._splits[split]
        if not 0 <= index < length:
            raise IndexError(f"{split} has {length} tasks, not {index + 1}")
        return Task.of(row(index))


def tasks_from(path: str | Path, *, split: str = "train") -> RowTasks:
    """The tasks in a file or folder, by what it is.

    A file is one split, named `split`. In a folder each file is the split that its name begins with ("test.jsonl",
    "train-00000-of-00002.parquet"); a folder that `datasets.save_to_disk` wrote is read as such.

    Raises:
        ConfigError: nothing readable is there, or a library that reads it is not installed.
    """
    path = Path(path)
    if path.is_file():
        return RowTasks({split: _file(path)})
    if (path / "dataset_dict.json").exists() or (path / "dataset_info.json").exists():
        return from_hf_folder(path, split=split)
    found: dict[str, list[Path]] = {}
    for file in sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES):
        found.setdefault(file.stem.split("-")[0].split(".")[0], []).append(file)
    if not found:
        raise ConfigError(f"no tasks at {path}", mend=f"give a dataset folder, or files ending in {', '.join(SUFFIXES)}")
    return RowTasks({name: _joined([_file(file) for file in files]) for name, files in found.items()})


def from_jsonl(path: Path) -> tuple[int, Row]:
    """The rows of a JSON lines file: only where each line begins is kept in memory. Blank lines are skipped."""
    starts, numbers = array("Q"), array("Q")
    try:
        with path.open("rb") as file:
            place = 0
            for number, line in enumerate(file, 1):
                if line.strip():
                    starts.append(place)
                    numbers.append(number)
                place += len(line)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error}", mend="give a JSON lines file") from error

    def row(index: int) -> Mapping[str, Any]:
        with path.open("rb") as file:
            file.seek(starts[index])
            return _object(file.readline(MAX_LINE_BYTES), f"{path}:{numbers[index]}")

    return len(starts), row


def from_parquet(path: Path) -> tuple[int, Row]:
    """The rows of a Parquet file; one row group is kept in memory. Raises ConfigError without pyarrow or on a bad file."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow", mend="pip install 'envhub-rl[data]'") from error
    try:
        file = parquet.ParquetFile(path, memory_map=True)
        counts = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise ConfigError(f"cannot read {path}: {error}", mend="give a Parquet file") from error
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    kept: dict[int, Any] = {}

    def row(index: int) -> Mapping[str, Any]:
        group = bisect.bisect_right(ends, index)
        if group not in kept:
            kept.clear()
            kept[group] = file.read_row_group(group)
        (found,) = kept[group].slice(index - (ends[group] - counts[group]), 1).to_pylist()
        return _plain_row(found, f"{path}, row {index}")

    return sum(counts), row


def from_hf_folder(path: Path, *, split: str = "train") -> RowTasks:
    """A dataset that `datasets.save_to_disk` wrote; one without splits is the split `split`. Raises ConfigError."""
    try:
        import datasets
    except ImportError as error:
        raise ConfigError("dataset folders need datasets", mend="pip install 'envhub-rl[data]'") from error
    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"cannot read {path}: {error}", mend="give a folder that save_to_disk wrote") from error
    parts = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {split: loaded}

    def rows(part: Any) -> Row:
        return lambda index: _plain_row(part[index], f"{path}, row {index}")

    return RowTasks({str(name): (len(part), rows(part)) for name, part in parts.items()})


def _file(path: Path) -> tuple[int, Row]:
    if path.suffix == ".parquet":
        return from_parquet(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return from_jsonl(path)
    raise ConfigError(f"{path} is no task file", mend=f"give a file ending in {', '.join(SUFFIXES)}")


def _joined(parts: Sequence[tuple[int, Row]]) -> tuple[int, Row]:
    ends = [sum(length for length, _ in parts[: i + 1]) for i in range(len(parts))]

    def row(index: int) -> Mapping[str, Any]:
        part = bisect.bisect_right(ends, index)
        return parts[part][1](index - (ends[part] - parts[part][0]))

    return ends[-1], row


def _object(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: no JSON: {error}", mend="write one JSON object a line") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: no JSON object", mend="write one JSON object a line")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _plain_row(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    return {key: _plain(value, f"{where}, {key}") for key, value in row.items()}


def _plain(value: Any, where: str) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case datetime() | date():
            return value.isoformat()
        case dict():
            return {str(k): _plain(v, where) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v, where) for v in value]
    raise ConfigError(f"{where}: {type(value).__name__} is no plain value", mend="drop the column or write it as text")
