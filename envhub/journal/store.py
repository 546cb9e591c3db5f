"""The journal of a run: SQLite, one writer, every episode durable before anybody acts on it.

An episode is `generated`, then `claimed` by one update or `superseded`. Whether a claim was trained on is not written
here: the newest checkpoint says it, so that "applied" and "marked" cannot come apart.
"""

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from envhub.errors import JournalError
from envhub.journal.codec import decode, encode
from envhub.types import Trajectory, TrajectoryGroup

SCHEMA = """
CREATE TABLE IF NOT EXISTS fence (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL);
INSERT OR IGNORE INTO fence VALUES (1, 0);
CREATE TABLE IF NOT EXISTS episodes (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, grp TEXT NOT NULL, member INTEGER NOT NULL, attempt INTEGER NOT NULL,
    failed INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS episodes_by_state ON episodes (state);
CREATE TABLE IF NOT EXISTS claims (
    id TEXT NOT NULL REFERENCES episodes (id), upd INTEGER NOT NULL, place INTEGER NOT NULL,
    grp TEXT NOT NULL, idx INTEGER NOT NULL, PRIMARY KEY (id, upd), UNIQUE (upd, place));
"""


class Journal:
    """A run's record of episodes. Usable from several threads; one process writes at a time."""

    def __init__(self, database: sqlite3.Connection, fence: int | None) -> None:
        """Use `Journal.open` or `Journal.read` instead."""
        self._db, self.fence = database, fence
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open for writing, or create; whoever held it before can write no more."""
        with _refusals(f"cannot open the journal {path}"):
            database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.executescript(SCHEMA)
            database.execute("BEGIN IMMEDIATE")
            (fence,) = database.execute("UPDATE fence SET value = value + 1 RETURNING value").fetchone()
            database.execute("COMMIT")
        return cls(database, fence)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open for reading only."""
        with _refusals(f"cannot read the journal {path}"):
            return cls(sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False), None)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Writing

    def append(self, trajectories: Sequence[Trajectory]) -> None:
        """Write finished episodes, durably, in one transaction.

        Raises:
            JournalError: an id is there already, the disk is full, or another process has taken the journal over.
        """
        rows = [(t.id, t.group, t.member, t.attempt, t.failed, "generated", encode(t)) for t in trajectories]
        with self._writing() as database:
            database.executemany(
                "INSERT INTO episodes (id, grp, member, attempt, failed, state, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def supersede(self, ids: Sequence[str], reason: str) -> None:
        """Let go of generated episodes: they stay on record and are never trained on."""
        with self._writing() as database:
            database.executemany(
                "UPDATE episodes SET state = 'superseded', reason = ? WHERE id = ? AND state = 'generated'",
                [(reason, name) for name in ids],
            )

    def claim(self, update: int, groups: Sequence[TrajectoryGroup], *, again: Sequence[TrajectoryGroup] = ()) -> None:
        """Give generated episodes to an update, in this order, all or none; and then claimed ones `again`.

        Raises:
            JournalError: one of them is unknown, superseded, claimed or not claimed yet, or the update has claims already.
        """
        named = [(t.id, g, "generated") for g in groups for t in g.trajectories]
        named += [(t.id, g, "claimed") for g in again for t in g.trajectories]
        with self._writing() as database:
            if database.execute("SELECT 1 FROM claims WHERE upd = ?", (update,)).fetchone():
                raise JournalError(f"update {update} has claimed its episodes already", mend="resume the run")
            for place, (name, group, state) in enumerate(named):
                changed = database.execute(
                    "UPDATE episodes SET state = 'claimed' WHERE id = ? AND state = ? AND NOT failed", (name, state)
                )
                if changed.rowcount != 1:
                    raise JournalError(f"episode {name} cannot be claimed", mend="claim generated episodes, once")
                database.execute("INSERT INTO claims VALUES (?, ?, ?, ?, ?)", (name, update, place, group.id, group.index))

    def release(self, *, after: int) -> int:
        """Undo the claims of updates later than `after`; returns how many episodes are generated again."""
        with self._writing() as database:
            database.execute(
                "UPDATE episodes SET state = 'generated' WHERE id IN (SELECT id FROM claims WHERE upd > ?1) "
                "AND id NOT IN (SELECT id FROM claims WHERE upd <= ?1)",
                (after,),
            )
            return database.execute("DELETE FROM claims WHERE upd > ?", (after,)).rowcount

    # Reading

    def unclaimed(self) -> tuple[Trajectory, ...]:
        """Generated episodes that no update has claimed, in order of writing."""
        return tuple(self._decoded("SELECT id, data FROM episodes WHERE state = 'generated' ORDER BY place"))

    def claims(self, *, after: int = 0) -> tuple[tuple[int, tuple[TrajectoryGroup, ...]], ...]:
        """Updates later than `after` and their groups as they were claimed, in order."""
        rows = self._rows(
            "SELECT c.upd, c.grp, c.idx, e.data FROM claims c JOIN episodes e USING (id) WHERE c.upd > ? "
            "ORDER BY c.upd, c.place",
            (after,),
        )
        found: dict[int, dict[tuple[str, int], list[Trajectory]]] = {}
        for update, group, index, data in rows:
            found.setdefault(update, {}).setdefault((group, index), []).append(decode(data))
        return tuple(
            (
                update,
                tuple(TrajectoryGroup(g, i, members[0].task, tuple(members)) for (g, i), members in groups.items()),
            )
            for update, groups in found.items()
        )

    def attempts(self) -> dict[tuple[str, int], int]:
        """By (group, member): one more than the highest attempt on record."""
        rows = self._rows("SELECT grp, member, MAX(attempt) + 1 FROM episodes GROUP BY grp, member")
        return {(group, member): attempt for group, member, attempt in rows}

    def counts(self) -> dict[str, int]:
        """Episodes by state, and how many of all failed."""
        counts = Counter(dict(self._rows("SELECT state, COUNT(*) FROM episodes GROUP BY state")))
        ((failed,),) = self._rows("SELECT COALESCE(SUM(failed), 0) FROM episodes")
        return {s: counts[s] for s in ("generated", "claimed", "superseded", "quarantined")} | {"failed": failed}

    def trajectories(self, *, limit: int = -1) -> Iterator[Trajectory]:
        """Episodes in order of writing; damaged ones are set aside."""
        return self._decoded("SELECT id, data FROM episodes WHERE state != 'quarantined' ORDER BY place LIMIT ?", (limit,))

    def _decoded(self, query: str, values: Sequence[object] = ()) -> Iterator[Trajectory]:
        for name, data in self._rows(query, values):
            try:
                yield decode(data)
            except JournalError as error:
                self._quarantine(name, error.what)

    def _quarantine(self, name: str, reason: str) -> None:
        if self.fence is not None:
            with self._writing() as database:
                database.execute("UPDATE episodes SET state = 'quarantined', reason = ? WHERE id = ?", (reason, name))

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        with self._lock, _refusals("cannot read the journal"):
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _refusals("cannot write the journal"):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                (fence,) = self._db.execute("SELECT value FROM fence").fetchone()
                if fence != self.fence:
                    raise JournalError("another process has taken this run over", mend="end one of the two")
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


@contextmanager
def _refusals(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise JournalError(f"{what}: {error}", mend="every episode has an id of its own") from error
    except sqlite3.Error as error:
        raise JournalError(
            f"{what}: {error}", mend="check free disk space and rights; nothing written before is lost"
        ) from error
