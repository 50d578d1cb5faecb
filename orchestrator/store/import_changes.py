"""The import of a person's state folder into a team's store: sealed first, then one transaction, then marked.

Killed anywhere, the same command completes it. A cluster keeps its uid, its machines their names and labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Table, select, update

from orchestrator.computer import find_computer, read_member
from orchestrator.errors import ConflictError, UserError
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.store.apply_change import CHAIN, LockedChain
from orchestrator.store.audited import KEYS, Head, format_subject
from orchestrator.store.batches import insert_or_nothing
from orchestrator.store.change import EventDetails, insert_row
from orchestrator.store.connection import Database
from orchestrator.store.ledger import Ledger
from orchestrator.store.location import Location, describe_location
from orchestrator.store.meta_rows import IMPORTED, INSTALLATION, SEALED, read_meta, write_meta
from orchestrator.store.migrations import open_tables, read_rows, read_usable_rows, refuse_other_version
from orchestrator.store.schema import (
    admissions,
    blobs,
    budgets,
    clusters,
    intents,
    metadata,
    provider_records,
    run_keys,
    slice_owners,
)
from orchestrator.store.sealing import refuse_holders, refuse_other_target
from orchestrator.store.version import SCHEMA_VERSION, parse_versions

_STAY = ("budgets", "project_settings")  # a person's own limits and identities are not those of a team
_AUDITED = tuple(name for name in KEYS if name not in _STAY)  # clusters come first
_NOT_AUDITED = (provider_records, run_keys, blobs, admissions)  # leases and events stay with the sealed file


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """All records of a sealed store.

    Attributes:
        installation: its id, which the labels of its machines carry.
        head: the end of its audit.
        tables: the rows by table.
    """

    installation: str
    head: Head
    tables: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import added: the names of clusters here by their names there, and the number of rows of all tables."""

    names: dict[str, str]
    rows: int


def read_source(database: Database) -> Source:
    """Return all records of an open file."""
    with database.reading() as tx:
        rows = read_meta(tx)
        tables = {
            name: [{**row} for row in tx.execute(select(metadata.tables[name])).mappings()]
            for name in (*_AUDITED, *(table.name for table in _NOT_AUDITED))
        }
    return Source(installation=rows[INSTALLATION], head=Head.parse(rows[CHAIN]), tables=tables)


def open_source(file: Path, at: float) -> Database:
    """Open the file of a state folder, with tables of the present version.

    Raises:
        StoreError: it was copied or restored, or was imported into another store.
    """
    database = Database(file)
    try:
        if SEALED not in (read_rows(database) or {}):  # else a killed command has sealed it, and this one continues
            open_tables(database, at)
    except BaseException:
        database.close()
        raise
    return database


def refuse_import(file: Path, target: Location, state: Path, *, wait: bool) -> None:
    """Raise what prevents the import of a file before it is sealed. Changes nothing.

    Args:
        file: of the state folder.
        target: the store into which it goes.
        state: the state folder of this command.
        wait: the command waits until no orch works with the file any more.

    Raises:
        AccessError: the tables of the target belong to another login.
        UserError: it is the target itself.
        ConflictError: an orch works with the file, hosts are processes of its folder, or both have a record of the same
            slice.
        StoreError: one of the two cannot be used, or the file was imported into another store.
    """
    if isinstance(target, Path) and target.exists() and target.samefile(file):
        step = "export ORCH_STORE=postgresql://USER@HOST:PORT/DATABASE   or ORCH_HOME=FOLDER, of the team's store"
        raise UserError("a folder is not imported into itself", f"{file} is the store of this command", step)
    with closing(Database(file)) as source:
        rows = read_rows(source) or {}
        refuse_other_version(source, rows)
        if SEALED in rows:
            refuse_other_target(source, rows, describe_location(target))
            return
        read_usable_rows(source)
        if rows and not wait:
            with source.reading() as tx:
                refuse_holders(tx, source, "imported")
        if rows and file.parent.resolve() != state.resolve():
            _refuse_own_processes(source, file.parent)
        if isinstance(target, Path) and not target.exists():
            return  # opening it would make it
        with closing(Database(target)) as place:
            if read_usable_rows(place) is not None and parse_versions(rows).tables == SCHEMA_VERSION:
                refuse_same_slices(place, read_source(source))


