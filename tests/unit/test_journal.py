import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envhub.errors import JournalError
from envhub.journal import Journal
from envhub.journal.codec import decode, encode
from tests.unit.builders import group, trajectory


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.open(tmp_path / "journal.sqlite") as opened:
        yield opened


def test_a_trajectory_comes_back_as_it_was() -> None:
    given_ = trajectory("train-000003/1.2", reward=0.25, turns=3, version=4)
    found = decode(encode(given_))
    assert found.turns == given_.turns
    for name in ("token_ids", "mask", "logprobs", "versions"):
        np.testing.assert_array_equal(getattr(found.segments[0], name), getattr(given_.segments[0], name))
    assert (found.id, found.reward, found.stop, found.oldest_version) == ("train-000003/1.2", 0.25, given_.stop, 4)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(JournalError):
        decode(data)


@given(st.integers(0, len(encode(trajectory())) * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    data = bytearray(encode(trajectory()))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(JournalError):
        decode(bytes(data))


def test_an_id_is_written_once(journal: Journal) -> None:
    journal.append([trajectory()])
    with pytest.raises(JournalError, match="UNIQUE"):
        journal.append([trajectory("train-000009/0.0"), trajectory()])
    assert journal.counts()["generated"] == 1


def test_a_claim_is_whole_or_absent(journal: Journal) -> None:
    first, second = group(0, [0.0, 1.0]), group(1, [1.0, 0.0])
    journal.append([*first.trajectories, second.trajectories[0]])
    with pytest.raises(JournalError, match="cannot be claimed"):
        journal.claim(1, [first, second])
    assert journal.counts() == {"generated": 3, "claimed": 0, "superseded": 0, "quarantined": 0, "failed": 0}


def test_claims_come_back_in_their_order_until_released(journal: Journal) -> None:
    groups = [group(4, [0.0, 1.0]), group(2, [1.0, 1.0])]
    journal.append([t for g in groups for t in g.trajectories])
    journal.claim(7, groups)
    ((update, found),) = journal.claims(after=6)
    assert update == 7
    assert [(g.id, g.index, [t.id for t in g.trajectories]) for g in found] == [
        (g.id, g.index, [t.id for t in g.trajectories]) for g in groups
    ]
    assert journal.claims(after=7) == ()
    with pytest.raises(JournalError, match="already"):
        journal.claim(7, [])
    assert journal.release(after=6) == 4
    assert len(journal.unclaimed()) == 4


def test_a_group_is_claimed_again_only_as_such(journal: Journal) -> None:
    old, new = group(0, [0.0, 1.0]), group(1, [1.0, 0.0])
    journal.append([t for g in (old, new) for t in g.trajectories])
    with pytest.raises(JournalError, match="cannot be claimed"):
        journal.claim(1, [new], again=[old])  # nobody has trained on it yet
    journal.claim(1, [old])
    with pytest.raises(JournalError, match="cannot be claimed"):
        journal.claim(2, [new, old])
    journal.claim(2, [new], again=[old])
    assert [(update, [g.index for g in groups]) for update, groups in journal.claims()] == [(1, [0]), (2, [1, 0])]
    journal.release(after=1)
    assert [t.group for t in journal.unclaimed()] == [new.id] * 2


def test_failed_and_superseded_episodes_are_never_claimed(journal: Journal) -> None:
    whole = group(0, [0.0, 1.0])
    journal.append(whole.trajectories)
    journal.supersede([whole.trajectories[0].id], "stale")
    with pytest.raises(JournalError, match="cannot be claimed"):
        journal.claim(1, [whole])


def test_the_older_writer_is_fenced_off(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal.open(path) as old, Journal.open(path) as new:
        with pytest.raises(JournalError, match="taken this run over"):
            old.append([trajectory()])
        new.append([trajectory()])
        assert new.counts()["generated"] == 1


def test_attempts_go_on_where_they_stopped(journal: Journal) -> None:
    journal.append([trajectory("train-000001/0.0", reward=None), trajectory("train-000001/0.1")])
    assert journal.attempts() == {("train-000001", 0): 2}


def test_a_damaged_row_is_set_aside_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal.open(path) as journal:
        journal.append([trajectory("train-000000/0.0"), trajectory("train-000000/1.0")])
    with sqlite3.connect(path) as database:
        database.execute("UPDATE episodes SET data = x'0102' WHERE member = 0")
    database.close()
    with Journal.open(path) as journal:
        assert [t.id for t in journal.unclaimed()] == ["train-000000/1.0"]
        assert journal.counts()["quarantined"] == 1


def test_a_full_disk_loses_nothing_written_before(journal: Journal) -> None:
    journal.append([trajectory("train-000000/0.0")])
    (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalError, match="full"):
        journal.append([trajectory(f"train-000000/{i}.0", turns=50) for i in range(1, 50)])
    journal._db.execute("PRAGMA max_page_count = 1000000")
    journal.append([trajectory("train-000000/1.0")])
    assert [t.id for t in journal.unclaimed()] == ["train-000000/0.0", "train-000000/1.0"]
