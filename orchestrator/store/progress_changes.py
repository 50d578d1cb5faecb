"""Progress that engines keep for clients of a service. It is not audited, and decides nothing."""

from __future__ import annotations

from sqlalchemy import delete, insert

from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import progress


class ProgressChanges(Ledger):
    """The changes of kept progress."""

    def keep_progress(self, cluster: str, document: str, *, replaced: int | None = None) -> int:
        """Keep one thing that happened, and return its number.

        Args:
            cluster: Qualified name of the cluster.
            document: The progress as JSON.
            replaced: The number of an earlier one that it takes the place of; None for none.
        """
        values = {"at": self._now(), "cluster": cluster, "document": document}
        with self._database.writing() as tx:
            number: int = tx.execute(insert(progress).values(values).returning(progress.c.number)).scalar_one()
            if replaced is not None:
                tx.execute(delete(progress).where(progress.c.number == replaced))
            tx.commit()
        return number

    def drop_progress(self, older: float) -> None:
        """Delete what was kept more than so many seconds ago."""
        self._database.write(delete(progress).where(progress.c.at < self._now() - older))
