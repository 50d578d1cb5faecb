"""Changes of the team: the computers that share the store."""

from __future__ import annotations

from sqlalchemy import select, text

from orchestrator.errors import UserError
from orchestrator.store.change import EventDetails, insert_row, update_row
from orchestrator.store.grants import list_grants, list_revokes
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import ComputerRecord, computer_from_row
from orchestrator.store.schema import computers


class TeamChanges(Ledger):
    """The changes of the team."""

    def register_computer(self, uid: str, host: str, member: str, public_key: str) -> None:
        """Record a computer with its public SSH key; one that is recorded so already changes nothing."""
        values = {"uid": uid, "host": host, "member": member, "public_key": public_key}
        details = EventDetails(cluster="", kind="team", what=f"computer {host} of {member} joined")
        for at in self._tries(f"the record of the computer {host}"):
            found = self._read_first(select(computers).where(computers.c.uid == uid), computer_from_row)
            if found == ComputerRecord(**values):
                return
            if found is not None:
                self.change(update_row(computers, {"uid": uid}, values, details), at=at)
                return
            if self.change(insert_row(computers, values | {"joined": at}, details), at=at) == (True,):
                return

    def list_member_statements(self, login: str, *, revoke: bool = False) -> tuple[str, ...]:
        """Return the SQL that makes an existing login of PostgreSQL a member, or ends that.

        Raises:
            UserError: the store is a file, or there is no such login.
        """
        if self.is_file:
            raise UserError(
                "the store is a file of this user, which has no logins",
                "a team shares a store on PostgreSQL",
                "set ORCH_STORE=postgresql://USER@HOST:PORT/DATABASE   (docs/team.md)",
            )
        query = text("SELECT current_schema() AS place, EXISTS (SELECT FROM pg_roles WHERE rolname = :login) AS there")
        with self._database.reading() as tx:
            found = tx.execute(query, {"login": login}).one()
        if not found.there:
            create = f"the administrator of PostgreSQL: CREATE ROLE {login} LOGIN; \\password {login}"
            raise UserError(f"PostgreSQL has no login {login!r}", "a member is a login that exists", create)
        return (list_revokes if revoke else list_grants)(login, str(found.place))

    def change_member(self, login: str, *, revoke: bool = False) -> None:
        """Make a login of PostgreSQL a member, or end that, with an event. Only the store's owner may do it."""
        statements = self.list_member_statements(login, revoke=revoke)
        with self._database.writing() as tx:
            for statement in statements:
                tx.exec_driver_sql(statement.replace("%", "%%"))  # a percent sign would begin a parameter
            tx.commit()
        self.event("", "team", f"login {login} {'may not use the store any more' if revoke else 'may use the store'}")

    def computers(self) -> tuple[ComputerRecord, ...]:
        """Return all computers of the team by name."""
        return self._read_all(select(computers).order_by(computers.c.host, computers.c.uid), computer_from_row)
