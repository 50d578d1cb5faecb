"""What orch may do in a Google project: one table, from which the role files, the check and the simulated IAM are made.

Names are those of "IAM roles and permissions index" (docs.cloud.google.com/iam/docs/roles-permissions: tpu, compute,
serviceusage, resourcemanager; read November 2026). Cloud TPU has no permissions of its own for queued resources: its
page lists tpu.nodes.* only, and queued resources go with those of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ACT_AS = "iam.serviceAccounts.actAs"
BUCKET_OBJECTS = ("storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list")
BUCKET_ROLE = "roles/storage.objectUser"  # has the four above ("IAM roles for Cloud Storage", read November 2026)


@dataclass(frozen=True, slots=True)
class Need:
    """Permissions of a project that one purpose needs. purpose: what stops working without them."""

    purpose: str
    permissions: tuple[str, ...]


TPU = Need(
    "make, see, stop and end TPU VMs and queued resources",
    (
        "tpu.nodes.create",
        "tpu.nodes.delete",
        "tpu.nodes.get",
        "tpu.nodes.list",
        "tpu.nodes.start",
        "tpu.nodes.stop",
        "tpu.operations.get",
    ),
)
PLACES = Need("find slices in all zones; say what a zone offers", ("tpu.acceleratortypes.list", "tpu.locations.list"))
TAKE_OVER = Need("take over TPU VMs of a lost store: orch recover", ("tpu.nodes.update",))
FIREWALL = Need(
    "let your address in at port 22 of the hosts, and take that back",
    (
        "compute.firewalls.create",
        "compute.firewalls.delete",
        "compute.firewalls.get",
        "compute.firewalls.list",
        "compute.firewalls.update",
        "compute.globalOperations.get",
        "compute.networks.updatePolicy",
    ),
)
INSTANCES = Need(
    "make, see and end machines of Compute Engine: TPU7x, CPU and GPU machines, and others where a task says so",
    (
        "compute.disks.create",
        "compute.instanceGroupManagers.create",
        "compute.instanceGroupManagers.delete",
        "compute.instanceGroupManagers.get",
        "compute.instanceGroupManagers.list",
        "compute.instanceGroupManagers.update",
        "compute.instanceTemplates.create",
        "compute.instanceTemplates.delete",
        "compute.instanceTemplates.get",
        "compute.instanceTemplates.list",
        "compute.instanceTemplates.useReadOnly",
        "compute.instances.create",
        "compute.instances.delete",
        "compute.instances.get",
        "compute.instances.getGuestAttributes",
        "compute.instances.getSerialPortOutput",
        "compute.instances.list",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
        "compute.instances.setTags",
        "compute.instances.start",
        "compute.instances.stop",
        "compute.regionOperations.get",
        "compute.resourcePolicies.create",
        "compute.resourcePolicies.delete",
        "compute.resourcePolicies.get",
        "compute.resourcePolicies.list",
        "compute.resourcePolicies.use",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
        "compute.zoneOperations.get",
    ),
)
CHECK = Need(
    "check the project, its APIs and its quota",
    ("resourcemanager.projects.get", "serviceusage.quotas.get", "serviceusage.services.get"),
)
PRICES = Need("read where machine types are sold: orch catalog refresh", ("compute.machineTypes.list",))
NEEDS = (TPU, PLACES, TAKE_OVER, FIREWALL, INSTANCES, CHECK, PRICES)

HOST_NEEDS = (
    Need("the host of a TPU of one host stops it when it is idle, with autostop", ("tpu.nodes.stop",)),
    Need(
        "a host ends its own slice when its limit of hours, money or idleness is reached",
        ("compute.instanceGroupManagers.delete", "compute.instances.delete", "tpu.nodes.delete"),
    ),
)


def role_permissions(needs: Sequence[Need] = NEEDS) -> tuple[str, ...]:
    """All of them, each once, in order of their names."""
    return tuple(sorted({permission for need in needs for permission in need.permissions}))


def role_file(title: str, description: str, needs: Sequence[Need]) -> str:
    """A file for `gcloud iam roles create --file` (fields of its reference page, read November 2026)."""
    lines = [f"title: {title}", f"description: {description}", "stage: GA", "includedPermissions:"]
    for need in needs:
        lines.append(f"  # {need.purpose}")
        lines += [f"  - {permission}" for permission in need.permissions]
    return "\n".join(lines) + "\n"


def orch_role() -> str:
    """The role of whoever runs orch, as a file."""
    return _HEAD.format(role="orch", whose="Of whoever runs orch") + role_file(
        "orch", "Rents machines, and ends them", NEEDS
    )


def host_role() -> str:
    """The role of the hosts' service account, as a file."""
    head = _HEAD.format(role="orchHost", whose="Of the service account of the hosts") + _BUCKET
    return head + role_file("orch host", "A host that ends itself", HOST_NEEDS)


_HEAD = """\
# {whose}:
#   gcloud iam roles create {role} --project=PROJECT --file=FILE
#   gcloud projects add-iam-policy-binding PROJECT --member=MEMBER --role=projects/PROJECT/roles/{role}
"""
_BUCKET = f"""\
# Their bucket is granted on the bucket alone, not in the project:
#   gcloud storage buckets add-iam-policy-binding gs://BUCKET --member=MEMBER --role={BUCKET_ROLE}
"""
