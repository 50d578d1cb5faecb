"""The parameters of the functions that make documents, as values: what read commands and requests choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.store.lookup import find_cluster

if TYPE_CHECKING:
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The project and member whose records are shown.

    Attributes:
        project: The project; "" for all.
        owner: The member; "" for all.
    """

    project: str = ""
    owner: str = ""

    def includes(self, project: str, owner: str) -> bool:
        """Return whether something of this project and member is shown."""
        return self.project in ("", project) and self.owner in ("", owner)


@dataclass(frozen=True, kw_only=True)
class ClustersQuery:
    """The open clusters that are shown: all of a scope, or the one of a name."""

    scope: Scope = Scope()
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class RunsQuery:
    """The runs that are shown.

    Attributes:
        cluster: Only those on clusters of this name; "" for any.
        run_id: Only this one; "" for any.
        limit: The most, of which the newest are taken.
        before: Only those whose newest job is older, in epoch seconds; None for any.
    """

    scope: Scope = Scope()
    cluster: str = ""
    run_id: str = ""
    limit: int = 20
    before: float | None = None


@dataclass(frozen=True, kw_only=True)
class QueueQuery:
    """The jobs and pipelines that are shown.

    Attributes:
        cluster: Only jobs of this cluster; "" for those of all in the scope, and their pipelines.
        ended: Also those that have ended.
    """

    scope: Scope = Scope()
    cluster: str = ""
    ended: bool = False


@dataclass(frozen=True, kw_only=True)
class EventsQuery:
    """Which events are shown: the newest of a scope.

    Attributes:
        cluster: Only those of this cluster; "" for any.
        after: Only those past this number.
        limit: The most.
    """

    scope: Scope = Scope()
    cluster: str = ""
    after: int = 0
    limit: int = 1000


def choose_clusters(store: Reader, scope: Scope, name: str) -> list[ClusterRecord]:
    """Return the open cluster of a name, or without one all of a scope.

    Raises:
        NotFoundError: There is no cluster of this name; the nearest names are suggested.
    """
    if name:
        return [find_cluster(store, name)]
    return [one for one in store.clusters() if scope.includes(one.project, one.owner)]
