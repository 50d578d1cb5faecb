"""The disks and public addresses of a candidate's machines, for what they cost. Pure."""

from __future__ import annotations

from orchestrator.catalog.attached import Attached
from orchestrator.providers.google import choices
from orchestrator.providers.google.compute import parts
from orchestrator.slices import Candidate


def describe_attached(candidate: Candidate) -> Attached:
    """Return the boot disks and the external addresses of machines on Compute Engine.

    Whether the boot disks and addresses of nodes of the TPU API are charged is not known.

    Raises:
        UserError: Google cannot make the candidate.
    """
    if choices.path_of(candidate).api != "compute":
        return Attached()
    made = parts.read(candidate)
    addresses = 0 if made.asked.internal_ips else candidate.hosts
    return Attached(disk=made.disk_type, disk_gib=made.disk_gib * candidate.hosts, addresses=addresses)
