"""Taking over TPU VMs that have no record here: what they are, whose they are from now on, and their hosts' keys.

The keys are those of the nodes' metadata, which Google keeps with them: no key is accepted because a host presents it.
A node takes new labels while it runs, a queued resource does not (TPU API v2, projects.locations.nodes.patch, 2026): so
the labels of the nodes decide whose a slice is, and a request that still waits for machines can only be ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import NotFoundError
from orchestrator.providers.core.record import Phase
from orchestrator.providers.google import startup
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.labels import EPOCH, INSTALLATION, INTENT, from_google, to_google
from orchestrator.providers.google.node_candidate import describe_node
from orchestrator.providers.google.record import Record
from orchestrator.remote.keys import derive_public_key
from orchestrator.slices import Candidate, OwnedSlice, RecoveredSlice, SliceKeys
from orchestrator.values import to_text


@dataclass(frozen=True, slots=True)
class TpuRecovery:
    """Of one slice. Every method may raise Refused, and NotFoundError when it has no nodes."""

    api: TpuApi
    project: str
    found: OwnedSlice

    def describe(self) -> RecoveredSlice:
        """Return the slice as it is now."""
        nodes = self._nodes()
        keys, closed = read_host_keys([dict(node.metadata) for node in nodes])
        labels = dict(nodes[0].labels)
        return RecoveredSlice(
            candidate=self._candidate(nodes),
            installation=from_google(labels, INSTALLATION),
            epoch=epoch_of(labels),
            host_public=keys,
            closed=closed,
        )

    def relabel(self, installation: str, epoch: int) -> None:
        """Change the labels of every node; its metadata is sent back as it is."""
        for node in self._nodes():
            self.api.update(node.name, with_owner(dict(node.labels), installation, epoch), dict(node.metadata))

    def record(self, recovered: RecoveredSlice, keys: SliceKeys, now: float) -> Record:
        """Return what is noted of it here."""
        nodes, candidate = self._nodes(), recovered.candidate
        return Record(
            name=self.found.name,
            token=self.found.intent,
            project=self.project,
            zone=candidate.zone,
            kind="queued" if nodes[0].queued_resource else "node",
            slices=len(nodes),
            hosts_per_slice=candidate.hosts // len(nodes),
            internal_ips=bool(candidate.detail("internal_ips")),
            identity_file=keys.identity_file,
            known_hosts=keys.known_hosts,
            host_public=keys.host_public,
            asked=self.found.created,
            changed=now,
            phase=Phase.ACCEPTED,
        )

    def _nodes(self) -> list[Any]:
        """Return the nodes of the slice in its order."""
        zone = self.found.where.split("/")[2]
        every = self.api.nodes(f"projects/{self.project}/locations/{zone}")
        mine = [node for node in every if from_google(dict(node.labels), INTENT) == self.found.intent]
        if not mine:
            raise NotFoundError(f"'{self.found.name}' has no machines", "it waits, or it is deleted", "orch recover")
        return sorted(mine, key=lambda node: (len(node.name), node.name))

    def _candidate(self, nodes: Sequence[Any]) -> Candidate:
        queued = nodes[0].queued_resource.rpartition("/")[2]
        parent = nodes[0].name.partition("/nodes/")[0]
        one = describe_node(nodes[0], self.api.queued(f"{parent}/queuedResources/{queued}") if queued else None)
        price = None if one.price_per_hour is None else one.price_per_hour * len(nodes)
        return replace(one, hosts=one.hosts * len(nodes), price_per_hour=price)


def with_owner(labels: Mapping[str, str], installation: str, epoch: int) -> dict[str, str]:
    """Return labels with another owner; the others stay."""
    ours = to_google([(INSTALLATION, to_text(installation)), (EPOCH, to_text(str(epoch)))])
    kept = {key: value for key, value in labels.items() if not key.startswith((INSTALLATION, EPOCH))}
    return kept | {key: value.reveal() for key, value in ours.items()}


def epoch_of(labels: Mapping[str, str]) -> int:
    """Return the epoch in labels; 1 where they have none."""
    found = labels.get(EPOCH, "")
    return int(found) if found.isdecimal() else 1


def read_host_keys(metadata: Sequence[Mapping[str, str]]) -> tuple[tuple[str, ...], str]:
    """Return the public keys by rank, or why the hosts cannot be entered.

    Args:
        metadata: Of one machine of each part of the slice, in order. All parts of a node's slice have the same entries.
    """
    if any(str(one.get("enable-oslogin", "")).upper() == "TRUE" for one in metadata):
        return (), "they are entered by OS Login, whose account is not recorded here"
    try:
        public = derive_host_public(metadata)
    except ValueError as error:
        return (), f"the keys of its hosts are not known: {error}"
    return public, "" if public else "its metadata hold no host keys"


def derive_host_public(metadata: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the public keys of the private ones in metadata, by rank; see read_host_keys.

    Raises:
        ValueError: They are not of orch, or not complete.
    """
    private: dict[int, str] = {}
    try:
        for one in metadata:
            packed = [value for key, value in sorted(one.items()) if key.startswith(startup.HOST_KEYS)]
            keys = startup.unpack_keys(packed)
            first = 0 if private.keys() & keys.keys() and private[0] == keys[0] else len(private)
            private |= {first + rank: key for rank, key in keys.items()}
        return tuple(derive_public_key(private[rank]) for rank in range(len(private)))
    except KeyError as error:
        raise ValueError(f"the key of host {error} is missing") from error
