"""A copy of a service's records in a file of this computer, for commands that only read. Needs the standard library.

One transaction takes each update over, so a command that is killed leaves the old copy. It is made again when the store
of the service is another one, when this orch reads other tables, and when the file is damaged.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.distribution import install_command
from orchestrator.errors import CloudError, OrchError
from orchestrator.private_files import make_private_folder, open_private
from orchestrator.store.audited import KEYS
from orchestrator.store.failures import DamagedStoreError, StoreError, refuse_truncated_file, translate_file_error
from orchestrator.store.read import Reader
from orchestrator.store.replicated import EVENTS, SENT
from orchestrator.store.version import MIN_READER, SCHEMA_VERSION, VERSION

FORM = f"{SCHEMA_VERSION}:{zlib.crc32(repr(SENT).encode()):08x}"  # of the file; another orch makes it again
_BUSY_SECONDS = 20.0
_PAUSE = 0.05
_CHECKED_BYTES = 4 * 2**20  # files up to this size are checked page by page: 1 to 5 ms
_REPEAT = "repeat the command: it fetches the records again"


class DamagedReplicaError(StoreError):
    """The copy is damaged. It is removed, and fetched again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What a copy holds.

    Attributes:
        update: Rises with every update; 0 without a copy.
        installation: Of the store; with `incarnation` it says which one it is.
        seq: The newest event.
        hash: Its hash.
        tag: Of the answer that said that nothing is newer; "" for none.
    """

    update: int = 0
    installation: str = ""
    incarnation: int = 0
    seq: int = 0
    hash: str = ""
    tag: str = ""

    def continues_in(self, document: Mapping[str, Any]) -> bool:
        """Return whether a document of records is of the same store, and begins where this ends."""
        same = (self.installation, self.incarnation) == (document["installation"], document["incarnation"])
        return same and document["after"] == {"seq": self.seq, "hash": self.hash}


class Replica:
    """The copy of one service's records.

    Attributes:
        file: Where it is.
    """

    def __init__(self, folder: Path) -> None:
        """Make the folder where it is missing.

        Raises:
            StoreError: The folder cannot be made.
        """
        self.file = folder / "records.db"
        try:
            make_private_folder(folder)
            with suppress(FileExistsError), open(self.file, "xb", opener=open_private):
                pass  # SQLite gives the log beside it the same mode
        except OSError as error:
            raise StoreError(
                f"records cannot be kept in {folder}", str(error), "set ORCH_HOME to a folder that you may write"
            ) from error

    @contextmanager
    def held(self, *, alone: bool = False) -> Generator[None]:
        """Keep the file from being removed until the end of the block; `alone` waits until no one else uses it."""
        with open(self.file.with_name("lock"), "ab", opener=open_private) as lock:
            end = time.monotonic() + _BUSY_SECONDS
            while True:
                try:
                    fcntl.flock(lock, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        what, step = f"another orch uses {self.file} for too long", "find a suspended orch: ps aux"
                        raise StoreError(what, "", step) from None
                    time.sleep(_PAUSE)
            yield

    def remove(self) -> None:
        """Remove the file, with the log beside it."""
        with self.held(alone=True):
            for name in ("", "-wal", "-shm", "-journal"):
                self.file.with_name(self.file.name + name).unlink(missing_ok=True)

    def read_position(self) -> Position:
        """Return what the copy holds.

        Raises:
            DamagedReplicaError: It cannot be read.
        """
        with self._open() as connection:
            if self.file.stat().st_size <= _CHECKED_BYTES and (fault := _find_fault(connection)):
                raise _damaged(self.file, fault)
            return _read_position(connection)

    def take_over(self, position: Position, documents: Sequence[Mapping[str, Any]], tag: str) -> bool:
        """Take the records of documents over, in one transaction; return False when another command was first.

        Args:
            position: What the copy held when they were asked for.
            documents: In order. When the first does not continue the copy, they have everything.
            tag: Of the last answer.

        Raises:
            OrchError: The service has records of another version of orch.
            StoreError: The file cannot be written.
        """
        for document in documents:
            _refuse_other_version(document)
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if _read_position(connection) != position:
                return False  # closing the connection takes the transaction back
            if not position.continues_in(documents[0]):
                _make_tables(connection)
            for document in documents:
                _write_records(connection, document)
            _write_facts(connection, position, documents[-1], tag)
            connection.execute("COMMIT")
        return True

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        try:
            refuse_truncated_file(self.file, reading=True)
            with closing(sqlite3.connect(self.file, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
                connection.execute("PRAGMA synchronous = NORMAL")
                yield connection
        except sqlite3.Error as error:
            failure = translate_file_error(error, self.file)
            raise _damaged(self.file, failure.why) if isinstance(failure, DamagedStoreError) else failure from error
        except DamagedStoreError as error:
            raise _damaged(self.file, error.why) from error


class ReplicaReader(Reader):
    """A reader of a copy: it reads for the member of the token, and who is at work is what the service said."""

    def __init__(self, replica: Replica, project: str) -> None:
        """Open a copy that was updated before.

        Raises:
            DamagedReplicaError: It cannot be read.
        """
        try:
            super().__init__(replica.file, project)
        except DamagedStoreError as error:
            raise _damaged(replica.file, error.why) from error
        if self._fact("form") != FORM:
            self.__exit__(None, None, None)
            raise _damaged(replica.file, "another command removed it")

    @property
    def member(self) -> str:
        """The member of the token."""
        return self._fact("member")

    @property
    def file(self) -> None:
        """None: the copy is not the store, whose place is the service's concern."""
        return None

    def lease_holder(self, name: str) -> str:
        """Return a description of who holds a lease at the service, or "" when it is free."""
        for row in self._rows("SELECT * FROM leases WHERE name = ?", name):
            return f"process {row['pid']} on {row['machine']} ({row['doing']})"
        return ""

    def engine_works(self) -> bool:
        """Return whether an unattended engine of the service's user is at work."""
        return self._fact("engine_works") == "1"

    def sent_progress(self) -> Mapping[str, Any]:
        """Return what the output of jobs says, by cluster uid and job, as the service read it."""
        return dict(json.loads(self._fact("progress") or "{}"))

    def _fact(self, name: str) -> str:
        return next((str(row["value"]) for row in self._rows("SELECT value FROM replica WHERE key = ?", name)), "")

    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]:
        try:
            return super()._rows(query, *values)
        except DamagedStoreError as error:
            raise _damaged(Path(str(self._file)), error.why) from error


