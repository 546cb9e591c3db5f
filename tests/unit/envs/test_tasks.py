"""Task sets: from files of every kind, lazily; views of them; hostile rows named by file and line."""

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from envhub.envs import GeneratedTasks, ListTasks, Task
from envhub.envs.task_files import tasks_from
from envhub.envs.task_views import Chosen, Shuffled, Taken
from envhub.errors import ConfigError

ROWS: list[dict[str, Any]] = [{"n": i, "name": f"é{i}", "more": {"list": [i, None], "x": i / 2}} for i in range(10)]


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n", encoding="utf-8")
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    return path


def test_equal_rows_are_equal_tasks_whatever_file_they_come_from(tmp_path: Path) -> None:
    wanted = [Task.of(row) for row in ROWS]
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    sources = [jsonl(tmp_path / "a.jsonl", ROWS), parquet(tmp_path / "a.parquet", ROWS), tmp_path / "saved"]
    for source in sources:
        tasks = tasks_from(source, split="test")
        assert (tasks.splits, tasks.size("test")) == (("test",), 10)
        assert [tasks.get("test", i) for i in (9, 0, 4)] == [wanted[i] for i in (9, 0, 4)]


def test_a_folder_has_its_files_as_splits(tmp_path: Path) -> None:
    parquet(tmp_path / "train-00000-of-00002.parquet", ROWS[:4])
    parquet(tmp_path / "train-00001-of-00002.parquet", ROWS[4:8])
    jsonl(tmp_path / "test.jsonl", ROWS[8:])
    tasks = tasks_from(tmp_path)
    assert {split: tasks.size(split) for split in tasks.splits} == {"test": 2, "train": 8}
    assert [tasks.get("train", i).data["n"] for i in range(8)] == list(range(8))


def test_a_saved_dataset_with_splits_keeps_them(tmp_path: Path) -> None:
    parts = {"train": datasets.Dataset.from_list(ROWS[:7]), "test": datasets.Dataset.from_list(ROWS[7:])}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "saved"))
    tasks = tasks_from(tmp_path / "saved")
    assert (tasks.size("train"), tasks.get("test", 2)) == (7, Task.of(ROWS[9]))


@pytest.mark.parametrize("line", ["{nope", "[1]", '{"a": NaN}', "[" * 100_000, "\\xff", '{"a": 1'])
def test_a_bad_line_is_named_and_the_others_stay_readable(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"n": 0}}\n\n{line}\n{{"n": 1}}\n')
    tasks = tasks_from(path)
    assert (tasks.get("train", 0).data, tasks.get("train", 2).data) == ({"n": 0}, {"n": 1})
    with pytest.raises(ConfigError, match=r"a.jsonl:3: no JSON"):
        tasks.get("train", 1)


def test_what_is_no_task_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "a.csv").write_text("a,b")
    (tmp_path / "empty.jsonl").write_text("")
    for name in ("a.parquet", "a.csv", "empty.jsonl", "missing"):
        with pytest.raises(ConfigError):
            tasks_from(tmp_path / name)
    parquet(tmp_path / "b.parquet", [{"raw": b"\xff"}])
    with pytest.raises(ConfigError, match="row 0, raw: bytes is no plain value"):
        tasks_from(tmp_path / "b.parquet").get("train", 0)


def numbers(count: int) -> ListTasks:
    return ListTasks({"train": [{"n": i} for i in range(count)], "test": [{"n": -i} for i in range(1, 4)]})


def test_views_read_only_what_is_asked_for() -> None:
    even = Chosen(numbers(100), lambda task: task.data["n"] % 2 == 0)
    assert [even.get("train", i).data["n"] for i in (3, 0)] == [6, 0]
    assert (even.size("train"), even.size("test")) == (50, 1)
    with pytest.raises(IndexError):
        even.get("train", 50)
    few = Taken(even, 3)
    assert (few.size("train"), few.size("test")) == (3, 1)
    with pytest.raises(IndexError):
        few.get("train", 3)


def test_a_shuffle_is_a_repeatable_permutation() -> None:
    one, two, other = (Shuffled(numbers(50), seed) for seed in (1, 1, 2))
    order = [one.get("train", i).data["n"] for i in range(50)]
    assert sorted(order) == list(range(50))
    assert order == [two.get("train", i).data["n"] for i in range(50)]
    assert order != [other.get("train", i).data["n"] for i in range(50)]


def test_endless_sets_stay_endless_until_some_are_taken() -> None:
    endless = GeneratedTasks(lambda seed: {"n": seed % 1000})
    big = Chosen(endless, lambda task: task.data["n"] >= 900)
    assert big.size("train") is None
    assert all(big.get("train", i).data["n"] >= 900 for i in range(5))
    with pytest.raises(ConfigError, match="endless"):
        Shuffled(big, 0)
    assert Shuffled(Taken(big, 5), 0).size("train") == 5
    with pytest.raises(ConfigError, match="loosen the filter"):
        Chosen(endless, lambda _: False).get("train", 0)
