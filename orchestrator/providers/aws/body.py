"""The parameters of RunInstances for a whole slice. Pure.

Sources: EC2 API reference, RunInstances, and EC2 User Guide, 2026. What is not said has EC2's default.
"""

from __future__ import annotations

from orchestrator.providers.aws import market
from orchestrator.providers.aws.access import Way
from orchestrator.providers.aws.choices import Choices
from orchestrator.providers.aws.groups import name_of
from orchestrator.providers.aws.interfaces import interfaces
from orchestrator.providers.aws.tags import specification
from orchestrator.providers.aws.unknowns import GROUP, ROOT_DEVICE, SUBNET, USER_DATA
from orchestrator.slices import SliceSpec, Spot
from orchestrator.values import Text, to_text

# Of the root volume: beyond what a gp3 volume has at least, 3,000 and 125, as images and packages are read from it.
IOPS = 6000
THROUGHPUT_MIB = 500
_TAGGED = ("instance", "volume", "network-interface")


def subnet_of(choices: Choices) -> Text:
    return to_text(choices.subnet) if choices.subnet else Text.of(SUBNET)


def run_instances(spec: SliceSpec, choices: Choices) -> dict[str, object]:
    """All machines of the slice or none. Their disks are deleted with them.

    A machine that switches itself off is ended, or stopped where the task has `autostop`.
    """
    group = to_text(choices.security_group) if choices.security_group else Text.of(GROUP)
    tagged = (*_TAGGED, "spot-instances-request") if isinstance(choices.market, Spot) else _TAGGED
    found: dict[str, object] = {
        "ImageId": choices.image.id,
        "InstanceType": choices.instance_type,
        "MinCount": choices.hosts,
        "MaxCount": choices.hosts,
        "ClientToken": spec.token,
        "NetworkInterfaces": interfaces(
            choices.efa, subnet_of(choices), [group], public=choices.access.way is Way.PUBLIC
        ),
        "BlockDeviceMappings": [{"DeviceName": Text.of(ROOT_DEVICE), "Ebs": make_disk(choices)}],
        "InstanceInitiatedShutdownBehavior": "stop" if choices.keeps_disk else "terminate",
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 1},
        "UserData": Text.of(USER_DATA),
        "TagSpecifications": specification(spec, *tagged),
    }
    placement_group = name_of(spec.name) if choices.makes_placement_group else choices.placement_group
    if placement_group:
        found["Placement"] = {"GroupName": placement_group}
    if choices.instance_profile:
        found["IamInstanceProfile"] = {"Name": choices.instance_profile}
    return found | market.parameters(choices.market)


def make_disk(choices: Choices) -> dict[str, object]:
    """Return the boot disk. gp3 gives at most 500 operations a second per GiB.

    Machines without accelerators take what is included: more would cost about as much as the smallest of them.
    """
    disk: dict[str, object] = {"VolumeType": "gp3", "VolumeSize": choices.disk_gib}
    if not choices.is_plain:
        iops = max(3000, min(IOPS, choices.disk_gib * 500))
        disk |= {"Iops": iops, "Throughput": min(THROUGHPUT_MIB, iops // 4)}
    return {**disk, "Encrypted": True, "DeleteOnTermination": True}