def _damaged(file: Path, why: str) -> DamagedReplicaError:
    return DamagedReplicaError(f"the copy of the records of the service, {file}, cannot be read", why, _REPEAT)


def _find_fault(connection: sqlite3.Connection) -> str:
    found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if found == "ok" else found


def _refuse_other_version(document: Mapping[str, Any]) -> None:
    """Raise OrchError for records that this orch cannot read."""
    if document["version"] != 1 or document["min_reader"] > SCHEMA_VERSION:
        raise CloudError(
            "the service has records of a newer orch",
            f"their tables have version {document.get('tables')}, this orch supports versions up to {SCHEMA_VERSION}",
            f"upgrade orch: {install_command('', '--upgrade')}",
        )
    given = document["columns"]
    missing = [f"{table}.{name}" for table, names in SENT.items() for name in names if name not in given.get(table, ())]
    if missing:
        raise older_service_error(f"its records have no {missing[0]}")


def older_service_error(why: str) -> OrchError:
    """Return the error for a service without what this orch needs."""
    step = "have the service upgraded to this version of orch; its page shows the same"
    return CloudError("the service is of an older orch, and this command cannot read its records", why, step)


def _read_position(connection: sqlite3.Connection) -> Position:
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'replica'").fetchone()[0]
    facts = dict(connection.execute("SELECT key, value FROM replica")) if known else {}
    if facts.get("form") != FORM:
        return Position()
    return Position(
        update=int(facts["update"]),
        installation=facts["installation"],
        incarnation=int(facts["incarnation"]),
        seq=int(facts["seq"]),
        hash=facts["hash"],
        tag=facts["tag"],
    )


def _make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables again, empty. They need no types: values are written as they came."""
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (name,) in found:
        connection.execute(f'DROP TABLE "{name}"')
    for table, columns in SENT.items():
        key = ", ".join(KEYS.get(table, ("seq",)))
        named = ", ".join(f'"{name}"' for name in columns)
        connection.execute(f"CREATE TABLE {table} ({named}, PRIMARY KEY ({key}))")
    connection.execute("CREATE INDEX events_by_cluster ON events (cluster, seq)")
    connection.execute("CREATE TABLE leases (name PRIMARY KEY, machine, pid, doing)")
    connection.execute("CREATE TABLE meta (key PRIMARY KEY, value)")
    connection.execute("CREATE TABLE replica (key PRIMARY KEY, value)")


def _write_records(connection: sqlite3.Connection, document: Mapping[str, Any]) -> None:
    for table, rows in ({EVENTS: document["events"]} | document["rows"]).items():
        if table in SENT and rows:
            names = SENT[table]
            places = [document["columns"][table].index(name) for name in names]
            columns = ", ".join(f'"{name}"' for name in names)
            query = f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608  # our names
            connection.executemany(query, ([row[place] for place in places] for row in rows))


def _write_facts(connection: sqlite3.Connection, position: Position, document: Mapping[str, Any], tag: str) -> None:
    """Write what changes without events, and what the copy holds now."""
    until = document["until"]
    connection.execute("DELETE FROM leases")
    connection.executemany("INSERT INTO leases VALUES (:name, :machine, :pid, :doing)", document["leases"])
    about = {
        VERSION: document["tables"],
        MIN_READER: document["min_reader"],
        "installation": document["installation"],
        "incarnation": document["incarnation"],
        "chain": f"{until['seq']} {until['hash']}",
    }
    facts = {
        "form": FORM,
        "update": position.update + 1,
        "installation": document["installation"],
        "incarnation": document["incarnation"],
        "member": document["member"],
        "engine_works": int(document["engine_works"]),
        "progress": json.dumps(document["progress"]),
        "seq": until["seq"],
        "hash": until["hash"],
        "tag": tag if document["after"] == until else "",  # else the next request has another address
    }
    for table, values in (("meta", about), ("replica", facts)):
        rows = [(name, str(value)) for name, value in values.items()]
        connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", rows)  # noqa: S608  # two constant names
