"""What read commands and requests choose, as values: the parameters of the functions that make documents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose records are shown.

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
    """Which open clusters are shown: all of a scope, or the one of a name."""

    scope: Scope = Scope()
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class RunsQuery:
    """Which runs are shown.

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
    """Which jobs and pipelines are shown.

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
