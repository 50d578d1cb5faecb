"""Checkpoints of own programs that lack their run's signature, and that someone agreed to load all the same."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import select

from orchestrator.store.change import EventDetails, insert_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.records import ClusterRecord
from orchestrator.store.schema import trusted_checkpoints


class CheckpointTrust(Ledger):
    """The changes of consents. Each is for the content of one manifest, and so for the digests of all its files."""

    def trust_checkpoints(self, cluster: ClusterRecord, run_id: str, steps: Mapping[str, int]) -> None:
        """Record that checkpoints may be loaded. Recorded again, it changes nothing.

        Args:
            cluster: On which the run is resumed.
            run_id: The run.
            steps: The step of each checkpoint by the SHA-256 of its manifest.
        """
        at = self._now()
        changes = [
            insert_row(
                trusted_checkpoints,
                {"run_id": run_id, "digest": digest, "step": step, "at": at},
                EventDetails(
                    cluster=cluster.qualified_name,
                    kind="trust",
                    what=f"checkpoint {step} of {run_id} is loaded without its run's signature: sha256:{digest}",
                ),
            )
            for digest, step in steps.items()
        ]
        if changes:
            self.change(*changes, at=at)

    def trusted_checkpoints(self, run_id: str) -> tuple[str, ...]:
        """Return the SHA-256 of the manifests that may be loaded, the newest consents first."""
        table = trusted_checkpoints
        query = select(table.c.digest).where(table.c.run_id == run_id)
        return self._read_all(query.order_by(table.c.at.desc(), table.c.digest), lambda row: str(row["digest"]))
