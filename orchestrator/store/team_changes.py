"""Changes of the team: the computers that share the store, and where each of them is admitted."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, and_, delete, select, text, update

from orchestrator.errors import AccessError, UserError
from orchestrator.store.apply_change import insert_or_nothing
from orchestrator.store.audited import clean_text
from orchestrator.store.change import EventDetails, insert_row, update_row
from orchestrator.store.grants import execute_all, list_grants, list_revokes
from orchestrator.store.ledger import Ledger
from orchestrator.store.ownership import refuse_other_login
from orchestrator.store.schema import admissions, computers
from orchestrator.store.serve_only import refuse_grant
from orchestrator.store.server_functions import install_functions
from orchestrator.store.team_records import AdmissionRecord, ComputerRecord, admission_from_row, computer_from_row

_KIND = "team"
_MEMBER = text(
    "SELECT current_schema() AS place, EXISTS (SELECT FROM pg_roles WHERE rolname = :login) AS there, "
    "has_schema_privilege(current_schema(), 'USAGE WITH GRANT OPTION') OR COALESCE((SELECT has_schema_privilege("
    "rolname, current_schema(), 'USAGE') FROM pg_roles WHERE rolname = :login), false) AS may_use"
)


class TeamChanges(Ledger):
    """The changes of the team."""

    def register_computer(self, uid: str, host: str, member: str, public_key: str) -> None:
        """Record a computer with its public SSH key; one that is recorded so already changes nothing.

        Raises:
            AccessError: It was removed from the team.
        """
        values = {"uid": uid, "host": host, "member": member, "public_key": public_key}
        for at in self._tries(f"the record of the computer {host}"):
            found = self.refuse_removed_computer(uid)
            if found is not None and (found.host, found.member, found.public_key) == (host, member, public_key):
                return
            details = EventDetails(cluster="", kind=_KIND, what=f"computer {host} of {member} joined")
            if found is not None:
                self.change(update_row(computers, {"uid": uid}, values, details), at=at)
                return
            if self.change(insert_row(computers, values | {"joined": at}, details), at=at) == (True,):
                return

    def refuse_removed_computer(self, uid: str) -> ComputerRecord | None:
        """Return the record of a computer, None if there is none.

        Raises:
            AccessError: It was removed from the team.
        """
        found = self._read_first(select(computers).where(computers.c.uid == uid), computer_from_row)
        if found is not None and found.removed is not None:
            raise _removed_error(found)
        return found

    def list_member_statements(self, login: str, *, revoke: bool = False) -> tuple[str, ...]:
        """Return the SQL that makes an existing login of PostgreSQL a member, or ends that.

        Raises:
            UserError: the store is a file, or there is no such login.
            AccessError: the tables, or their schema, belong to another login than this one.
            ConflictError: the service is the only client of the store.
        """
        if self.is_file:
            raise UserError(
                "the store is a file of this user, which has no logins",
                "a team shares a store on PostgreSQL",
                "set ORCH_STORE=postgresql://USER@HOST:PORT/DATABASE   (docs/team.md)",
            )
        refuse_other_login(self._database)  # PostgreSQL would only warn that it granted nothing
        if not revoke:
            refuse_grant(self._database, login)
        with self._database.reading() as tx:
            found = tx.execute(_MEMBER, {"login": login}).one()
        if not found.there:
            create = f"the administrator of PostgreSQL: CREATE ROLE {login} LOGIN; \\password {login}"
            raise UserError(f"PostgreSQL has no login {login!r}", "a member is a login that exists", create)
        if not (revoke or found.may_use):
            grant = f"with the login that owns the schema: GRANT USAGE ON SCHEMA {found.place} TO {login}"
            why = f"the schema {found.place} belongs to another login"
            raise AccessError(f"the login {login!r} may not be let in by this one", why, grant)
        return (list_revokes if revoke else list_grants)(login, str(found.place))

    def change_member(self, login: str, *, revoke: bool = False) -> None:
        """Make a login of PostgreSQL a member, or end that, with an event. Only the store's owner may do it."""
        statements = self.list_member_statements(login, revoke=revoke)
        with self._database.writing() as tx:
            if not revoke:
                install_functions(tx)  # what another commit of orch installed may differ
            execute_all(tx, statements)
            tx.commit()
        self.event("", "team", f"login {login} {'may not use the store any more' if revoke else 'may use the store'}")

    def remove_computer(self, uid: str) -> None:
        """Take a computer out of the team. Its row stays, so that it is refused and not registered again."""
        self._set_removed(uid, removed=True)

    def add_computer(self, uid: str) -> None:
        """Take a removed computer into the team again."""
        self._set_removed(uid, removed=False)

    def _set_removed(self, uid: str, *, removed: bool) -> None:
        found, at = self._read_one(select(computers).where(computers.c.uid == uid), computer_from_row), self._now()
        if (found.removed is not None) is removed:
            return
        what = f"computer {found.host} of {found.member} {'removed' if removed else 'added again'}"
        details = EventDetails(cluster="", kind=_KIND, what=what)
        self.change(update_row(computers, {"uid": uid}, {"removed": at if removed else None}, details), at=at)

    def computers(self) -> tuple[ComputerRecord, ...]:
        """Return the computers that are in the team, by name."""
        query = select(computers).where(computers.c.removed.is_(None)).order_by(computers.c.host, computers.c.uid)
        return self._read_all(query, computer_from_row)

    def all_computers(self) -> tuple[ComputerRecord, ...]:
        """Return the computers of the team, and those that were removed from it, by name."""
        return self._read_all(select(computers).order_by(computers.c.host, computers.c.uid), computer_from_row)

    def admissions(self, cluster_uid: str, generation: int) -> tuple[AdmissionRecord, ...]:
        """Return what lets computers in to the hosts of one slice."""
        query = select(admissions).where(_of_slice(cluster_uid, generation))
        return self._read_all(query.order_by(admissions.c.computer, admissions.c.address), admission_from_row)

    def note_admitted_keys(
        self, cluster_uid: str, generation: int, untils: Mapping[str, float], *, alone: bool
    ) -> None:
        """Record until when computers have their keys on the hosts, by uid; alone: only these and the maker."""
        given, at = {clean_text(uid): until for uid, until in untils.items()}, self._now()
        with self._database.writing() as tx:
            keys = _of_slice(cluster_uid, generation) & (admissions.c.address == "") & (admissions.c.until > 0)
            ours = keys if alone else keys & admissions.c.computer.in_(tuple(given))
            tx.execute(delete(admissions).where(ours))
            for uid, until in given.items():
                _admit(tx, at, cluster_uid, generation, uid, "", until, confirmed=at if alone else 0.0)
            tx.commit()

    def note_admission(
        self, cluster_uid: str, generation: int, uid: str, address: str, until: float, *, confirmed: bool
    ) -> None:
        """Record that a computer is, or is about to be, admitted at an address; "" for its key from the create on."""
        address, now = clean_text(address), self._now()
        with self._database.writing() as tx:
            which = _of_slice(cluster_uid, generation) & and_(
                admissions.c.computer == uid, admissions.c.address == address
            )
            at = now if confirmed else 0.0
            _admit(tx, now, cluster_uid, generation, uid, address, until, confirmed=at)
            tx.execute(update(admissions).where(which).values(at=now, until=until, confirmed=at))
            tx.commit()

    def drop_admission(self, one: AdmissionRecord) -> None:
        """Delete what no longer lets anyone in."""
        which = and_(admissions.c.computer == one.computer, admissions.c.address == one.address)
        self._database.write(delete(admissions).where(_of_slice(one.cluster_uid, one.generation), which))


def _of_slice(cluster_uid: str, generation: int) -> Any:
    return and_(admissions.c.cluster_uid == cluster_uid, admissions.c.generation == generation)


def _admit(
    tx: Connection,
    at: float,
    cluster_uid: str,
    generation: int,
    uid: str,
    address: str,
    until: float,
    *,
    confirmed: float,
) -> None:
    values = {
        "cluster_uid": cluster_uid,
        "generation": generation,
        "computer": uid,
        "address": address,
        "at": at,
        "until": until,
        "confirmed": confirmed,
    }
    tx.execute(insert_or_nothing(tx, admissions, values))


def _removed_error(one: ComputerRecord) -> AccessError:
    day = time.strftime("%Y-%m-%d", time.gmtime(one.removed))
    return AccessError(
        f"this computer ({one.host} of {one.member}) was removed from the team",
        f"on {day}; it may no longer change the shared store",
        f"on a computer of the team: orch team add {one.uid}",
    )
