"""Compute the environment of each host from its rank; it is never stored per host.

Names: docs/environment.md. The SKYPILOT_* names are those of the public task dialect (SkyPilot documentation,
"Environment variables", read November 2026), as aliases of ours.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from orchestrator.catalog.accelerators import is_gpu
from orchestrator.values import Text, Unknown, to_text

COORDINATOR_PORT = 29500
PORTS_PER_HOST = 100  # each attempt takes the next port, so that a dying attempt cannot answer the new one
# Of hosts that are one computer, which share its ports with the hosts of other clusters: above those of real hosts, and
# with those of Neuron (100 above) below the ports that systems give to outgoing connections (32768 and up on Linux).
_SHARED_PORTS = range(29700, 32600)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEnvironment:
    """The variables that all hosts share, and the shape of the slice, from which those of a rank follow.

    Attributes:
        common: The user's `envs` and `secrets` and what the accelerator needs, in order; a later name wins.
        internal_ips: One Text per rank, in rank order; unknown before create.
        cluster: The cluster's name; provider, region and zone say where its machines are.
    """

    common: tuple[tuple[str, Text], ...]
    internal_ips: tuple[Text, ...]
    chips_per_host: int
    accelerator: str
    port: int | Unknown
    task_id: Text
    cluster: str = ""
    provider: str = ""
    region: str = ""
    zone: str = ""
    for_setup: bool = False
    num_slices: int = 1

    def for_rank(self, rank: int) -> tuple[tuple[str, Text], ...]:
        """Return the environment of one host in the order of export, each name once."""
        merged: dict[str, Text] = {}
        for name, value in (*self._shape(rank), *self.common):
            merged.pop(name, None)
            merged[name] = value
        return tuple(merged.items())

    def varying(self) -> tuple[str, ...]:
        """Return the names whose value differs between hosts."""
        return ("ORCH_RANK", "ORCH_SLICE_ID", *self._dialect_rank_names())

    def per_rank(self, rank: int) -> tuple[tuple[str, str], ...]:
        """Return only the variables that differ between hosts: cheap enough for previews of large slices."""
        fixed = {name for name, _ in self.common}
        values = {"ORCH_SLICE_ID": str(rank // self.hosts_per_slice)}
        return tuple((name, values.get(name, str(rank))) for name in self.varying() if name not in fixed)

    @property
    def hosts_per_slice(self) -> int:
        """Hosts of each slice of a multislice cluster."""
        return max(1, len(self.internal_ips) // self.num_slices)

    def _shape(self, rank: int) -> list[tuple[str, Text]]:
        hosts = len(self.internal_ips)
        ips = self._addresses()
        head = self.internal_ips[0] if self.internal_ips else to_text("")
        pairs: list[tuple[str, Text | str]] = [
            ("ORCH_RANK", str(rank)),
            ("ORCH_NUM_HOSTS", str(hosts)),
            ("ORCH_HOST_IPS", ips),
            ("ORCH_COORDINATOR", Text.of(head, ":", self.port if isinstance(self.port, Unknown) else str(self.port))),
            ("ORCH_ACCELERATOR", self.accelerator),
            ("ORCH_CHIPS_PER_HOST", str(self.chips_per_host)),
            ("ORCH_SLICE_ID", str(rank // self.hosts_per_slice)),
            ("ORCH_NUM_SLICES", str(self.num_slices)),
        ]
        stage = "SETUP_" if self.for_setup else ""
        pairs += [
            (f"SKYPILOT_{stage}NODE_RANK", str(rank)),
            (f"SKYPILOT_{stage}NODE_IPS", ips),
            (f"SKYPILOT_{stage}NUM_GPUS_PER_NODE", str(self._gpus())),
            ("SKYPILOT_NUM_NODES", str(hosts)),
            ("SKYPILOT_TASK_ID", self.task_id),
            ("SKYPILOT_CLUSTER_INFO", self._describe_cluster()),
        ]
        return [(name, to_text(value)) for name, value in pairs]

    def _describe_cluster(self) -> str:
        place = {"region": self.region or None, "zone": self.zone or None}
        return json.dumps({"cluster_name": self.cluster, "cloud": self.provider.upper(), **place})

    def _addresses(self) -> Text:
        if self.internal_ips and not any(ip.is_known for ip in self.internal_ips):
            what = f"{len(self.internal_ips):,} addresses in rank order, known after create"
            return to_text(Unknown(what, after_create=True))
        return Text.join("\n", list(self.internal_ips))

    def _dialect_rank_names(self) -> tuple[str, ...]:
        return ("SKYPILOT_SETUP_NODE_RANK",) if self.for_setup else ("SKYPILOT_NODE_RANK",)

    def _gpus(self) -> int:
        # The dialect counts only GPUs here: 0 on all other hosts.
        return self.chips_per_host if is_gpu(self.accelerator) else 0


def rendezvous_port(job_id: int, attempt: int) -> int:
    """Return the rendezvous port: another one for each attempt, and for jobs that run at the same time."""
    return COORDINATOR_PORT + (job_id + attempt - 2) % PORTS_PER_HOST


def choose_shared_port(uid: Text, job_id: int, attempt: int) -> int | Unknown:
    """Return the rendezvous port on hosts that are one computer, where other clusters may run jobs at the same time.

    Args:
        uid: Of the cluster.
        job_id: Number of the job on the cluster.
        attempt: Of the job.

    Returns:
        Another one for each attempt and job of the cluster; unknown before the cluster is recorded.
    """
    if not uid.is_known:
        return Unknown("port of this cluster, known after it is recorded")
    digest = hashlib.sha256(uid.reveal().encode()).digest()
    first = int.from_bytes(digest[:8], "big")
    return _SHARED_PORTS[(first + job_id + attempt - 2) % len(_SHARED_PORTS)]
