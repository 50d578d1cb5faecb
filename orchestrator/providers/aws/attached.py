"""The disks and public addresses of a candidate's instances, for what they cost. Pure."""

from __future__ import annotations

from orchestrator.catalog.attached import Attached
from orchestrator.providers.aws import choices
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.body import make_disk
from orchestrator.slices import Candidate

_INCLUDED = {"Iops": 3000, "Throughput": 125}  # in the price of gp3 (EBS User Guide, "General Purpose SSD", 2026)


def describe_attached(candidate: Candidate) -> Attached:
    """Return the boot disks and the public addresses of the instances.

    A stop releases the public address of an instance, and keeps its Elastic IP, which is charged whether it is in use
    or idle (AWS Networking & Content Delivery Blog, "Identify and optimize public IPv4 address usage on AWS", updated
    2024-02-01).

    Raises:
        UserError: EC2 cannot make the candidate.
    """
    made = choices.read(candidate)
    disk = make_disk(made)
    iops, mibps = (max(0, int(str(disk.get(key, least))) - least) for key, least in _INCLUDED.items())
    elastic = made.access.elastic(made.hosts)
    return Attached(
        disk=str(disk["VolumeType"]),
        disk_gib=made.disk_gib * made.hosts,
        disk_iops=iops * made.hosts,
        disk_mibps=mibps * made.hosts,
        addresses=made.hosts if made.access.way is Way.PUBLIC else elastic,
        keeps_addresses=elastic > 0,
    )
