"""The base of the Store: transactions, their time and their actor. The changes of the tables build on it."""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, Executable, Select, Update, func, select, true
from sqlalchemy.exc import DBAPIError

from orchestrator.acting import find_acting_member
from orchestrator.computer import read_member
from orchestrator.errors import ConflictError
from orchestrator.project import DEFAULT_PROJECT
from orchestrator.store import leases
from orchestrator.store.apply_change import CHAIN, Applied, LockedChain, apply_change
from orchestrator.store.audited import Head
from orchestrator.store.change import ChangeRequest, EventDetails, Guard, RowChange, Verb
from orchestrator.store.connection import Database, refuse_damaged_pages
from orchestrator.store.failures import StoreError, damaged_file_error
from orchestrator.store.incarnation import keep_witness
from orchestrator.store.leases import LEASE_SECONDS, Holder, Lease
from orchestrator.store.location import Location, describe_location
from orchestrator.store.migrations import open_tables
from orchestrator.store.schema import events, meta

CHECKED_BYTES = 4 * 2**20  # files up to this size are checked page by page at every open (1 to 5 ms)

_TRIES = 100  # of a change that depends on rows which others change at the same time; each failure is another's success
_PAUSE = 0.05  # seconds, the longest time before the next try

T = TypeVar("T")


