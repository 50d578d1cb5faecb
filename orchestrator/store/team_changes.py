"""Changes of the team: the computers that share the store."""

from __future__ import annotations

from sqlalchemy import select

from orchestrator.store.change import EventDetails, insert_row, update_row
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

    def computers(self) -> tuple[ComputerRecord, ...]:
        """Return all computers of the team by name."""
        return self._read_all(select(computers).order_by(computers.c.host, computers.c.uid), computer_from_row)
