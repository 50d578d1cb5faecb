"""The migration of the tables of an older orch: numbered steps in one transaction, under a lock.

A step is frozen when it is released: it has its own SQL and never uses the present definitions of the tables,
except for events, whose form the chain fixes. A crash midway leaves the old version untouched. Before the steps, a
SQLite file is copied to orch.db.bak.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, text

from orchestrator.store.apply_change import CHAIN, append_event
from orchestrator.store.audited import Head, format_subject, hash_event, select_audited
from orchestrator.store.connection import Database
from orchestrator.store.failures import StoreError, backup_path
from orchestrator.store.file_copy import copy_committed_state
from orchestrator.store.grants import grant_member, list_members
from orchestrator.store.incarnation import read_tie, refuse_other_state
from orchestrator.store.location import describe_location
from orchestrator.store.meta_rows import IMPORTED, INCARNATION, INSTALLATION, TIE, read_meta, write_meta
from orchestrator.store.other_state import read_witnesses
from orchestrator.store.schema import metadata
from orchestrator.store.server_functions import install_functions
from orchestrator.store.version import (
    MIN_READER,
    MIN_WRITER,
    OLDEST_READER,
    OLDEST_WRITER,
    SCHEMA,
    SCHEMA_VERSION,
    VERSION,
    newer_store_error,
    older_store_error,
    parse_versions,
    refuse_sealed,
)

_LOCK = 0x6F726368  # "orch": key of PostgreSQL's advisory lock


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTables:
    """What an open store says of itself.

    Attributes:
        installation: The name in every label that is put on machines.
        incarnation: Rises each time that the store is moved, copied or restored.
        version: Of its tables.
        imported: The installations whose records were imported: their labels are ours, too.
    """

    installation: str
    incarnation: int
    version: int
    imported: tuple[str, ...] = ()


def open_tables(database: Database, at: float, *, accept_other_state: bool = False) -> OpenedTables:
    """Create the tables, or migrate those of a file, where needed, and return what they say.

    Args:
        database: The open store.
        at: The time that is written.
        accept_other_state: Open a store that was moved, copied or restored too.

    Raises:
        StoreError: this orch may not change the tables, another state than the last one lies there, or no backup can
            be written.
    """
    rows = read_usable_rows(database, accept_other_state=accept_other_state)
    if rows is None or parse_versions(rows).tables < SCHEMA_VERSION:
        create_or_migrate(database, at)
    elif TIE not in rows:
        with database.writing() as tx:
            _tie(tx, database)
            tx.commit()
    rows = read_rows(database) if rows is None or TIE not in rows else rows
    assert rows is not None  # noqa: S101  # the tables exist now
    return OpenedTables(
        installation=rows[INSTALLATION],
        incarnation=int(rows[INCARNATION]),
        version=parse_versions(rows).tables,
        imported=tuple(rows.get(IMPORTED, "").split()),
    )


def read_usable_rows(database: Database, *, accept_other_state: bool = False) -> dict[str, str] | None:
    """Return the rows of meta, or None when there are no tables yet. Changes nothing.

    The arguments are those of `open_tables`.

    Raises:
        StoreError: this orch may not change the tables, or another state than the last one lies there.
    """
    seen = read_witnesses(database.location)
    rows = read_rows(database)
    if rows is not None:
        _refuse(database, rows)
        if not accept_other_state:
            refuse_other_state(database, rows, seen)
    return rows


def read_rows(database: Database) -> dict[str, str] | None:
    """Return the rows of meta, or None when there are no tables yet."""
    with database.reading() as tx:
        return read_meta(tx) if inspect(tx).has_table("meta") else None


def _refuse(database: Database, rows: Mapping[str, str]) -> None:
    """Raise StoreError for tables that this orch may not change, or changes only when a person says so."""
    place, versions = describe_location(database.location), parse_versions(rows)
    refuse_sealed(place, rows)
    if versions.writer > SCHEMA_VERSION:
        raise newer_store_error(place, versions.tables)
    if versions.tables < SCHEMA_VERSION and not database.is_file:
        raise older_store_error(place, versions.tables)


def create_or_migrate(database: Database, at: float) -> None:
    """Bring the tables to the version of this orch, in one transaction under a lock."""
    with database.writing() as tx:
        lock_tables(tx)
        tables = inspect(tx).get_table_names()
        if "meta" not in tables:
            if tables and isinstance(database.location, Path):
                place = str(database.location)
                raise StoreError(
                    f"{place} belongs to another program",
                    f"it has the table {tables[0]}",
                    f"move {place} away, or set ORCH_HOME to another folder",
                )
            metadata.create_all(tx, checkfirst=False)
            write_meta(tx, INSTALLATION, secrets.token_hex(6))
            write_meta(tx, CHAIN, str(Head()))
        else:  # read again: another process may have migrated while we waited for the lock
            rows = read_meta(tx)
            versions = parse_versions(rows)
            if versions.tables >= SCHEMA_VERSION:
                return
            if isinstance(database.location, Path):
                _keep_backup(database.location)
            if INSTALLATION not in rows:
                write_meta(tx, INSTALLATION, secrets.token_hex(6))
            for number in range(versions.tables + 1, SCHEMA_VERSION + 1):
                STEPS[number](tx, at)
        if tx.dialect.name == "postgresql":
            install_functions(tx)
            for login in list_members(tx):  # what they may do with the tables that were added
                grant_member(tx, login)
        _write_versions(tx)
        _tie(tx, database)
        tx.commit()


def lock_tables(tx: Connection) -> None:
    """Keep other processes from creating, migrating or replacing the tables until the transaction ends."""
    if tx.dialect.name == "postgresql":
        tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _write_versions(tx: Connection) -> None:
    """Write the versions. Orchs up to version 4 know only `schema`: they open what an orch of version 4 may change."""
    write_meta(tx, SCHEMA, str(OLDEST_WRITER))
    for key, value in ((VERSION, SCHEMA_VERSION), (MIN_READER, OLDEST_READER), (MIN_WRITER, OLDEST_WRITER)):
        write_meta(tx, key, str(value))


def _tie(tx: Connection, database: Database) -> None:
    """Tie a store without a tie to the place in which it lies."""
    rows = read_meta(tx)
    if TIE not in rows:
        write_meta(tx, TIE, read_tie(database).to_json())
    if INCARNATION not in rows:
        write_meta(tx, INCARNATION, "1")


def _keep_backup(database: Path) -> None:
    """Copy the last committed state, completely or not at all, while we hold the write lock."""
    backup = backup_path(database)
    try:
        copy_committed_state(database, backup)
    except (OSError, sqlite3.Error) as error:  # an unfinished copy is removed by the next attempt
        raise StoreError(
            f"the store {database} must be upgraded, and its backup cannot be written",
            str(error),
            f"free space or make {database.parent} writable, then repeat the command; nothing was changed",
        ) from error


_PIPELINES = (
    "CREATE TABLE pipelines (uid VARCHAR NOT NULL PRIMARY KEY, name VARCHAR NOT NULL, tasks TEXT NOT NULL, "
    "stage INTEGER NOT NULL, state VARCHAR NOT NULL, status INTEGER, what TEXT NOT NULL DEFAULT '', "
    "created FLOAT NOT NULL, ended FLOAT, wish TEXT NOT NULL DEFAULT '')"
)
_STATEMENTS_TO_2 = (
    "ALTER TABLE clusters ADD COLUMN limits TEXT NOT NULL DEFAULT '{}'",
    "ALTER TABLE intents ADD COLUMN born FLOAT",
    "ALTER TABLE intents ADD COLUMN gone FLOAT",
    "UPDATE intents SET born = since WHERE state IN ('accepted', 'ending')",
    "ALTER TABLE jobs ADD COLUMN wish TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN watch TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN pipeline TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN stage INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE attempts ADD COLUMN started_at FLOAT",
    "ALTER TABLE attempts ADD COLUMN exit_code INTEGER",
    "ALTER TABLE attempts ADD COLUMN rank INTEGER",
    "ALTER TABLE attempts ADD COLUMN evidence TEXT NOT NULL DEFAULT ''",
    _PIPELINES,
    "ALTER TABLE events ADD COLUMN subject TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE events ADD COLUMN cause TEXT NOT NULL DEFAULT ''",
    'ALTER TABLE events ADD COLUMN "before" TEXT',
    'ALTER TABLE events ADD COLUMN "after" TEXT',
    "ALTER TABLE events ADD COLUMN prev_hash VARCHAR NOT NULL DEFAULT ''",
    "ALTER TABLE events ADD COLUMN hash VARCHAR NOT NULL DEFAULT ''",
)


def _migrate_to_2(tx: Connection, at: float) -> None:
    """Add the columns of version 2, give the events their hashes, and record each row in one event."""
    for statement in _STATEMENTS_TO_2:
        tx.execute(text(statement))
    head = Head()
    for event in tx.execute(text("SELECT * FROM events ORDER BY seq")).mappings().all():
        moved = Head(event["seq"], hash_event({**event}, head.hash))
        tx.execute(
            text("UPDATE events SET prev_hash = :prev, hash = :hash WHERE seq = :seq"),
            {"prev": head.hash, "hash": moved.hash, "seq": moved.seq},
        )
        head = moved
    write_meta(tx, CHAIN, str(head))
    names = {str(row.uid): str(row.name) for row in tx.execute(text("SELECT uid, name FROM clusters"))}
    for table in ("clusters", "intents", "jobs", "attempts"):
        for found in tx.execute(text(f"SELECT * FROM {table}")).mappings().all():  # noqa: S608  # four constant names
            row: dict[str, Any] = {**found}
            if table == "jobs":
                row["started"] = bool(row["started"])  # SQLite has no booleans
            after = json.dumps(select_audited(table, row), sort_keys=True)
            head = append_event(tx, _upgrade_event(table, row, head, names, at) | {"after": after}, head)


def _upgrade_event(table: str, row: dict[str, Any], head: Head, names: dict[str, str], at: float) -> dict[str, Any]:
    return {
        "seq": head.seq + 1,
        "at": at,
        "cluster": names.get(str(row.get("cluster_uid", row.get("uid"))), ""),
        "actor": "orch",
        "kind": "upgrade",
        "what": f"carried over: {format_subject(table, row)}",
        "subject": format_subject(table, row),
        "cause": "the store was upgraded",
        "before": None,
        "after": None,
    }


_HOST_PINS = (
    "CREATE TABLE host_pins (name VARCHAR NOT NULL PRIMARY KEY, kind VARCHAR NOT NULL, key TEXT NOT NULL, "
    "since FLOAT NOT NULL, actor VARCHAR NOT NULL, job TEXT NOT NULL DEFAULT '')"
)


def _migrate_to_3(tx: Connection, _at: float) -> None:
    """Add the pins of own machines. Those of clusters that exist are carried over from their files, when first used."""
    tx.execute(text(_HOST_PINS))


def _migrate_to_4(tx: Connection, at: float) -> None:
    """Add the records of the providers, and the account of each intent: not known for those of older versions."""
    tx.execute(
        text(
            "CREATE TABLE provider_records (kind VARCHAR NOT NULL, name VARCHAR NOT NULL, body TEXT NOT NULL, "
            "PRIMARY KEY (kind, name))"
        )
    )
    tx.execute(
        text(
            "CREATE TABLE computers (uid VARCHAR NOT NULL PRIMARY KEY, host VARCHAR NOT NULL, member VARCHAR NOT NULL, "
            "public_key TEXT NOT NULL, joined FLOAT NOT NULL)"
        )
    )
    tx.execute(text("ALTER TABLE intents ADD COLUMN account VARCHAR NOT NULL DEFAULT ''"))
    tx.execute(text("ALTER TABLE clusters ADD COLUMN owner VARCHAR NOT NULL DEFAULT ''"))
    head = Head.parse(tx.execute(text("SELECT value FROM meta WHERE key = :key"), {"key": CHAIN}).scalar_one())
    names = {str(row.uid): str(row.name) for row in tx.execute(text("SELECT uid, name FROM clusters"))}
    for table, keys, after in (("clusters", "uid", "owner"), ("intents", "cluster_uid, generation", "account")):
        for found in tx.execute(text(f"SELECT {keys} FROM {table}")).mappings().all():  # noqa: S608  # constants
            event = _upgrade_event(table, {**found}, head, names, at)
            head = append_event(tx, event | {"before": "{}", "after": json.dumps({after: ""})}, head)


_PROJECT_INDEX = (
    "CREATE UNIQUE INDEX one_open_cluster_of_a_name_and_project ON clusters (project, name) WHERE gone IS NULL"
)
_BLOBS = (
    "CREATE TABLE blobs (digest VARCHAR NOT NULL PRIMARY KEY, size BIGINT NOT NULL, unpacked BIGINT NOT NULL, "
    "content TEXT, bucket TEXT NOT NULL DEFAULT '', path TEXT NOT NULL DEFAULT '', used FLOAT NOT NULL)"
)
_ADMISSIONS = (
    "CREATE TABLE admissions (cluster_uid VARCHAR NOT NULL, generation INTEGER NOT NULL, computer VARCHAR NOT NULL, "
    "address VARCHAR NOT NULL, at FLOAT NOT NULL, until FLOAT NOT NULL, confirmed FLOAT NOT NULL DEFAULT 0, "
    "PRIMARY KEY (cluster_uid, generation, computer, address))"
)
_STATEMENTS_TO_5: tuple[str, ...] = (
    "ALTER TABLE clusters ADD COLUMN project VARCHAR NOT NULL DEFAULT ''",
    _PROJECT_INDEX,
    "DROP INDEX IF EXISTS one_living_cluster_of_a_name",
    "CREATE TABLE run_keys (run_id VARCHAR NOT NULL PRIMARY KEY, key VARCHAR NOT NULL)",
    _BLOBS,
    "CREATE TABLE slice_owners (token VARCHAR NOT NULL PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT NOT NULL)",
    # by which a request that arrives twice is done once
    "ALTER TABLE events ADD COLUMN request VARCHAR NOT NULL DEFAULT ''",
    "CREATE INDEX events_by_request ON events (request)",
    "ALTER TABLE computers ADD COLUMN removed FLOAT",
    _ADMISSIONS,
)


def _migrate_to_5(tx: Connection, _at: float) -> None:
    """Add what version 5 has. Every statement only adds, so that an orch of version 4 still works on the tables."""
    for statement in _STATEMENTS_TO_5:
        tx.execute(text(statement))


_ORDERS = (
    "CREATE TABLE orders (uid VARCHAR NOT NULL PRIMARY KEY, project VARCHAR NOT NULL, cluster VARCHAR NOT NULL, "
    "verb VARCHAR NOT NULL, arguments TEXT NOT NULL, plan VARCHAR NOT NULL, fingerprint VARCHAR NOT NULL, "
    "member VARCHAR NOT NULL, state VARCHAR NOT NULL, created FLOAT NOT NULL, run_id VARCHAR NOT NULL DEFAULT '', "
    "ended FLOAT, status INTEGER, code VARCHAR NOT NULL DEFAULT '', what TEXT NOT NULL DEFAULT '', "
    "why TEXT NOT NULL DEFAULT '', next_step TEXT NOT NULL DEFAULT '')"
)
_TOKENS = (
    "CREATE TABLE tokens (digest VARCHAR NOT NULL PRIMARY KEY, name VARCHAR NOT NULL, member VARCHAR NOT NULL, "
    "role VARCHAR NOT NULL, created FLOAT NOT NULL, expires FLOAT NOT NULL, revoked FLOAT)"
)

_NOTIFICATION_CHANNELS = (
    "CREATE TABLE notification_channels (name VARCHAR NOT NULL PRIMARY KEY, seq INTEGER NOT NULL, delivered FLOAT, "
    "problem TEXT NOT NULL DEFAULT '')"
)


def _migrate_to_6(tx: Connection, _at: float) -> None:
    """Add the orders, the tokens of members, and how far notifications were delivered."""
    for statement in (_ORDERS, _TOKENS, _NOTIFICATION_CHANNELS):
        tx.execute(text(statement))


_BUDGETS = (
    "CREATE TABLE budgets (project VARCHAR NOT NULL, member VARCHAR NOT NULL, dollars_per_month FLOAT, "
    "dollars_per_run FLOAT, dollars_per_hour FLOAT, largest_slice INTEGER, markets VARCHAR NOT NULL DEFAULT '', "
    "unknown_prices VARCHAR NOT NULL DEFAULT 'refuse', at_limit VARCHAR NOT NULL DEFAULT 'refuse', removed FLOAT, "
    "revision INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (project, member))"
)
_SESSIONS = (
    "CREATE TABLE sessions (digest VARCHAR NOT NULL PRIMARY KEY, member VARCHAR NOT NULL, role VARCHAR NOT NULL "
    "DEFAULT '', token VARCHAR NOT NULL DEFAULT '', identity VARCHAR NOT NULL DEFAULT '', begun FLOAT NOT NULL, "
    "used FLOAT NOT NULL, ended FLOAT)"
)
_INVITATIONS = (
    "CREATE TABLE invitations (digest VARCHAR NOT NULL PRIMARY KEY, name VARCHAR NOT NULL, member VARCHAR NOT NULL, "
    "role VARCHAR NOT NULL, token_days INTEGER NOT NULL, created FLOAT NOT NULL, expires FLOAT NOT NULL, "
    "state VARCHAR NOT NULL DEFAULT 'open', ended FLOAT)"
)
_SIGN_INS = (
    "CREATE TABLE sign_ins (identity VARCHAR NOT NULL PRIMARY KEY, issuer TEXT NOT NULL, subject TEXT NOT NULL, "
    "member VARCHAR NOT NULL, created FLOAT NOT NULL, revoked FLOAT)"
)
_ENTRY_CODES = (
    "CREATE TABLE entry_codes (digest VARCHAR NOT NULL PRIMARY KEY, kind VARCHAR NOT NULL, details TEXT NOT NULL, "
    "until FLOAT NOT NULL)"
)
_STATEMENTS_TO_7: tuple[str, ...] = (
    _BUDGETS,
    _SESSIONS,
    _INVITATIONS,
    _SIGN_INS,
    "CREATE UNIQUE INDEX one_sign_in_of_a_member ON sign_ins (member)",
    _ENTRY_CODES,
    "CREATE INDEX jobs_by_run ON jobs (run_id)",
    "CREATE INDEX jobs_by_time ON jobs (created, run_id, kind)",
)


def _migrate_to_7(tx: Connection, _at: float) -> None:
    """Add budgets, and how people enter the service: sessions, invitations, sign-ins, secrets that work once."""
    for statement in _STATEMENTS_TO_7:
        tx.execute(text(statement))


_TRUST_RULES = (
    "CREATE TABLE trust_rules (uid VARCHAR NOT NULL PRIMARY KEY, name VARCHAR NOT NULL, issuer TEXT NOT NULL, "
    "claims TEXT NOT NULL, member VARCHAR NOT NULL, role VARCHAR NOT NULL, project VARCHAR NOT NULL, "
    "seconds INTEGER NOT NULL, created FLOAT NOT NULL, expires FLOAT, revoked FLOAT)"
)
_PROJECT_SETTINGS = (
    "CREATE TABLE project_settings (project VARCHAR NOT NULL, key VARCHAR NOT NULL, value TEXT NOT NULL, "
    "PRIMARY KEY (project, key))"
)
_BILLS = (
    "CREATE TABLE bills (line VARCHAR NOT NULL PRIMARY KEY, source VARCHAR NOT NULL, account VARCHAR NOT NULL, "
    "month VARCHAR NOT NULL, token VARCHAR NOT NULL, part VARCHAR NOT NULL, "
    "begin FLOAT NOT NULL, until FLOAT NOT NULL, microdollars BIGINT NOT NULL, imported FLOAT NOT NULL)"
)
_BLOCKS = (
    "CREATE TABLE blocks (block_id VARCHAR NOT NULL PRIMARY KEY, provider VARCHAR NOT NULL, region VARCHAR NOT NULL, "
    "machine VARCHAR NOT NULL, count INTEGER NOT NULL, begin FLOAT NOT NULL, until FLOAT NOT NULL, "
    "microdollars BIGINT NOT NULL, project VARCHAR NOT NULL, member VARCHAR NOT NULL, bought FLOAT NOT NULL)"
)
_PREDICTIONS = (
    "CREATE TABLE predictions (run_id VARCHAR NOT NULL PRIMARY KEY, at FLOAT NOT NULL, estimate TEXT NOT NULL)"
)
_TRUSTED_CHECKPOINTS = (
    "CREATE TABLE trusted_checkpoints (run_id VARCHAR NOT NULL, digest VARCHAR NOT NULL, step BIGINT NOT NULL, "
    "at FLOAT NOT NULL, PRIMARY KEY (run_id, digest))"
)
_STATEMENTS_TO_8: tuple[str, ...] = (
    "ALTER TABLE tokens ADD COLUMN project VARCHAR NOT NULL DEFAULT ''",
    "ALTER TABLE tokens ADD COLUMN parent VARCHAR NOT NULL DEFAULT ''",
    "ALTER TABLE invitations ADD COLUMN project VARCHAR NOT NULL DEFAULT ''",
    _TRUST_RULES,
    _PROJECT_SETTINGS,
    _BILLS,
    "CREATE INDEX bills_by_token ON bills (token)",
    _BLOCKS,
    _PREDICTIONS,
    _TRUSTED_CHECKPOINTS,
    "CREATE INDEX events_by_kind ON events (kind, seq)",
    "CREATE INDEX orders_by_verb ON orders (verb, created)",
    "ALTER TABLE blobs ADD COLUMN project VARCHAR",
)


def _migrate_to_8(tx: Connection, _at: float) -> None:
    """Add rules for tokens of other issuers, settings of projects, bills, blocks, estimates, trusted checkpoints."""
    for statement in _STATEMENTS_TO_8:
        tx.execute(text(statement))


STEPS: dict[int, Callable[[Connection, float], None]] = {
    2: _migrate_to_2,
    3: _migrate_to_3,
    4: _migrate_to_4,
    5: _migrate_to_5,
    6: _migrate_to_6,
    7: _migrate_to_7,
    8: _migrate_to_8,
}
