"""A team's store of which the service is the only client: no other login of the database may use its tables.

Roles and budgets are promised only there. The database enforces it, so it holds for every version of orch. A login that
lost its rights may still ask for rows of some tables, where a policy raises an error with the address of the service.
What no database can refuse is its owner, and its administrators. Others whom the revokes do not reach are named first,
and each is agreed to (direct_logins.py).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from orchestrator.errors import AccessError, ConflictError, UserError
from orchestrator.messages import join_some
from orchestrator.store.apply_change import LockedChain
from orchestrator.store.change import EventDetails, RowChange, Verb
from orchestrator.store.connection import Database
from orchestrator.store.direct_logins import DirectLogin, list_direct_logins
from orchestrator.store.failures import SERVED_MARK
from orchestrator.store.grants import (
    FUNCTION,
    NOTE_FUNCTION,
    execute_all,
    list_grants,
    list_members,
    list_revokes,
    quote_name,
)
from orchestrator.store.ledger import Ledger
from orchestrator.store.location import describe_location
from orchestrator.store.meta_rows import SERVED, read_meta, write_meta
from orchestrator.store.ownership import refuse_other_login
from orchestrator.store.schema import metadata
from orchestrator.store.served_store import ServedStore
from orchestrator.store.server_login import ServerLogin

_ADDRESS = re.compile(r"https?://[\w.\-\[\]:]+(?:/[\w./\-]*)?", re.ASCII)
_SHOWN = 3  # logins or sessions that an error names
_EXPLAINING = ("meta", "clusters", "jobs", "events")  # what a command of any version reads first
_POLICY = "orch_serve_only"
_FUNCTION = "orch_refuse_direct_client"
_OWNER = text("SELECT pg_get_userbyid(relowner), current_schema() FROM pg_class WHERE oid = to_regclass('meta')")
_HOLDERS = text(  # "" is PUBLIC; `more`: it has rights beside those by which a login learns why it is refused
    "SELECT COALESCE(rolname, '') AS name, "
    "bool_or(privilege_type <> 'SELECT' OR ours.name <> ALL(:explaining)) AS more "
    "FROM (SELECT relname AS name, relowner AS owner, relacl AS acl FROM pg_class "
    "WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(:tables) UNION ALL "
    "SELECT proname, proowner, proacl FROM pg_proc "
    "WHERE pronamespace = current_schema()::regnamespace AND proname = ANY(:functions) UNION ALL "
    # Those on columns are taken with those on the table ("REVOKE" in the documentation of PostgreSQL 17, 2026-11).
    "SELECT relname, relowner, attacl FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
    "WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(:tables)) AS ours, "
    "aclexplode(acl) AS held LEFT JOIN pg_roles ON pg_roles.oid = grantee WHERE grantee <> owner GROUP BY 1 ORDER BY 1"
)
_BLOCKING = text(
    "SELECT DISTINCT pid, usename FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'relation' "
    "AND granted AND pid <> pg_backend_pid() "
    "AND relation IN (SELECT to_regclass(name) FROM unnest(CAST(:tables AS text[])) AS name) ORDER BY 1"
)
LOCK_SECONDS = 10.0  # for which the tables are waited for: all other clients wait behind it
_OURS = {
    "tables": list(metadata.tables),
    "functions": [one.partition("(")[0] for one in (FUNCTION, NOTE_FUNCTION)],
    "explaining": list(_EXPLAINING),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServePlan:
    """What makes the service the only client.

    Attributes:
        served: What is recorded.
        owner: The login that owns the tables.
        creates_login: Whether the login of the servers does not exist yet.
        losing: The logins that lose their rights now; "" for those that all logins have.
        able_to_return: The logins that the revokes do not keep out.
        unagreed: Those of them that an administrator could keep out, and that no one has agreed to.
        statements: The SQL, without that of the password.
    """

    served: ServedStore
    owner: str
    creates_login: bool
    losing: tuple[str, ...]
    able_to_return: tuple[DirectLogin, ...]
    unagreed: tuple[DirectLogin, ...]
    statements: tuple[str, ...]

    @property
    def unrestored(self) -> tuple[str, ...]:
        """Those that lose rights which `open_again` does not give back: what others than members had is not known."""
        return tuple(one for one in self.losing if one not in self.served.revoked)


class ServeOnlyChanges(Ledger):
    """The changes that make the service the only client, and open the store again. The store's owner does them."""

    def __enter__(self) -> ServeOnlyChanges:
        return self

    def plan_serving(self, address: str, login: str = "", allowed: Collection[str] = ()) -> ServePlan:
        """Return what would be done; changes nothing.

        Args:
            address: Of the service.
            login: Which servers use; "" for the login that owns the tables.
            allowed: The logins that may stay able to use the tables directly.

        Raises:
            UserError: The address is none, or the store is a file.
            AccessError: The tables belong to another login than this one.
        """
        if _ADDRESS.fullmatch(address) is None:
            raise UserError(f"{address!r} is not the address of a service", "", "write https://orch.example.org")
        _refuse_file(self._database)
        refuse_other_login(self._database)
        with self._database.reading() as tx:
            owner, schema = tx.execute(_OWNER).one()
            login = login or owner
            there = tx.execute(text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :login)"), {"login": login})
            creates = not there.scalar_one()
            members = set(list_members(tx)) - {login}
            holders = {str(row.name): bool(row.more) for row in tx.execute(_HOLDERS, _OURS)}
            able = list_direct_logins(tx, login)
            before = read_meta(tx).get(SERVED)
        known = ServedStore.parse(before).revoked if before else ()
        revoked = tuple(sorted({*known, *members} - {login}))
        served = ServedStore(address=address, login=login, revoked=revoked)
        statements = [one for holder in holders for one in _list_losses(holder, schema)]
        statements += [] if login == owner else list_grants(login, schema)
        statements += _list_refusals(served, schema)
        losing = tuple(one for one, more in holders.items() if one != login and (more or one not in known))
        return ServePlan(
            served=served, owner=owner, creates_login=creates, losing=losing, able_to_return=able,
            unagreed=tuple(one for one in able if not one.always and one.name not in allowed),
            statements=tuple(statements),
        )  # fmt: skip

    def serve_only(self, plan: ServePlan, login: ServerLogin, password: str) -> None:
        """Do what the plan shows, and set the password of the servers' login: one transaction, with its event.

        Raises:
            AccessError: This login may not change that of the servers, or others would stay direct clients.
            ConflictError: Another session keeps the tables locked.
        """
        refuse_unagreed(plan)
        served, lost = plan.served, ", ".join(one or "every login" for one in plan.losing)
        what = f"clients come through the service {served.address} alone; its servers use the login {served.login}"
        details = EventDetails(cluster="", kind="team", what=what + (f"; these may not: {lost}" if lost else ""))
        with self._changing_tables() as chain:
            try:
                login.set_password(chain.tx, password, create=plan.creates_login)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") == "42501":  # insufficient_privilege
                    raise _refused_login_error(plan, self.user) from error
                raise
            execute_all(chain.tx, plan.statements)
            write_meta(chain.tx, SERVED, served.to_json())
            chain.apply(RowChange(verb=Verb.EVENT, event=details))

    def open_again(self) -> ServedStore:
        """Give the members' logins their rights again that `serve_only` took, and return what was recorded.

        Raises:
            UserError: The service is not the only client.
        """
        _refuse_file(self._database)
        refuse_other_login(self._database)
        with self._changing_tables() as chain:
            value = read_meta(chain.tx).get(SERVED)
            if value is None:
                raise UserError(f"the store {self.place} is open to its members", "", "orch store   shows what it is")
            served = ServedStore.parse(value)
            schema = str(chain.tx.execute(_OWNER).one()[1])
            there = {str(row.rolname) for row in chain.tx.execute(text("SELECT rolname FROM pg_roles"))}
            execute_all(chain.tx, _list_openings())
            for one in there.intersection(served.revoked):
                execute_all(chain.tx, list_grants(one, schema))
            chain.tx.execute(text("DELETE FROM meta WHERE key = :key"), {"key": SERVED})
            what = f"members may use the store directly again, beside the service {served.address}"
            chain.apply(RowChange(verb=Verb.EVENT, event=EventDetails(cluster="", kind="team", what=what)))
        return served

    def change_password(self, login: ServerLogin, password: str) -> None:
        """Set the password of the login that this command itself uses, with an event; every login may do that."""
        with self._database.writing() as tx:
            login.set_password(tx, password, create=False)
            tx.commit()
        self.event("", "team", f"the password of the login {login.name} was changed")

    @contextmanager
    def _changing_tables(self) -> Generator[LockedChain]:
        """Open a transaction that changes tables themselves, and locks them before the head of the chain.

        In the other order it would wait for one that waits for the head.
        """
        with self._database.writing() as tx:
            tx.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms'")
            try:
                tx.exec_driver_sql(f"LOCK TABLE {', '.join(_EXPLAINING)} IN ACCESS EXCLUSIVE MODE")
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") == "55P03":  # lock_not_available
                    tx.rollback()
                    raise _locked_error(tx, self.place) from error
                raise
            yield LockedChain(tx, self._request(self._now()))
            tx.commit()