def _refuse_own_processes(source: Database, folder: Path) -> None:
    """Raise ConflictError where hosts are processes of the state folder: no other one could ever end them."""
    query = select(intents.c.account, clusters.c.name).join(clusters, clusters.c.uid == intents.c.cluster_uid)
    with source.reading() as tx:
        rows = tx.execute(query.where(intents.c.state.not_in(list(FINAL_STATES)))).all()
    own = find_computer(folder)
    for row in rows:
        if own and f":{own}:" in row.account:
            raise ConflictError(
                f"the hosts of '{row.name}' are processes of the folder {folder}",
                "a store of another folder can neither reach nor end them",
                f"end them first: ORCH_HOME={folder.parent} orch down {row.name}",
            )


def refuse_same_slices(target: Database, source: Source) -> None:
    """Raise ConflictError where both stores have a provider's record of the same name: one would be lost."""
    with target.reading() as tx:
        there = {(row["kind"], row["name"]): row["body"] for row in tx.execute(select(provider_records)).mappings()}
    for row in source.tables[provider_records.name]:
        if there.get((row["kind"], row["name"]), row["body"]) != row["body"]:
            raise ConflictError(
                f"both stores have a record of {row['name']} ({row['kind']})",
                "one of the two would be lost",
                "end one of the two first: orch down",
            )


class ImportChanges(Ledger):
    """The changes of an import."""

    def __enter__(self) -> ImportChanges:
        return self

    def refuse_same_slices(self, source: Source) -> None:
        """Do as the function of this name."""
        refuse_same_slices(self._database, source)

    def import_records(self, source: Source) -> Imported:
        """Add the records that are not here yet, each with an event, in one transaction.

        The hosts of open slices have the old installation as their owner: they get a higher epoch, which they accept.
        """
        tables = {**source.tables, slice_owners.name: _raise_epochs(source)}
        cause = f"orch store import: the audit of {source.installation} ended with event {source.head}"
        added = 0
        with self.changing_whole() as chain:
            here = {row.uid for row in chain.tx.execute(select(clusters.c.uid))}
            names = _choose_names(chain, source)
            for name in _AUDITED:
                for row in tables[name]:
                    values = {**row, "name": names[row["uid"]], **self._own(row)} if name == "clusters" else row
                    if name != "clusters" or row["uid"] not in here:
                        added += _insert(chain, metadata.tables[name], values, names, cause)
            known = read_meta(chain.tx).get(IMPORTED, "").split()
            if source.installation not in (*known, self.installation):
                for table in _NOT_AUDITED:
                    for row in source.tables[table.name]:
                        chain.tx.execute(insert_or_nothing(chain.tx, table, row))
                write_meta(chain.tx, IMPORTED, " ".join([*known, source.installation]))
            chain.tx.execute(update(budgets).values(revision=budgets.c.revision + 1))  # the slices count in them now
        return Imported(names={row["name"]: names[row["uid"]] for row in source.tables["clusters"]}, rows=added)

    def _own(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the owner of a cluster here. A file names people by their user name, a database by their login."""
        return {"owner": self.user if row["owner"] == read_member() else row["owner"]}


def _raise_epochs(source: Source) -> list[dict[str, Any]]:
    """Return the rows of `slice_owners`, with a higher epoch for each open slice, which its hosts accept."""
    owners = {row["token"]: row for row in source.tables[slice_owners.name]}
    for intent in source.tables[intents.name]:
        token = intent["token"]
        row = owners.get(token, {"token": token, "epoch": 1, "holder": ""})
        if intent["state"] not in FINAL_STATES and not row["holder"]:
            owners[token] = {**row, "epoch": row["epoch"] + 1}
    return list(owners.values())


def _insert(chain: LockedChain, table: Table, row: dict[str, Any], names: dict[str, str], cause: str) -> bool:
    cluster = names.get(str(row.get("cluster_uid", row.get("uid"))), "")
    what = f"imported: {format_subject(table.name, row)}"
    details = EventDetails(cluster=cluster, kind="import", what=what, cause=cause)
    return chain.apply(insert_row(table, row, details))


def _choose_names(chain: LockedChain, source: Source) -> dict[str, str]:
    """Return the name of each cluster here, by uid: its own, or with the suffix -2, -3, ... where that one is taken."""
    rows = chain.tx.execute(select(clusters.c.uid, clusters.c.name, clusters.c.gone)).all()
    names = {str(row.uid): str(row.name) for row in rows}
    taken = {str(row.name) for row in rows if row.gone is None}
    for row in source.tables["clusters"]:
        if row["uid"] in names:
            continue
        name, number = str(row["name"]), 1
        while row["gone"] is None and name in taken:
            number += 1
            name = f"{row['name']}-{number}"
        names[row["uid"]] = name
        taken |= {name} if row["gone"] is None else set()
    return names
