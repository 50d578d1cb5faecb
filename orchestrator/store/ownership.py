"""Which login of PostgreSQL owns a store's tables: it alone changes the store as a whole, members change its rows."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from sqlalchemy import text

from orchestrator.errors import AccessError
from orchestrator.store.connection import Database
from orchestrator.store.location import Location, describe_location

_OWNER = text(
    "SELECT pg_get_userbyid(relowner) AS owner, pg_has_role(relowner, 'USAGE') AS is_ours, current_user AS login "
    "FROM pg_class WHERE oid = to_regclass('meta')"
)
_MAY_CREATE = text("SELECT COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false), current_user")


def refuse_other_login_at(location: Location) -> None:
    """Do as `refuse_other_login`, for a store that is not open."""
    if isinstance(location, Path):
        return
    database = Database(location)
    try:
        refuse_other_login(database)
    finally:
        database.close()


def refuse_other_login(database: Database) -> None:
    """Raise AccessError unless this login owns the tables, or may make them where there are none. Changes nothing.

    A file belongs to its user.
    """
    if database.is_file:
        return
    place = describe_location(database.location)
    with database.reading() as tx:
        tables = tx.execute(_OWNER).one_or_none()
        may_create, login = tx.execute(_MAY_CREATE).one()
    if tables is None:
        if not may_create:
            why = f"the login '{login}' may not make tables, and sees none"
            step = f"the administrator: GRANT USAGE, CREATE ON SCHEMA public TO {login}   or use the owner's login"
            raise AccessError(f"this login may not do that in the store {place}", why, step)
        return
    if not tables.is_ours:
        address = describe_location(database.location, login=quote(str(tables.owner), safe=""))
        raise AccessError(
            f"only the login that owns the tables of the store {place} may do that",
            f"they belong to '{tables.owner}', and this login is '{tables.login}'",
            f"with the login that owns the tables: export ORCH_STORE={address}\nthen the same command again",
        )
