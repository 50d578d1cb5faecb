"""The version of the tables that this orch writes, and the errors for stores of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.distribution import install_command
from orchestrator.store.failures import StoreError

SCHEMA_VERSION = 1
OLDEST_READER = 1  # the oldest orch that can read the tables of SCHEMA_VERSION
OLDEST_WRITER = 1  # the oldest that can change them: all that later versions have are additions
# Keys of the table meta.
VERSION = "version"
MIN_READER = "min_reader"
MIN_WRITER = "min_writer"
REPLACED = "replaced"  # only a file that a backup replaces has it: where a copy of it is, "" for none
EARLIER = "schema"  # only stores from before version 1 have it
EARLIER_COMMIT = "d22a8bd1"  # the last commit that works with them
OPEN_CLUSTERS = "SELECT name FROM clusters WHERE gone IS NULL ORDER BY name"
_UPGRADE = f"upgrade orch: {install_command('', '--upgrade')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The version of the tables, and the oldest versions of orch that may read and change them."""

    tables: int
    reader: int
    writer: int


def parse_versions(rows: Mapping[str, str]) -> Versions:
    """Return the versions in the rows of meta; those of this orch where there are none."""
    tables = int(rows.get(VERSION, SCHEMA_VERSION))
    return Versions(tables=tables, reader=int(rows.get(MIN_READER, tables)), writer=int(rows.get(MIN_WRITER, tables)))


def describe_earlier(rows: Mapping[str, str]) -> str:
    """Return the version of tables from before version 1, such as "the old version 8"; "" for others."""
    return f"the old version {rows.get(VERSION) or rows[EARLIER]}" if EARLIER in rows else ""


def refuse_earlier(place: str, rows: Mapping[str, str], list_open: Callable[[], Iterable[str]]) -> None:
    """Raise StoreError for a store from before version 1, which is neither read nor changed.

    Args:
        place: Of the store.
        rows: Its rows of meta.
        list_open: Returns the names of its open clusters, by the query OPEN_CLUSTERS.
    """
    old = describe_earlier(rows)
    if not old:
        return
    names = list(list_open())
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    variable = "ORCH_STORE=ADDRESS" if "://" in place else "ORCH_HOME=FOLDER"
    raise StoreError(
        f"the store {place} has tables of {old}, and this orch uses version {SCHEMA_VERSION}: it changes nothing there",
        f"open there: {', '.join(names[:5])}{more}; orch of commit {EARLIER_COMMIT} ends them" if names else "",
        f"export {variable}   for a new store",
    )


def newer_store_error(place: str, version: int) -> StoreError:
    """Return the error for a store that a newer orch has written."""
    return StoreError(
        f"the store {place} was written by a newer orch",
        f"its tables have version {version}, this orch supports versions up to {SCHEMA_VERSION}",
        _UPGRADE,
    )


def older_store_error(place: str, version: int) -> StoreError:
    """Return the error of a changing command for a team's store that an older orch has made."""
    return StoreError(
        f"the store {place} must be upgraded before this orch can change it",
        f"its tables have version {version}, this orch writes version {SCHEMA_VERSION}; others may have older ones",
        "orch store upgrade --dry-run   shows what it does, then: orch store upgrade",
    )


def refuse_replaced(place: str, rows: Mapping[str, str]) -> None:
    """Raise StoreError for a file that a backup was about to replace, by its rows of meta."""
    if REPLACED not in rows:
        return
    copy = f"; a copy of it is {rows[REPLACED]}" if rows[REPLACED] else ""
    why = f"a backup was about to replace it, and that command was interrupted{copy}"
    step = "orch store restore URI --replace   completes it"
    raise StoreError(f"the store {place} is not changed any more", why, step)


def creation_error(place: str, version: int) -> StoreError:
    """Return the error of a command that creates something in a store that a newer orch has written."""
    return StoreError(
        f"the store {place} was written by a newer orch: this one can show, stop and end what is there, and create "
        "nothing",
        f"its tables have version {version}, this orch knows version {SCHEMA_VERSION}",
        _UPGRADE,
    )


def unknown_value_error(row: str, column: str, value: object, known: Iterable[str] = ()) -> StoreError:
    """Return the error for a stored value that this orch does not know.

    Such a row is refused: a default could be wrong, and wrong about money.

    Args:
        row: the subject of the row, as `audited.format_subject` writes it.
        column: name of the column.
        value: what the column holds.
        known: the values that this orch knows, where they can be listed.
    """
    listed = ", ".join(repr(one) for one in known if one)
    return StoreError(
        f"the store has a row that this orch cannot read: {row}",
        f"{column} is {_shortened(value)}, written by a newer orch or changed by another program"
        + (f"\nknown values: {listed}" if listed else ""),
        _UPGRADE,
    )


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
