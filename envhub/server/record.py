"""What outlives the server: which sessions there were, and what they were answered, written before any answer goes out.

One SQLite file. A thread writes; everything that came meanwhile is one transaction. Tokens are kept as hashes.
"""

import hashlib
import logging
import queue
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from envhub.errors import ConfigError
from envhub.server.problems import Problem

log = logging.getLogger(__name__)
MOST_AT_ONCE = 1000
HEADER = 100  # bytes of a SQLite file's
TABLES = """
CREATE TABLE IF NOT EXISTS sessions (hash BLOB PRIMARY KEY, tenant TEXT NOT NULL, env TEXT NOT NULL,
    forked INTEGER NOT NULL, gone TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verbs (hash BLOB NOT NULL, place INTEGER NOT NULL, body BLOB NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (hash, place)) WITHOUT ROWID;
"""
Written = Callable[[Problem | None], object]


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb that was answered: what was asked, under which request id, and the answer or the refusal's fields."""

    place: int
    request: str
    digest: bytes
    verb: str
    argument: Any
    value: Any
    problem: list[Any] | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A session of a server that is gone. One that was `forked` began where another one was; `gone` says why it was lost."""

    key: bytes
    tenant: str
    env_id: str
    forked: bool
    gone: str | None
    verbs: tuple[Verb, ...]


def key_of(token: str) -> bytes:
    """What is kept of a session's token."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class Record:
    """The file. `written` callbacks run on the writer's thread."""

    def __init__(self, path: Path) -> None:
        """Open or create it. Raises ConfigError for a file that is damaged, or no such file, or in use by another server."""
        self._path = path
        self._todo: queue.SimpleQueue[tuple[str, tuple[Any, ...], Written | None] | None] = queue.SimpleQueue()
        if path.exists() and 0 < path.stat().st_size < HEADER:  # SQLite would take it for a new file
            raise ConfigError(f"the record {path} is cut off", mend=f"mv {path} {path}.damaged; its sessions are lost")
        try:
            self._base = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=1.0)
        except sqlite3.Error as error:
            mend = "name a file in a folder that exists"
            raise ConfigError(f"the record {path} cannot be opened: {error}", mend=mend) from error
        try:
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            (whole,) = self._base.execute("PRAGMA integrity_check(1)").fetchone()
            if whole != "ok":
                raise sqlite3.DatabaseError(whole)
            self._base.executescript(TABLES)
            self.found = tuple(self._read())
        except (sqlite3.Error, ValueError) as error:
            self._base.close()
            mend = f"mv {path} {path}.damaged; its sessions are lost" if "locked" not in str(error) else "end the other server"
            raise ConfigError(f"the record {path} cannot be used: {error}", mend=mend) from error
        self._thread = threading.Thread(target=self._write, name="record", daemon=True)
        self._thread.start()

    def opened(self, key: bytes, tenant: str, env_id: str, written: Written, *, forked: bool = False) -> None:
        """A session begins."""
        self._todo.put(("INSERT INTO sessions VALUES (?, ?, ?, ?, NULL)", (key, tenant, env_id, forked), written))

    def answered(self, key: bytes, verb: Verb, written: Written) -> None:
        """A verb has its answer, which may go out once `written` was called without a problem."""
        fields = [verb.request, verb.digest, verb.verb, verb.argument, verb.value, verb.problem]
        body = msgpack.packb(fields, unicode_errors="surrogatepass")
        self._todo.put(("INSERT INTO verbs VALUES (?, ?, ?, ?)", (key, verb.place, body, zlib.crc32(body)), written))

    def lost(self, key: bytes, why: str) -> None:
        """A session is lost; the next server tells its owner why, too."""
        self._todo.put(("UPDATE sessions SET gone = ? WHERE hash = ?", (why, key), None))

    def forget(self, key: bytes, before: int | None = None) -> None:
        """A session is over; with `before`, only its verbs before that place are no longer needed."""
        if before is None:
            self._todo.put(("DELETE FROM sessions WHERE hash = ?", (key,), None))
        self._todo.put(("DELETE FROM verbs WHERE hash = ? AND place < ?", (key, 2**62 if before is None else before), None))

    def close(self) -> None:
        """Write what is left, and close. Safe to call twice."""
        self._todo.put(None)
        self._thread.join()
        self._base.close()

    def _read(self) -> Iterator[Recorded]:
        rows = self._base.execute("SELECT hash, tenant, env, forked, gone FROM sessions").fetchall()
        for key, tenant, env_id, forked, gone in rows:
            done = self._base.execute("SELECT place, body, sum FROM verbs WHERE hash = ? ORDER BY place", (key,)).fetchall()
            verbs = []
            for place, body, sum_ in done:
                if zlib.crc32(body) != sum_:
                    raise ValueError(f"the body of a verb does not fit its sum (session {key.hex()[:8]}, place {place})")
                verbs.append(Verb(place, *msgpack.unpackb(body, unicode_errors="surrogatepass", strict_map_key=False)))
            yield Recorded(key, tenant, env_id, bool(forked), gone, tuple(verbs))

    def _write(self) -> None:
        going = True
        while going:
            batch = [self._todo.get()]
            while len(batch) < MOST_AT_ONCE and not self._todo.empty():
                batch.append(self._todo.get())
            going = None not in batch
            entries = [entry for entry in batch if entry is not None]
            problem = self._commit(entries)
            for _, _, written in entries:
                if written is not None:
                    written(problem)

    def _commit(self, entries: list[tuple[str, tuple[Any, ...], Written | None]]) -> Problem | None:
        try:
            self._base.execute("BEGIN")
            for statement, values, _ in entries:
                self._base.execute(statement, values)
            self._base.execute("COMMIT")
        except sqlite3.Error as error:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            log.error("the record cannot be written", extra={"path": str(self._path), "error": str(error)})
            return Problem(507, "storage_full", "The server cannot record this session.", "Open a new one later.", 5.0)
        return None