def _refused_login_error(plan: ServePlan, user: str) -> AccessError:
    verb, login = "make" if plan.creates_login else "change the password of", plan.served.login
    return AccessError(
        f"the login '{user}' may not {verb} the login '{login}'",
        f"'{user}' owns the tables, and PostgreSQL asks for more (CREATEROLE, and ADMIN of a login that exists)",
        f"the administrator: ALTER ROLE {user} CREATEROLE   or leave --login out: servers then use '{plan.owner}'",
    )


def refuse_unagreed(plan: ServePlan) -> None:
    """Raise AccessError where a login would stay a direct client that an administrator could keep out."""
    if plan.unagreed:
        names = [one.name for one in plan.unagreed]
        raise AccessError(
            f"{join_some(names, _SHOWN)} would still use the tables, without the service",
            "; ".join(f"{one.name}: {one.power}" for one in plan.unagreed[:_SHOWN]),
            "the administrator takes that from them (REVOKE ROLE FROM LOGIN, ALTER ROLE LOGIN NOBYPASSRLS)\n"
            f"or agree to each: {' '.join(f'--allow {shlex.quote(name)}' for name in names)}",
        )


def _locked_error(tx: Connection, place: str) -> ConflictError:
    sessions = tx.execute(_BLOCKING, {"tables": list(_EXPLAINING)}).all()
    names = [f"{row.pid} of '{row.usename}'" for row in sessions]
    return ConflictError(
        f"the tables of the store {place} stay locked, so nothing was changed",
        f"sessions of PostgreSQL that use them: {join_some(names, _SHOWN) or 'none any more'}",
        f"end them: SELECT {', '.join(f'pg_terminate_backend({row.pid})' for row in sessions[:_SHOWN])}\n"
        "then the same command again" if sessions else "the same command again",
    )  # fmt: skip


