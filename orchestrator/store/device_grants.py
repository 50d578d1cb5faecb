"""Computers that wait to be let in: short-lived rows, without events. The token that one gets has its event."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select, true, update

from orchestrator.store.apply_change import insert_or_nothing
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import device_grants
from orchestrator.store.session_records import DeviceGrant

# That wait at a time: everyone may ask, so their number is bounded. The oldest one goes then, and no one is refused.
MOST_GRANTS, MOST_OF_ADDRESS = 2000, 20


class DeviceGrants(Ledger):
    """The rows of device_grants. Each change is one statement, which the state of the row guards."""

    def open_grant(self, grant: DeviceGrant) -> None:
        """Record a computer that waits, and forget those whose time is over, and the oldest where too many wait."""
        with self._database.writing() as tx:
            tx.execute(delete(device_grants).where(device_grants.c.until < self._now()))
            if grant.address:
                _forget_oldest(tx, device_grants.c.address == grant.address, MOST_OF_ADDRESS)
            _forget_oldest(tx, true(), MOST_GRANTS)
            tx.execute(insert_or_nothing(tx, device_grants, asdict(grant)))
            tx.commit()

    def note_poll(self, digest: str) -> None:
        """Record that a computer asked now."""
        self._change(digest, {"polled": self._now()})

    def decide_grant(self, grant: DeviceGrant, values: dict[str, Any]) -> bool:
        """Let a computer in, or refuse it; return False when that was decided before."""
        return self._change(grant.digest, values, before="open")

    def use_grant(self, grant: DeviceGrant) -> bool:
        """Record that a computer gets its token; return False when it has got one before."""
        return self._change(grant.digest, {"state": "used"}, before="approved")

    def _change(self, digest: str, values: dict[str, Any], before: str = "") -> bool:
        which = device_grants.c.digest == digest
        if before:
            which &= device_grants.c.state == before
        return bool(self._database.write(update(device_grants).where(which).values(**values)))


def _forget_oldest(tx: Connection, which: ColumnElement[bool], most: int) -> None:
    """Leave room for one more among some computers: those that a person has let in are not forgotten."""
    count = tx.execute(select(func.count()).select_from(device_grants).where(which)).scalar_one()
    if count >= most:
        waiting = which & (device_grants.c.state == "open")
        oldest = select(device_grants.c.digest).where(waiting).order_by(device_grants.c.created).limit(count - most + 1)
        tx.execute(delete(device_grants).where(device_grants.c.digest.in_(oldest)))
