"""Find out whether a store was copied, moved or restored from an older state since orch last changed it.

Two records are compared. The tie, in the store, names the file or the database in which it was made. The witness, in
the state folder of each computer, is the newest event that this computer has seen. Where one differs, machines may run
that the store does not know, or another copy may drive the same ones: nothing is changed until a person says which.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from orchestrator.computer import read_machine
from orchestrator.paths import load_paths
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.store.apply_change import CHAIN
from orchestrator.store.audited import Head
from orchestrator.store.connection import Database
from orchestrator.store.failures import StoreError
from orchestrator.store.location import Location, describe_location
from orchestrator.store.meta_rows import INCARNATION, INSTALLATION, TIE

WITNESS_FILE = "store-head.json"
_NEXT = (
    "orch store moved   if the original is not used any more, or: orch store copied   if it is\n"
    "orch store restored   if this is a backup, or an older state that was put back"
)
_PUT_BACK = "an older state of it was put back"
_OTHER = {
    "machine": "it was made on another computer",
    "file": "it was made in another file",
    "system": "it was made on another database server",
    "database": "it was made in another database",
}


class OtherStateError(StoreError):
    """The store is another one than the one that orch changed last: a copy, or an older state of it."""

    code = "store-copied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """The place in which a store was made. An empty field is not known, and not compared.

    Device numbers and host names are left out: the first change when a computer starts, the second with its network
    or with each start of a container.

    Attributes:
        machine: Of a file: what /etc/machine-id says.
        file: Of a file: the number of its inode, which a copy does not have.
        system: Of PostgreSQL: the identifier of the cluster of databases (pg_control_system).
        database: Of PostgreSQL: the oid of the database.
    """

    machine: str = ""
    file: str = ""
    system: str = ""
    database: str = ""

    @classmethod
    def parse(cls, written: str) -> Tie:
        """Return the tie that `to_json` wrote; of unknown fields nothing."""
        fields = cast(dict[str, Any], json.loads(written or "{}"))
        return cls(**{name: str(fields.get(name, "")) for name in cls.__dataclass_fields__})

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    def find_difference(self, present: Tie) -> str:
        """Return what is another one at present, or ""."""
        mine, theirs = asdict(self), asdict(present)
        return next(
            (text for key, text in _OTHER.items() if mine[key] and theirs[key] and mine[key] != theirs[key]), ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The newest event of a store that this computer has seen."""

    incarnation: int
    seq: int
    hash: str


def read_tie(database: Database) -> Tie:
    """Return the place in which an open store lies now."""
    if isinstance(database.location, Path):
        return Tie(machine=read_machine(), file=str(database.location.stat().st_ino))
    oid = _read_number(database, "SELECT oid FROM pg_database WHERE datname = current_database()")
    return Tie(system=_read_number(database, "SELECT system_identifier FROM pg_control_system()"), database=oid)


def _read_number(database: Database, query: str) -> str:
    """Return one value, or "" where this user of the database may not read it."""
    try:
        with database.peeking() as tx:
            return str(tx.execute(text(query)).scalar())
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", "") == "42501":  # insufficient_privilege
            return ""
        raise database.translate_error(error) from error


def refuse_other_state(database: Database, rows: Mapping[str, str], seen: Mapping[str, Witness]) -> None:
    """Raise OtherStateError for a store that lies in another place than it was made, or is older than was seen here.

    Args:
        database: The open store.
        rows: Its rows of meta.
        seen: What `read_witnesses` returned before the rows were read: others may write meanwhile.

    Raises:
        OtherStateError: It was copied, moved or restored.
    """
    problem = find_other_state(database, rows, seen)
    if problem:
        place = describe_location(database.location)
        raise OtherStateError(f"the store {place} is only read, and nothing is changed", problem, _NEXT)


def find_other_state(database: Database, rows: Mapping[str, str], seen: Mapping[str, Witness]) -> str:
    """Return what shows that a store was copied, moved or put back, or "" where nothing does.

    The arguments are those of `refuse_other_state`.
    """
    other = Tie.parse(rows.get(TIE, "")).find_difference(read_tie(database))
    if other:
        return f"{other}: it was copied, moved or restored"
    witness = seen.get(rows.get(INSTALLATION, ""))
    if witness is None:
        return ""
    incarnation, head = int(rows.get(INCARNATION, "1")), Head.parse(rows.get(CHAIN, str(Head())))
    if incarnation > witness.incarnation:
        return ""  # a person has said meanwhile, on another computer, what it is
    if incarnation < witness.incarnation or head.seq < witness.seq:
        return f"{_PUT_BACK}: it ends with event {head.seq}, and this computer has seen event {witness.seq}"
    found = find_hash(database, witness.seq)
    if found and found != witness.hash:  # an event that is missing is damage, and reported as such
        return f"{_PUT_BACK}: its event {witness.seq} is not the one that this computer has seen"
    return ""


def find_hash(database: Database, seq: int) -> str:
    """Return the hash of an event, "" for none."""
    with database.reading() as tx:
        return str(tx.execute(text("SELECT hash FROM events WHERE seq = :seq"), {"seq": seq}).scalar() or "")


def read_witnesses(location: Location) -> dict[str, Witness]:
    """Return what this computer has seen of the stores that it used, by installation."""
    return _read_all(_witness_file(location))


def keep_witness(database: Database, installation: str) -> None:
    """Note the newest event of the store, for the next command on this computer. A cache: it is never a failure."""
    with suppress(OSError, DBAPIError, ValueError, KeyError):
        with database.peeking() as tx:
            query = text("SELECT key, value FROM meta WHERE key IN (:a, :b)")
            rows = {str(row.key): str(row.value) for row in tx.execute(query, {"a": CHAIN, "b": INCARNATION})}
        head = Head.parse(rows[CHAIN])
        seen = Witness(incarnation=int(rows[INCARNATION]), seq=head.seq, hash=head.hash)
        file = _witness_file(database.location)
        known = _read_all(file)
        if known.get(installation) != seen:
            known[installation] = seen
            make_private_folder(file.parent)
            write_whole(file, json.dumps({name: asdict(one) for name, one in known.items()}), flush=False)


def _witness_file(location: Location) -> Path:
    where = location.parent if isinstance(location, Path) else load_paths().state
    return where / WITNESS_FILE


def _read_all(file: Path) -> dict[str, Witness]:
    try:
        found = cast(dict[str, dict[str, Any]], json.loads(file.read_text(encoding="utf-8")))
        return {name: Witness(**fields) for name, fields in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
