"""What a reader says of a team: its computers, their admissions, owners of slices, and what members asked for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import NotFoundError
from orchestrator.hosts import HostPin
from orchestrator.plan.observed import FINAL_STATES, Intent
from orchestrator.store.records import ClusterRecord, host_pin_from_row

if TYPE_CHECKING:
    from orchestrator.store.channel_records import ChannelRecord
    from orchestrator.store.order_records import OrderRecord
    from orchestrator.store.team_records import AdmissionRecord, ComputerRecord, SliceOwner
    from orchestrator.store.token_records import TokenRecord


class TeamReads(ABC):
    """The part of a reader that concerns a team."""

    @abstractmethod
    def _rows(self, query: str, *values: object) -> Iterable[Mapping[str, Any]]: ...

    @abstractmethod
    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return the open clusters of all projects."""

    @abstractmethod
    def intents(self, cluster: ClusterRecord) -> tuple[Intent, ...]:
        """Return the intents of a cluster by generation."""

    def find_order(self, uid: str) -> OrderRecord | None:
        """Return one order of a member, or None."""
        from orchestrator.store.order_records import order_from_row

        return next(map(order_from_row, self._rows("SELECT * FROM orders WHERE uid = ?", uid)), None)

    def order(self, uid: str) -> OrderRecord:
        """Return one order of a member. Raises NotFoundError when there is none."""
        if (found := self.find_order(uid)) is not None:
            return found
        raise NotFoundError(f"no order {uid}", next_step="orch events")

    def find_token(self, digest: str) -> TokenRecord | None:
        """Return the token of a digest, or None."""
        from orchestrator.store.token_records import token_from_row

        return next(map(token_from_row, self._rows("SELECT * FROM tokens WHERE digest = ?", digest)), None)

    def tokens(self) -> tuple[TokenRecord, ...]:
        """Return all tokens, oldest first."""
        from orchestrator.store.token_records import token_from_row

        return tuple(map(token_from_row, self._rows("SELECT * FROM tokens ORDER BY created, digest")))

    def newest_orders(self, limit: int) -> tuple[OrderRecord, ...]:
        """Return the newest orders, newest first."""
        from orchestrator.store.order_records import order_from_row

        rows = self._rows("SELECT * FROM orders ORDER BY created DESC, uid LIMIT ?", limit)
        return tuple(order_from_row(row) for row in rows)

    def notification_channels(self) -> tuple[ChannelRecord, ...]:
        """Return how far each notification channel is, by name."""
        from orchestrator.store.channel_records import channel_from_row

        return tuple(map(channel_from_row, self._rows("SELECT * FROM notification_channels ORDER BY name")))

    def computers(self) -> tuple[ComputerRecord, ...]:
        """Return the computers of the team by name, and those that were removed from it."""
        from orchestrator.store.team_records import computer_from_row

        return tuple(computer_from_row(row) for row in self._rows("SELECT * FROM computers ORDER BY host, uid"))

    def last_changes(self) -> dict[str, float]:
        """Return when each `user@computer` last changed something, in epoch seconds."""
        found: dict[str, float] = {}
        for row in self._rows("SELECT actor, max(at) AS at FROM events GROUP BY actor"):
            name = str(row["actor"]).rpartition(":")[0]
            found[name] = max(found.get(name, 0.0), float(row["at"]))
        return found

    def admissions_of(self, computer: str) -> tuple[tuple[ClusterRecord, Intent, AdmissionRecord], ...]:
        """Return where a computer is admitted: at hosts that exist, or may exist, of open clusters."""
        from orchestrator.store.team_records import admission_from_row

        rows = self._rows("SELECT * FROM admissions WHERE computer = ? ORDER BY cluster_uid, generation", computer)
        given = [admission_from_row(row) for row in rows]
        existing = {record.uid: record for record in self.clusters()} if given else {}
        return tuple(
            (existing[one.cluster_uid], intent, one)
            for one in given
            if one.cluster_uid in existing
            for intent in self.intents(existing[one.cluster_uid])
            if intent.generation == one.generation and intent.state not in FINAL_STATES
        )

    def admissions(self, cluster_uid: str, generation: int) -> tuple[AdmissionRecord, ...]:
        """Return what lets computers in to the hosts of one slice."""
        from orchestrator.store.team_records import admission_from_row

        query = "SELECT * FROM admissions WHERE cluster_uid = ? AND generation = ? ORDER BY computer, address"
        return tuple(map(admission_from_row, self._rows(query, cluster_uid, generation)))

    def admitted_addresses(self) -> tuple[AdmissionRecord, ...]:
        """Return the addresses that firewalls admit, or are about to, of all computers."""
        from orchestrator.store.team_records import admission_from_row

        query = "SELECT * FROM admissions WHERE address <> '' ORDER BY computer, address, cluster_uid"
        return tuple(map(admission_from_row, self._rows(query)))

    def host_pin(self, name: str) -> HostPin | None:
        """Return the pin of one of people's own machines, or None; see HostAddress.pin_name."""
        for row in self._rows("SELECT * FROM host_pins WHERE name = ?", name):
            return host_pin_from_row(row)
        return None

    def slice_owner(self, token: str) -> SliceOwner | None:
        """Return who has a slice, if it ever changed hands."""
        from orchestrator.store.team_records import slice_owner_from_row

        query = "SELECT * FROM slice_owners WHERE token = ?"
        return next(map(slice_owner_from_row, self._rows(query, token)), None)
