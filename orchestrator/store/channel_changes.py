"""How far notifications were delivered, and the conditions that are recorded once, as events, to notify of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from orchestrator.store.batches import insert_or_nothing
from orchestrator.store.change import EventDetails, RowChange, Verb
from orchestrator.store.channel_records import CONDITION, ChannelRecord, channel_from_row
from orchestrator.store.leases import Lease
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import events, notification_channels


class ChannelChanges(Ledger):
    """The rows of notification_channels. Only the holder of a channel's lease changes its row."""

    def channel(self, name: str) -> ChannelRecord | None:
        """Return how far a channel is; None for one that was never used."""
        query = select(notification_channels).where(notification_channels.c.name == name)
        return self._read_first(query, channel_from_row)

    def open_channel(self, name: str, seq: int) -> None:
        """Begin a channel with the events after `seq`; one that exists stays as it is."""
        with self._database.writing() as tx:
            tx.execute(insert_or_nothing(tx, notification_channels, {"name": name, "seq": seq}))
            tx.commit()

    def note_delivery(self, lease: Lease, name: str, seq: int, *, message: bool) -> None:
        """Record that nothing is left to deliver up to an event.

        Args:
            lease: The lease of the channel.
            name: The channel.
            seq: The event.
            message: Whether a message was delivered, or none was due.

        Raises:
            ConflictError: Another process delivers for this channel now.
        """
        self._change_channel(lease, name, {"seq": seq} | ({"delivered": self._now(), "problem": ""} if message else {}))

    def note_delivery_problem(self, lease: Lease, name: str, problem: str) -> None:
        """Record why a message could not be delivered. The arguments are those of `note_delivery`."""
        self._change_channel(lease, name, {"problem": problem})

    def record_condition(self, cluster: str, what: str, cause: str) -> bool:
        """Record a condition of a cluster as an event, once; return whether it was new.

        Args:
            cluster: The qualified name of the cluster.
            what: The condition, for people.
            cause: Identifies the condition.
        """
        same = (events.c.cluster == cluster) & (events.c.kind == CONDITION) & (events.c.cause == cause)
        details = EventDetails(cluster=cluster, kind=CONDITION, what=what, cause=cause)
        for at in self._tries(f"the events of '{cluster}'"):
            guard = self._guard_all()
            if self._read_first(select(events.c.seq).where(same), lambda row: row) is not None:
                return False
            if self.change(RowChange(verb=Verb.EVENT, event=details), at=at, guards=(guard,)) is not None:
                return True
        raise AssertionError  # _tries ends with an error

    def _change_channel(self, lease: Lease, name: str, values: dict[str, Any]) -> None:
        self._write(lease, update(notification_channels).where(notification_channels.c.name == name).values(**values))
