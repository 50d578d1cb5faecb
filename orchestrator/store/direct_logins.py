"""The logins of PostgreSQL that read or change a team's tables although the service is said to be their only client.

No right on a table lets them in but an attribute, or what they are members of: `SET ROLE` needs no inheritance. The
roles with such powers are those of https://www.postgresql.org/docs/17/predefined-roles.html and of "CREATE ROLE" there
(2026-11): before version 16, CREATEROLE gives membership of any role that is no superuser.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

_POWERS = (
    "pg_read_all_data",
    "pg_write_all_data",
    "pg_read_server_files",
    "pg_write_server_files",
    "pg_execute_server_program",
)
_DIRECT = text(
    "WITH tables AS (SELECT relowner, nspowner FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
    "WHERE pg_class.oid = to_regclass('meta')), "
    "powers AS (SELECT pg_roles.oid, rolname, CASE WHEN pg_roles.oid IN (relowner, nspowner) THEN 'owner' "
    "WHEN rolsuper THEN 'SUPERUSER' WHEN rolbypassrls THEN 'BYPASSRLS' WHEN rolreplication THEN 'REPLICATION' "
    "WHEN rolcreaterole AND current_setting('server_version_num')::int < 160000 THEN 'CREATEROLE' "
    "WHEN rolname = ANY(:powers) OR rolname = :servers THEN '' END AS attribute FROM pg_roles, tables) "
    "SELECT login.rolname AS name, login.rolsuper OR login.oid = tables.relowner AS always, "
    "string_agg(CASE WHEN login.oid = powers.oid THEN attribute ELSE 'member of ' || powers.rolname END, ', ' "
    "ORDER BY login.oid <> powers.oid, powers.rolname) AS power "
    "FROM tables, pg_roles AS login JOIN powers ON pg_has_role(login.oid, powers.oid, 'MEMBER') "
    "WHERE login.rolcanlogin AND login.rolname <> :servers AND attribute IS NOT NULL "
    "AND (login.oid = powers.oid OR NOT login.rolsuper) GROUP BY 1, 2 ORDER BY 1"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectLogin:
    """A login that the revokes do not keep out.

    Attributes:
        name: The login.
        power: By which attribute, or membership.
        always: Whether PostgreSQL can keep it out of nothing: a superuser, or the owner of the tables.
    """

    name: str
    power: str
    always: bool


def list_direct_logins(tx: Connection, servers: str) -> tuple[DirectLogin, ...]:
    """Return the logins that stay able to use the tables, by name.

    Args:
        tx: A connection to the store.
        servers: The login of the servers, which may not exist yet.
    """
    rows = tx.execute(_DIRECT, {"servers": servers, "powers": list(_POWERS)})
    return tuple(DirectLogin(name=str(row.name), power=str(row.power), always=bool(row.always)) for row in rows)
