"""What each method needs, by its id in the discovery documents.

Sources, read November 2026: for the TPU API "Cloud TPU roles and permissions" (its names) and "Cloud TPU audit logging"
(which methods read, which write); for the others the section "IAM Permissions" of each method's reference page. Google
publishes no permissions of queued resources, guest attributes or resets of TPUs: that those of nodes count is modelled.
"""

from __future__ import annotations

from collections.abc import Mapping

ACT_AS = "iam.serviceAccounts.actAs"
# Of roles/storage.objectUser, those on objects alone ("IAM roles for Cloud Storage", read November 2026).
OBJECT_USER = ("storage.objects.create", "storage.objects.delete", "storage.objects.get", "storage.objects.list")
_TPU: Mapping[str, tuple[str, ...]] = {
    "list": ("tpu.locations.list",),
    "get": ("tpu.locations.get",),
    "nodes.create": ("tpu.nodes.create",),
    "nodes.delete": ("tpu.nodes.delete",),
    "nodes.get": ("tpu.nodes.get",),
    "nodes.getGuestAttributes": ("tpu.nodes.get",),
    "nodes.list": ("tpu.nodes.list",),
    "nodes.patch": ("tpu.nodes.update",),
    "nodes.start": ("tpu.nodes.start",),
    "nodes.stop": ("tpu.nodes.stop",),
    "nodes.simulateMaintenanceEvent": ("tpu.nodes.simulateMaintenanceEvent",),
    "nodes.performMaintenance": ("tpu.nodes.performMaintenance",),
    "queuedResources.create": ("tpu.nodes.create",),
    "queuedResources.delete": ("tpu.nodes.delete",),
    "queuedResources.get": ("tpu.nodes.get",),
    "queuedResources.list": ("tpu.nodes.list",),
    "queuedResources.reset": ("tpu.nodes.reset",),
    "acceleratorTypes.get": ("tpu.acceleratortypes.get",),
    "acceleratorTypes.list": ("tpu.acceleratortypes.list",),
    "runtimeVersions.get": ("tpu.runtimeversions.get",),
    "runtimeVersions.list": ("tpu.runtimeversions.list",),
    "operations.get": ("tpu.operations.get",),
    "operations.list": ("tpu.operations.list",),
    "operations.delete": ("tpu.operations.get",),  # modelled: no permission to forget or cancel one is published
    "operations.cancel": ("tpu.operations.get",),
}
_COMPUTE: Mapping[str, tuple[str, ...]] = {
    "projects.get": ("compute.projects.get",),
    "networks.get": ("compute.networks.get",),
    "zones.get": ("compute.zones.get",),
    "zones.list": ("compute.zones.list",),
    "firewalls.insert": ("compute.firewalls.create", "compute.networks.updatePolicy"),
    "firewalls.get": ("compute.firewalls.get",),
    "firewalls.list": ("compute.firewalls.list",),
    "firewalls.patch": ("compute.firewalls.update", "compute.networks.updatePolicy"),
    "firewalls.delete": ("compute.firewalls.delete", "compute.networks.updatePolicy"),
    "machineTypes.aggregatedList": ("compute.machineTypes.list",),
    "images.get": (),  # Google's own images are open to everybody
    "images.getFromFamily": (),
    "autoscalers.list": ("compute.autoscalers.list",),
    "globalOperations.get": ("compute.globalOperations.get",),
    "globalOperations.wait": ("compute.globalOperations.get",),
    "regionOperations.get": ("compute.regionOperations.get",),
    "regionOperations.wait": ("compute.regionOperations.get",),
    "zoneOperations.get": ("compute.zoneOperations.get",),
    "zoneOperations.wait": ("compute.zoneOperations.get",),
    # Those that depend on the body (metadata, tags, labels, account, address) are always asked here.
    "instances.insert": (
        "compute.disks.create",
        "compute.instances.create",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
        "compute.instances.setTags",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
    ),
    "instances.get": ("compute.instances.get",),
    "instances.list": ("compute.instances.list",),
    "instances.aggregatedList": ("compute.instances.list",),
    "instances.delete": ("compute.instances.delete",),
    "instances.stop": ("compute.instances.stop",),
    "instances.start": ("compute.instances.start",),
    "instances.getGuestAttributes": ("compute.instances.getGuestAttributes",),
    "instances.getSerialPortOutput": ("compute.instances.getSerialPortOutput",),
    "instances.setMetadata": ("compute.instances.setMetadata",),
    "instances.setLabels": ("compute.instances.setLabels",),
    "instanceTemplates.insert": ("compute.instanceTemplates.create",),
    "instanceTemplates.get": ("compute.instanceTemplates.get",),
    "instanceTemplates.list": ("compute.instanceTemplates.list",),
    "instanceTemplates.aggregatedList": ("compute.instanceTemplates.list",),
    "instanceTemplates.delete": ("compute.instanceTemplates.delete",),
    "instanceGroupManagers.insert": (
        "compute.instanceGroupManagers.create",
        "compute.instanceTemplates.useReadOnly",
        "compute.instances.create",
        "compute.resourcePolicies.use",
    ),
    "instanceGroupManagers.get": ("compute.instanceGroupManagers.get",),
    "instanceGroupManagers.list": ("compute.instanceGroupManagers.list",),
    "instanceGroupManagers.aggregatedList": ("compute.instanceGroupManagers.list",),
    "instanceGroupManagers.listManagedInstances": ("compute.instanceGroupManagers.get",),
    "instanceGroupManagers.listErrors": ("compute.instanceGroupManagers.get",),
    "instanceGroupManagers.resize": ("compute.instanceGroupManagers.update",),
    "instanceGroupManagers.delete": ("compute.instanceGroupManagers.delete",),
    "resourcePolicies.insert": ("compute.resourcePolicies.create",),
    "resourcePolicies.get": ("compute.resourcePolicies.get",),
    "resourcePolicies.list": ("compute.resourcePolicies.list",),
    "resourcePolicies.aggregatedList": ("compute.resourcePolicies.list",),
    "resourcePolicies.delete": ("compute.resourcePolicies.delete",),
}
_BUCKETS: Mapping[str, tuple[str, ...]] = {
    "storage.buckets.get": ("storage.buckets.get",),
    "storage.buckets.testIamPermissions": (),
}
_NOTHING: tuple[str, ...] = ()  # whoever calls may ask for permissions that he has, and for his own login profile

PERMISSIONS: Mapping[str, tuple[str, ...]] = {
    **{f"tpu.projects.locations.{name}": needed for name, needed in _TPU.items()},
    **{f"compute.{name}": needed for name, needed in _COMPUTE.items()},
    **_BUCKETS,
    "cloudbilling.services.skus.list": _NOTHING,  # "all publicly available SKUs" (discovery document)
    "cloudresourcemanager.projects.get": ("resourcemanager.projects.get",),
    "cloudresourcemanager.projects.testIamPermissions": _NOTHING,
    "serviceusage.services.batchGet": ("serviceusage.services.get",),
    "serviceusage.services.consumerQuotaMetrics.list": ("serviceusage.quotas.get",),
    "iam.projects.serviceAccounts.testIamPermissions": _NOTHING,
    "iamcredentials.projects.serviceAccounts.generateAccessToken": _NOTHING,  # the account's own policy decides
    "oslogin.users.getLoginProfile": _NOTHING,
    "oslogin.users.importSshPublicKey": _NOTHING,
    "oslogin.users.sshPublicKeys.delete": _NOTHING,
}


def in_bucket(method: str) -> bool:
    """Whether a bucket's policy decides, not the project's alone."""
    return method in _BUCKETS
