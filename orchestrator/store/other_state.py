"""The marks by which orch notices that a store was copied, moved or restored from an older state. Light, reads only.

Two records are compared. The tie, in the store, names the file or the database in which it was made. The witness, in
the state folder of each computer, is the newest event that this computer has seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from orchestrator.computer import read_machine
from orchestrator.paths import load_paths
from orchestrator.store.audited import Head
from orchestrator.store.failures import StoreError, damaged_file_error
from orchestrator.store.location import Location, describe_location
from orchestrator.store.version import refuse_replaced

if TYPE_CHECKING:
    from orchestrator.store.read import Reader

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


def read_file_tie(file: Path) -> Tie:
    """Return the place in which a file lies now."""
    return Tie(machine=read_machine(), file=str(file.stat().st_ino))


def find_refusal(reader: Reader, location: Location) -> StoreError | None:
    """Return the error with which a command that changes the store is refused, because of what the store is."""
    seen = read_witnesses(location)
    rows = {str(row["key"]): str(row["value"]) for row in reader.rows("meta")}
    try:
        refuse_replaced(describe_location(location), rows)
    except StoreError as error:
        return error
    problem = find_other_state(rows, reader.read_tie(), seen, reader.find_hash)
    if problem and isinstance(location, Path) and (fault := reader.find_page_fault()):
        return damaged_file_error(location, " ".join(fault.split()))
    return other_state_error(location, problem) if problem else None


def find_file_refusal(reader: Reader) -> str:
    """Return why a file is only read, "" where it is not. A database is not asked: it costs several round trips."""
    file = reader.file
    refusal = find_refusal(reader, file) if file is not None and file.exists() else None
    return refusal.why if refusal is not None else ""


def other_state_error(location: Location, problem: str) -> OtherStateError:
    """Return the error for what `find_other_state` found."""
    return OtherStateError(
        f"the store {describe_location(location)} is only read, and nothing is changed", problem, _NEXT
    )


def find_other_state(
    rows: Mapping[str, str], present: Tie, seen: Mapping[str, Witness], find_hash: Callable[[int], str]
) -> str:
    """Return what shows that a store was copied, moved or put back, or "" where nothing does.

    Args:
        rows: Its rows of meta.
        present: The place in which it lies now.
        seen: What `read_witnesses` returned before the rows were read: others may write meanwhile.
        find_hash: Returns the hash of the event of a number, "" for none.
    """
    other = Tie.parse(rows.get("tie", "")).find_difference(present)
    if other:
        return f"{other}: it was copied, moved or restored"
    witness = seen.get(rows.get("installation", ""))
    if witness is None:
        return ""
    incarnation, head = int(rows.get("incarnation", "1")), Head.parse(rows.get("chain", str(Head())))
    if incarnation > witness.incarnation:
        return ""  # a person has said meanwhile, on another computer, what it is
    if incarnation < witness.incarnation or head.seq < witness.seq:
        return f"{_PUT_BACK}: it ends with event {head.seq}, and this computer has seen event {witness.seq}"
    found = find_hash(witness.seq)
    if found and found != witness.hash:  # an event that is missing is damage, and reported as such
        return f"{_PUT_BACK}: its event {witness.seq} is not the one that this computer has seen"
    return ""


def read_witnesses(location: Location) -> dict[str, Witness]:
    """Return what this computer has seen of the stores that it used, by installation."""
    return read_witness_file(find_witness_file(location))


def find_witness_file(location: Location) -> Path:
    """Return where `read_witnesses` reads."""
    where = location.parent if isinstance(location, Path) else load_paths().state
    return where / WITNESS_FILE


def read_witness_file(file: Path) -> dict[str, Witness]:
    """Return the witnesses that a file has, none where it cannot be read."""
    try:
        found = cast(dict[str, dict[str, Any]], json.loads(file.read_text(encoding="utf-8")))
        return {name: Witness(**fields) for name, fields in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