class Ledger:
    """An open database.

    Attributes:
        installation: the name of this installation, in every label that it puts on machines.
        incarnation: rises each time that the store is moved, copied or restored; part of every lease.
        version: of its tables; above SCHEMA_VERSION nothing may be created.
        user: who runs this command, as the operating system calls them.
        member: for whom: who runs it, or the member of the service for whom it acts.
        project: in which clusters are found by their names, and opened.
    """

    def __init__(
        self,
        location: Location,
        now: Callable[[], float] = time.time,
        *,
        lease_seconds: float = LEASE_SECONDS,
        doing: str = "",
        project: str = DEFAULT_PROJECT,
        accept_other_state: bool = False,
    ) -> None:
        """Open, create or migrate the database at `location`.

        Args:
            location: path of a SQLite file, or address of a PostgreSQL database.
            now: returns the epoch seconds that are written; leases use the real time.
            lease_seconds: duration of a lease without renewal.
            doing: the cause of events that name none; "" for what the newest lease was taken for.
            project: the project of the command.
            accept_other_state: open a store that was moved, copied or restored too: to record that it was.

        Raises:
            StoreError: the store cannot be used.
        """
        self.lease_seconds = lease_seconds
        self._now = now
        self._doing = doing
        self.project = project
        self._client = f"{os.uname().nodename}:{os.getpid()}"
        self._database = Database(location)
        try:
            tables = open_tables(self._database, now(), accept_other_state=accept_other_state)
            self.installation, self.incarnation, self.version = tables.installation, tables.incarnation, tables.version
            self._refuse_damage()
            self.user = read_member()
            self.member = find_acting_member() or self.user
        except BaseException:
            self._database.close()
            raise

    def __exit__(self, *raised: object) -> None:
        if not any(isinstance(one, StoreError) for one in raised):  # the store cannot be asked after one
            keep_witness(self._database, self.installation)
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    @property
    def began(self) -> float:
        """When this store was made, in epoch seconds: now, if it holds nothing yet."""
        with self._database.reading() as tx:
            first = tx.execute(select(func.min(events.c.at))).scalar()
        return self._now() if first is None else float(first)

    @property
    def is_file(self) -> bool:
        """Whether it is a file of this computer, which no other one shares."""
        return self._database.is_file

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return describe_location(self._database.location)

    @property
    def actor(self) -> str:
        """Who acts, as events name them: the user, the computer and the process."""
        return f"{self.member}@{self._client}"

    # --- leases -------------------------------------------------------------------------------------------

    def acquire(self, name: str, doing: str) -> Lease | Holder:
        """Take a lease, or return its holder."""
        got = leases.acquire_lease(self._database, name, doing, self.lease_seconds, incarnation=self.incarnation)
        if isinstance(got, Lease) and not self._doing:
            self._doing = doing
        return got

    def renew(self, lease: Lease) -> bool:
        """Extend a lease. Return False when another holder has taken it."""
        return leases.renew_lease(self._database, lease, self.lease_seconds)

    def release(self, lease: Lease) -> None:
        """Give a lease back."""
        leases.release_lease(self._database, lease)

    # --- changes ------------------------------------------------------------------------------------------

    def event(self, cluster: str, kind: str, what: str, *, cause: str = "") -> None:
        """Record an event that changed no row."""
        details = EventDetails(cluster=cluster, kind=kind, what=what, cause=cause)
        self.change(RowChange(verb=Verb.EVENT, event=details), at=self._now())

    def change(
        self, *changes: RowChange, at: float, lease: Lease | None = None, guards: tuple[Guard, ...] = ()
    ) -> tuple[bool, ...] | None:
        """Do all changes with their events, or none: one transaction, and on PostgreSQL two round trips.

        Args:
            changes: what changes.
            at: epoch seconds of the events.
            lease: only its present holder can change something.
            guards: what must be true, mostly what was read before and the changes were made from.

        Returns:
            For each change whether it changed something; None, with nothing changed, when a guard does not hold.

        Raises:
            ConflictError: another holder has taken the lease.
        """
        held = leases.guard_lease(lease) if lease is not None else ()
        applied = self._apply(self._request(at, held + guards, changes))
        if lease is not None and applied.failed is not None and applied.failed < len(held):
            raise leases.lost_lease_error(lease)
        return applied.made if applied.failed is None else None

    @contextmanager
    def changing_whole(self) -> Generator[LockedChain]:
        """Open a transaction for a change of the store as a whole, which no list of row changes says.

        The head stays locked over the network until it ends.
        """
        with self._database.writing() as tx:
            yield LockedChain(tx, self._request(self._now()))
            tx.commit()

    def _request(self, at: float, guards: tuple[Guard, ...] = (), changes: tuple[RowChange, ...] = ()) -> ChangeRequest:
        return ChangeRequest(
            id=secrets.token_hex(8), at=float(at), user=self.member, client=self._client,
            cause=self._doing or "requested", guards=guards, changes=changes,
        )  # fmt: skip

    def _apply(self, request: ChangeRequest) -> Applied:
        with self._database.calling() as tx:
            try:
                return apply_change(tx, request)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
        return self._find_out(request)

    def _tries(self, what: str) -> Iterator[float]:
        """Yield the time of each try of a change that is made from rows read before it.

        Raises:
            ConflictError: others changed the rows at every try.
        """
        for number in range(_TRIES):
            if number:
                time.sleep(random.uniform(0, _PAUSE))  # noqa: S311  # no secret
            yield self._now()
        raise ConflictError(f"{what} changes too often", f"{_TRIES} tries failed", "orch status")

    def _guard_all(self) -> Guard:
        """Return what is true until the next event: for a change made from rows read after this, of any number."""
        head = self._read_one(select(meta.c.value).where(meta.c.key == CHAIN), lambda row: str(row["value"]))
        return Guard(table=meta, key={"key": CHAIN}, values={"value": head})

    def _write(self, lease: Lease | None, statement: Update) -> None:
        """Write what is not audited, under the lease if there is one: one statement, in one round trip."""
        if lease is None:
            self._database.write(statement)
        elif not self._database.write(statement.where(leases.is_held(lease))):
            raise leases.lost_lease_error(lease)

    def _read_one(self, query: Executable, make: Callable[[Any], T]) -> T:
        """Return the row that must exist."""
        with self._database.reading() as tx:
            return make(tx.execute(query).mappings().one())

    def _find_out(self, request: ChangeRequest) -> Applied:
        """Send a request again whose answer was lost. It is done once: its events have its id.

        What the lost connection may still do is waited for, since it keeps the head of the chain locked.
        """
        try:
            with self._database.calling() as tx:
                return apply_change(tx, request)
        except StoreError as unknown:
            raise StoreError(
                "the connection to the store was lost, and it is unknown whether the last step was recorded",
                unknown.why,
                unknown.next_step,
            ) from unknown

    def _read_all(self, query: Select[Any], make: Callable[[Any], T]) -> tuple[T, ...]:
        with self._database.reading() as tx:
            return tuple(make(row) for row in tx.execute(query).mappings())

    def _read_first(self, query: Select[Any], make: Callable[[Any], T]) -> T | None:
        found = self._read_all(query.limit(1), make)
        return found[0] if found else None

    def _refuse_damage(self) -> None:
        """Check a small file page by page, and any store for the newest event that its head names."""
        path = self._database.location
        with self._database.reading() as tx:
            if not isinstance(path, str) and path.stat().st_size <= CHECKED_BYTES:
                refuse_damaged_pages(tx, path)
            head, newest = _ends_of_the_chain(tx)
        if head != newest:
            why = f"its newest event is {newest.seq}, and should be {head.seq}: events were lost or changed"
            if isinstance(path, str):
                raise StoreError(
                    "the store is damaged", why, "restore the database from its backup, then: orch recover"
                )
            raise damaged_file_error(path, why)


def _ends_of_the_chain(tx: Connection) -> tuple[Head, Head]:
    """Return the recorded head and that of the newest event, read in one statement so that no write comes between."""
    last = select(events.c.seq, events.c.hash).order_by(events.c.seq.desc()).limit(1).subquery()
    query = select(meta.c.value, last.c.seq, last.c.hash).join_from(meta, last, true(), isouter=True)
    row = tx.execute(query.where(meta.c.key == CHAIN)).first()
    if row is None:
        return Head(-1), Head()  # every store has a head
    return Head.parse(row.value), Head(row.seq or 0, row.hash or "")