def refuse_grant(database: Database, login: str) -> None:
    """Raise ConflictError for a login that would get rights in a store of which the service is the only client."""
    with database.reading() as tx:
        value = read_meta(tx).get(SERVED)
    if value is not None and (served := ServedStore.parse(value)).login != login:
        raise ConflictError(
            f"the store {describe_location(database.location)} is used through its service alone",
            f"{served.address}; roles and budgets hold for members there, not for logins of the database",
            f"orch token invite NAME --member {login}   or: orch store serve-only --undo",
        )


def read_served(tx: Connection) -> str | None:
    """Return the row of `meta` that says that the service is the only client; None without one, or without tables."""
    there = tx.execute(text("SELECT to_regclass('meta') IS NOT NULL")).scalar_one()
    return read_meta(tx).get(SERVED) if there else None


def keep_serving(tx: Connection, value: str | None) -> None:
    """Refuse other logins on restored tables, too, where the replaced store did."""
    if value is not None:
        execute_all(tx, _list_refusals(ServedStore.parse(value), str(tx.execute(_OWNER).one()[1])))
        write_meta(tx, SERVED, value)


def _refuse_file(database: Database) -> None:
    if database.is_file:
        raise UserError(
            "the store is a file of this user, which has no logins",
            "every program of this user can read and change it, whatever is recorded in it",
            "a team's store is on PostgreSQL: a backup brings the file there   (docs/store.md)",
        )


def _list_losses(holder: str, schema: str) -> list[str]:
    """Return the SQL that takes the rights of a login, or those that every login has."""
    if holder:
        return [*list_revokes(holder, schema)]
    return [f"REVOKE ALL ON {quote_name(schema)}.{quote_name(table)} FROM PUBLIC" for table in metadata.tables]


def _list_refusals(served: ServedStore, schema: str) -> list[str]:
    """Return the SQL by which a login that lost its rights learns why."""
    place = quote_name(schema)
    function, change = f"{place}.{_FUNCTION}()", f"{place}.{FUNCTION}".replace("'", "''")
    body = (
        f"BEGIN IF has_function_privilege(session_user, '{change}', 'EXECUTE') THEN RETURN true; END IF; "
        f"RAISE '{SERVED_MARK}{served.address}' USING ERRCODE = 'insufficient_privilege'; END"
    )
    made = "RETURNS boolean LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp"
    statements = [*_list_openings(), f"CREATE OR REPLACE FUNCTION {function} {made} AS $orch$ {body} $orch$"]
    for table in _EXPLAINING:
        # As a subquery the function is called once for a statement, not once for a row.
        statements += [
            f"CREATE POLICY {_POLICY} ON {place}.{table} USING ((SELECT {function}))",
            f"ALTER TABLE {place}.{table} ENABLE ROW LEVEL SECURITY",
        ]
    for login in served.revoked:
        who, tables = quote_name(login), ", ".join(f"{place}.{table}" for table in _EXPLAINING)
        statements += [f"GRANT USAGE ON SCHEMA {place} TO {who}", f"GRANT SELECT ON {tables} TO {who}"]
    return statements


def _list_openings() -> list[str]:
    """Return the SQL that takes the policies off. The function stays: tables of a replaced store may use it."""
    return [
        statement
        for table in _EXPLAINING
        for statement in (
            f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
            f"DROP POLICY IF EXISTS {_POLICY} ON {table}",
        )
    ]
