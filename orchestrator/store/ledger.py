"""The base of the Store: transactions, the time they write, and who writes. The tables' own changes are built on it."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, select, true
from sqlalchemy.exc import DBAPIError

from orchestrator.store import leases
from orchestrator.store.audited import Head
from orchestrator.store.change import CHAIN, Change, Why, lock_head
from orchestrator.store.connection import Database
from orchestrator.store.failures import StoreError, damaged
from orchestrator.store.leases import LEASE_SECONDS, Holder, Lease
from orchestrator.store.location import Location
from orchestrator.store.migrations import open_tables
from orchestrator.store.schema import events, meta

CHECKED_BYTES = 4 * 2**20  # files up to this size are checked page by page at every open (1 to 5 ms)

T = TypeVar("T")


class Ledger:
    """An open database.

    installation: names this user's orch in every label it puts on machines. now: gives the epoch seconds that are
    written; leases use the real time. doing: the cause of events that name none; until it is given, what the newest
    lease of this object was taken for. Raises StoreError when the store cannot be used.
    """

    def __init__(
        self,
        location: Location,
        now: Callable[[], float] = time.time,
        *,
        lease_seconds: float = LEASE_SECONDS,
        doing: str = "",
    ) -> None:
        self.lease_seconds = lease_seconds
        self._now = now
        self._doing = doing
        self._actor = f"{_user()}@{os.uname().nodename}:{os.getpid()}"
        self._database = Database(location)
        try:
            self.installation = open_tables(self._database, now())
            self._refuse_damage()
        except BaseException:
            self._database.close()
            raise

    def __exit__(self, *_exc: object) -> None:
        self._database.close()

    # --- leases -------------------------------------------------------------------------------------------

    def acquire(self, name: str, doing: str) -> Lease | Holder:
        got = leases.acquire(self._database, name, doing, self.lease_seconds)
        if isinstance(got, Lease) and not self._doing:
            self._doing = doing
        return got

    def renew(self, lease: Lease) -> bool:
        return leases.renew(self._database, lease, self.lease_seconds)

    def release(self, lease: Lease) -> None:
        leases.release(self._database, lease)

    # --- transactions -------------------------------------------------------------------------------------

    def event(self, cluster: str, kind: str, what: str, *, cause: str = "") -> None:
        """A remark: something worth knowing that changed no record."""
        with self.changing() as change:
            change.remark(Why(cluster, kind, what, cause))

    @contextmanager
    def changing(self, lease: Lease | None = None) -> Generator[Change]:
        """A transaction. With a lease, only its present holder can commit it; ConflictError for others."""
        with self._database.writing() as tx:
            change = Change(tx, self._now(), self._actor, self._doing or "asked for")
            if lease is not None:
                leases.check(tx, lease)
            yield change
            try:
                tx.commit()
            except DBAPIError as error:
                if not (error.connection_invalidated and change.has_events):
                    raise
                self._find_out(change.head, error)

    def _find_out(self, ours: Head, error: DBAPIError) -> None:
        """The answer to a commit was lost: look whether our newest event is there. Raises StoreError when it is not.

        The head is locked first: the server may still be at work on the old commit.
        """
        try:
            with self._database.writing() as tx:
                lock_head(tx)
                there = tx.execute(select(events.c.hash).where(events.c.seq == ours.seq)).scalar()
        except StoreError as unknown:
            raise StoreError(
                "the connection to the store was lost, and whether the last step was recorded is not known",
                unknown.why,
                unknown.next_step,
            ) from error
        if there != ours.hash:
            raise self._database.failure(error) from error

    def _read_all(self, query: Select[Any], make: Callable[[Any], T]) -> tuple[T, ...]:
        with self._database.reading() as tx:
            return tuple(make(row) for row in tx.execute(query).mappings())

    def _read_first(self, query: Select[Any], make: Callable[[Any], T]) -> T | None:
        found = self._read_all(query.limit(1), make)
        return found[0] if found else None

    def _refuse_damage(self) -> None:
        """A small file is checked page by page, any store for an event behind its chain's head that fits."""
        path = self._database.location
        with self._database.reading() as tx:
            if not isinstance(path, str) and path.stat().st_size <= CHECKED_BYTES:
                said = tx.exec_driver_sql("PRAGMA quick_check(1)").scalar()
                if said != "ok":
                    raise damaged(path, str(said))
            head, newest = _ends_of_the_chain(tx)
        if head != newest:
            why = (
                f"its newest event is {newest.seq}, and should be {head.seq}: events were lost or changed from outside"
            )
            raise damaged(path, why) if not isinstance(path, str) else StoreError("the store is damaged", why)


def _ends_of_the_chain(tx: Connection) -> tuple[Head, Head]:
    """The head on record, and the newest event as it is. One statement: others may write between two."""
    last = select(events.c.seq, events.c.hash).order_by(events.c.seq.desc()).limit(1).subquery()
    query = select(meta.c.value, last.c.seq, last.c.hash).join_from(meta, last, true(), isouter=True)
    row = tx.execute(query.where(meta.c.key == CHAIN)).first()
    if row is None:
        return Head(-1), Head()  # a store of ours always has a head
    return Head.read(row.value), Head(row.seq or 0, row.hash or "")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())
