"""Find a cluster by its name, with a suggestion when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from orchestrator.errors import NotFoundError

if TYPE_CHECKING:  # the help of a command needs none of these
    from orchestrator.store.records import ClusterRecord


class HasClusters(Protocol):
    """A store, or a reader of it."""

    def cluster(self, name: str) -> ClusterRecord | None:
        """Return the existing cluster of this name, or None."""
        ...

    def clusters(self) -> tuple[ClusterRecord, ...]:
        """Return all existing clusters."""
        ...


def find_cluster(store: HasClusters, name: str) -> ClusterRecord:
    """Return the existing cluster of this name.

    Raises:
        NotFoundError: There is none; the nearest names are suggested.
    """
    record = store.cluster(name)
    if record is None:
        raise cluster_not_found(store, name)
    return record


def cluster_not_found(store: HasClusters, name: str) -> NotFoundError:
    """Return the error for a cluster that does not exist, with the nearest names."""
    next_step = "orch status   (lists the clusters that exist)"
    return NotFoundError(f"there is no cluster '{name}'", suggest_cluster(store, name), next_step)


def suggest_cluster(store: HasClusters, name: str) -> str:
    """Return a question with the nearest names of clusters; "" when none is near."""
    from difflib import get_close_matches

    close = get_close_matches(name, [cluster.name for cluster in store.clusters()], n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else ""
