"""What a member's login of PostgreSQL may do: read all, change rows only by the function that records the event."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, text

from orchestrator.store.audited import KEYS, NOT_AUDITED, TABLES_NOT_AUDITED
from orchestrator.store.schema import metadata

FUNCTION = "orch_change(json)"
NOTE_FUNCTION = "orch_note_backup(text)"
_READ_ONLY = frozenset({"meta", "events"})  # written by FUNCTION alone, which has the rights of the store's owner
_KEPT = frozenset({"leases"})  # a deleted lease would begin with fence 1 again


def list_grants(login: str, schema: str) -> tuple[str, ...]:
    """Return the statements that give a login what a member needs, and no more."""
    who = quote_name(login)
    statements = [f"GRANT USAGE ON SCHEMA {quote_name(schema)} TO {who}"]
    for table in metadata.sorted_tables:
        rights = ["SELECT", *_writing_rights(table.name)]
        statements.append(f"GRANT {', '.join(rights)} ON {quote_name(schema)}.{quote_name(table.name)} TO {who}")
    functions = (f"GRANT EXECUTE ON FUNCTION {quote_name(schema)}.{one} TO {who}" for one in (FUNCTION, NOTE_FUNCTION))
    return (*statements, *functions)


def list_revokes(login: str, schema: str) -> tuple[str, ...]:
    """Return the statements that take all of it back. The login itself stays: it is the administrator's."""
    who, place = quote_name(login), quote_name(schema)
    return (
        f"REVOKE ALL ON FUNCTION {place}.{FUNCTION} FROM {who}",
        f"REVOKE ALL ON FUNCTION {place}.{NOTE_FUNCTION} FROM {who}",
        f"REVOKE ALL ON ALL TABLES IN SCHEMA {place} FROM {who}",
        f"REVOKE ALL ON SCHEMA {place} FROM {who}",
    )


def list_members(tx: Connection) -> tuple[str, ...]:
    """Return the logins that may read the tables because they were granted it, by name.

    Where the service is the only client, others may still read why in some tables (serve_only.py), not in this one.
    """
    query = (
        "SELECT DISTINCT rolname FROM pg_class, aclexplode(relacl) AS acl JOIN pg_roles ON pg_roles.oid = grantee "
        "WHERE pg_class.oid = to_regclass('leases') AND privilege_type = 'SELECT' AND grantee <> relowner ORDER BY 1"
    )
    return tuple(str(row.rolname) for row in tx.execute(text(query)))


def grant_member(tx: Connection, login: str) -> None:
    """Give a login what a member needs on the tables and functions of the present schema."""
    execute_all(tx, list_grants(login, str(tx.execute(text("SELECT current_schema()")).scalar_one())))


def execute_all(tx: Connection, statements: Iterable[str]) -> None:
    """Execute statements that have no parameters."""
    for statement in statements:
        tx.exec_driver_sql(statement.replace("%", "%%"))  # a percent sign would begin a parameter


def _writing_rights(table: str) -> list[str]:
    if table in KEYS:
        columns = sorted(NOT_AUDITED.get(table, {}))
        return [f"UPDATE ({', '.join(map(quote_name, columns))})"] if columns else []
    if table in _READ_ONLY or table not in TABLES_NOT_AUDITED:
        return []
    return ["INSERT", "UPDATE"] if table in _KEPT else ["INSERT", "UPDATE", "DELETE"]


def quote_name(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
