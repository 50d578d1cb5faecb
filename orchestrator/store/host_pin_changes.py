"""Changes of host pins: the keys that people's own machines have to present. They outlive clusters."""

from __future__ import annotations

from dataclasses import asdict, replace

from sqlalchemy import select

from orchestrator.hosts import HostPin, PinReason
from orchestrator.store.change import EventDetails, Guard, RowChange, insert_row, update_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import host_pin_from_row
from orchestrator.store.schema import host_pins

KIND = "host-key"


class HostPinChanges(Ledger):
    """The changes of host pins. No lease guards them: what another process pinned first is what holds."""

    def host_pin(self, name: str) -> HostPin | None:
        """Return the pin of one machine, or None."""
        return self._read_first(select(host_pins).where(host_pins.c.name == name), host_pin_from_row)

    def host_pins_of(self, job: str) -> tuple[HostPin, ...]:
        """Return the pins that were accepted in this job without a confirmation."""
        return self._read_all(select(host_pins).where(host_pins.c.job == job), host_pin_from_row)

    def keep_host_pin(
        self, pin: HostPin, reason: PinReason, *, instead_of: HostPin | None = None, cluster: str = ""
    ) -> HostPin:
        """Pin a key, and return the pin that holds.

        Args:
            pin: What to pin. Its time and its actor are those of this change.
            reason: Why its key is trusted.
            instead_of: The pin that it replaces. Another one is left as it is, and returned.
            cluster: Name of the cluster for the event.
        """
        for at in self._tries(f"the pin of {pin.name}"):
            made = replace(pin, since=at, actor=self.actor)
            held = self.host_pin(pin.name)
            if held is not None and held != instead_of:
                return held
            same = held is not None and held.key == pin.key
            what = f"{pin.name}: {pin}" + (f" instead of {held}" if held is not None and not same else "")
            details = EventDetails(cluster=cluster, kind=KIND, what=what, cause=reason)
            if held is None:
                change = insert_row(host_pins, asdict(made), details)
            else:
                made = replace(held, job=pin.job) if same else made
                change = update_row(host_pins, {"name": pin.name}, asdict(made), details)
            guard = Guard(table=host_pins, key={"name": pin.name}, values=asdict(held) if held is not None else None)
            if self.change(change, at=at, guards=(guard,)) is not None:
                return made
        raise AssertionError  # _tries has raised

    def confirm_host_pins(self, job: str, cluster: str) -> tuple[HostPin, ...]:
        """Confirm what was accepted in this job, and return it."""
        for at in self._tries("what was accepted"):
            found = self.host_pins_of(job)
            guards = tuple(Guard(table=host_pins, key={"name": pin.name}, values=asdict(pin)) for pin in found)
            if self.change(*(_confirm(pin, cluster) for pin in found), at=at, guards=guards) is not None:
                return found
        raise AssertionError  # _tries has raised


def _confirm(pin: HostPin, cluster: str) -> RowChange:
    details = EventDetails(cluster=cluster, kind=KIND, what=f"{pin.name}: {pin} confirmed")
    return update_row(host_pins, {"name": pin.name}, {"job": ""}, details)
