"""The computers of a team: who they are, where each is admitted, and taking one out of the hosts now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orchestrator.engine.loop.admission import HostKeys, admits, list_members, write_keys
from orchestrator.engine.narrator import Narrator
from orchestrator.engine.operations.addresses import admit_under_lease, find_gated_intent
from orchestrator.engine.services import Services
from orchestrator.engine.state.fences import fence_hosts
from orchestrator.engine.state.lease import LeaseKeeper
from orchestrator.engine.state.pins import StorePins
from orchestrator.errors import ConflictError, NotFoundError, OrchError
from orchestrator.paths import load_paths
from orchestrator.store.lookup import suggest_name
from orchestrator.store.read import Reader
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store
from orchestrator.store.team_records import AdmissionRecord, ComputerRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A cluster whose hosts admit a computer.

    Attributes:
        where: The candidate's place.
        made: Whether its key was there from the create on: nothing takes it off the machines.
        driven_by: Which process drives the cluster now; "" for none.
    """

    cluster: str
    slice: str
    where: str
    record: AdmissionRecord
    driven_by: str

    @property
    def made(self) -> bool:
        return not self.record.until


class HasComputers(Protocol):
    """A reader of the store."""

    def computers(self) -> tuple[ComputerRecord, ...]:
        """Return all computers, the removed ones too."""
        ...


def find_computers(reader: HasComputers, name: str, *, removed: bool) -> tuple[ComputerRecord, ...]:
    """Return the computers that an id, a host's name or a member's name means, of those that are removed or not.

    Raises:
        NotFoundError: There are none.
    """
    every = reader.computers()
    for field in ("uid", "host", "member"):
        found = [one for one in every if getattr(one, field) == name]
        if chosen := tuple(one for one in found if (one.removed is not None) is removed):
            return chosen
        if found:
            state = "is removed already" if not removed else "is in the team already"
            raise NotFoundError(f"'{name}' {state}", "", "orch team")
    hint = suggest_name(name, {word for one in every for word in (one.host, one.member)})
    raise NotFoundError(f"the team has no computer or member '{name}'", hint, "orch team")


def list_admitted(reader: Reader, computer: str) -> tuple[Admitted, ...]:
    """Return the clusters with machines that admit a computer."""
    return tuple(
        Admitted(
            cluster=cluster.name,
            slice=intent.name,
            where=intent.candidate.where,
            record=record,
            driven_by=find_driver(reader, cluster),
        )
        for cluster, intent, record in reader.admissions_of(computer)
    )


def find_driver(reader: Reader, cluster: ClusterRecord) -> str:
    """Return which process works on a cluster or watches a job of it; "" for none."""
    watches = (f"watch:{cluster.uid}/{job.id}" for job in reader.jobs(cluster) if job.state != "ended")
    names = (f"cluster:{cluster.qualified_name}", *watches)
    return next((holder for name in names if (holder := reader.lease_holder(name))), "")


def withdraw_keys(store: Store, services: Services, narrator: Narrator, record: ClusterRecord) -> str:
    """Withdraw the addresses and the keys of removed computers from a cluster now. Return why that failed, or ""."""
    intent = next((one for one in reversed(store.intents(record)) if admits(one)), None)
    if intent is None or not record.hosts:
        return "it has no hosts that are known to run"
    try:
        key = f"cluster:{record.qualified_name}"
        with LeaseKeeper(store, record.name, "team remove", narrator, key=key) as keeper:
            keeper.hold()
            if find_gated_intent((intent,)) is not None:
                admit_under_lease(store, services, load_paths(), record, intent)
            hosts = fence_hosts(record.hosts, store.intents(record), store.installation, store.slice_owner)
            operations = services.host_operations(hosts, StorePins(lambda: store, narrator.note))
            try:
                now = services.clock.now()
                keys = HostKeys(team=store.computers(), members=list_members(store, record, now))
                failed = write_keys(store, record.uid, intent, operations, keys, now)
            finally:
                operations.close()
    except ConflictError as error:
        return str(error)
    except OrchError as error:
        return str(error)
    return f"rank {failed[0].rank}: {failed[0].last_line or failed[0].verdict}" if failed else ""
