from pathlib import Path

import pytest

from envhub.errors import CheckpointError
from envhub.trainer.checkpoint import MANIFEST, newest_checkpoint, save_checkpoint


def write(text: str, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "weights").write_text(text, encoding="utf-8")


def save(root: Path, update: int, *, keep: int = 3) -> Path:
    return save_checkpoint(root, update, {"n": update}, lambda f: write(f"w{update}", f), keep=keep)


def test_the_newest_whole_checkpoint_is_found_and_old_ones_go(tmp_path: Path) -> None:
    for update in (1, 2, 3):
        save(tmp_path, update, keep=2)
    found, problems = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.update, found.state, problems) == (3, {"n": 3}, ())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["update-000002", "update-000003"]


@pytest.mark.parametrize("harm", ["truncate", "flip", "delete", "no manifest", "half manifest"])
def test_a_torn_checkpoint_is_passed_over_and_named(tmp_path: Path, harm: str) -> None:
    save(tmp_path, 1)
    folder = save(tmp_path, 2)
    weights, manifest = folder / "sub" / "weights", folder / MANIFEST
    match harm:
        case "truncate":
            weights.write_text("")
        case "flip":
            weights.write_text("w3")
        case "delete":
            weights.unlink()
        case "no manifest":
            manifest.unlink()
        case _:
            manifest.write_text(manifest.read_text(encoding="utf-8")[:20], encoding="utf-8")
    found, problems = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.update == 1
    assert len(problems) == 1
    assert "update-000002" in problems[0]


def test_a_disk_that_refuses_leaves_earlier_checkpoints_alone(tmp_path: Path) -> None:
    save(tmp_path, 1)

    def refuse(folder: Path) -> None:
        (folder / "half").write_text("x", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(tmp_path, 2, {}, refuse, keep=1)
    found, problems = newest_checkpoint(tmp_path)
    assert found is not None
    assert (found.update, problems) == (1, ())
    assert not list(tmp_path.glob(".tmp*"))
