"""The parameters of the functions that make documents, as values: what read commands and requests choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.store.known_names import refuse_unknown_member
from orchestrator.store.lookup import find_cluster

if TYPE_CHECKING:
    from orchestrator.store.read import Reader
    from orchestrator.store.records import ClusterRecord


ME = "me"  # an owner: for whom the records are read


@dataclass(frozen=True, kw_only=True)
class Scope:
    """The project and member whose records are shown.

    Attributes:
        project: The project; "" for all, None for the one in which names are found.
        owner: The member; "" for all, ME for who asks.
    """

    project: str | None = ""
    owner: str = ""

    def resolve(self, store: Reader) -> ChosenScope:
        """Return the names that this means in records. Raises UserError for a member of whom nothing is on record."""
        owner = store.member if self.owner == ME else self.owner
        refuse_unknown_member(store, owner)
        return ChosenScope(project=store.project if self.project is None else self.project, owner=owner)


@dataclass(frozen=True, kw_only=True)
class ChosenScope:
    """The names of a project and a member; "" for all."""

    project: str
    owner: str

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
        before: Only those below this number; None for any.
        limit: The most.
    """

    scope: Scope = Scope()
    cluster: str = ""
    after: int = 0
    before: int | None = None
    limit: int = 1000


@dataclass(frozen=True, kw_only=True)
class SpendingQuery:
    """The costs of machines that are summed.

    Attributes:
        by: The columns, of ledger.DIMENSIONS.
        seconds: How far back; None for all on record.
    """

    scope: Scope = Scope()
    by: tuple[str, ...] = ("cluster",)
    seconds: int | None = None

    def find_begin(self, now: float) -> float:
        """Return from when on costs are summed, in epoch seconds."""
        return 0.0 if self.seconds is None else max(now - self.seconds, 0.0)


def choose_clusters(store: Reader, scope: Scope, name: str) -> list[ClusterRecord]:
    """Return the open cluster of a name, or without one all of a scope.

    Raises:
        NotFoundError: There is no cluster of this name; the nearest names are suggested.
        UserError: Nothing of the member is on record.
    """
    chosen = scope.resolve(store)
    if name:
        return [find_cluster(store, name)]
    return [one for one in store.clusters() if chosen.includes(one.project, one.owner)]


@dataclass(frozen=True, kw_only=True)
class OutputQuery:
    """The output that is shown.

    Attributes:
        job: The job's number; None for the current one.
        hosts: The ranks; None for all.
        follow: Whether to continue until the job has ended.
        tail: Begin with so many last lines of each host; None for the beginning.
        since: Begin with what is at most so many seconds old; None for the beginning.
        setup: Whether the output of the setup is shown in any case.
    """

    cluster: str
    job: int | None = None
    hosts: tuple[int, ...] | None = None
    follow: bool = False
    tail: int | None = None
    since: int | None = None
    setup: bool = False
