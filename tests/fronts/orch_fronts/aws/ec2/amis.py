"""DescribeImages, of what images.py knows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from orch_fronts.aws import images
from orch_fronts.aws.calls import AwsRefusal
from orch_fronts.aws.ec2.filters import chosen, page
from orch_fronts.aws.ec2.visit import Visit

_FILTERS = frozenset(
    {"architecture", "description", "image-id", "image-type", "is-public", "name", "owner-alias", "owner-id"}
    | {"root-device-type", "state", "virtualization-type", "creation-date"}
)


def describe(visit: Visit) -> dict[str, Any]:
    visit.ask()
    known = images.by_id(visit.region)
    asked = [str(one) for one in visit.params.get("ImageIds", ())]
    for name in asked:
        if not re.fullmatch(r"ami-[0-9a-f]{8}(?:[0-9a-f]{9})?", name):
            raise AwsRefusal("InvalidAMIID.Malformed", f'Invalid id: "{name}" (expecting "ami-...")')
        if name not in known:
            raise AwsRefusal("InvalidAMIID.NotFound", f"The image id '[{name}]' does not exist")
    owners = {str(one) for one in visit.params.get("Owners", ())}
    wanted = [
        (name, image)
        for name, image in known.items()
        if (not asked or name in asked) and (not owners or owners & {"amazon", image.owner})
    ]
    found, more = page(visit, chosen(visit, wanted, lambda pair: _facts(*pair), _FILTERS))
    return {"Images": [_shown(*pair) for pair in found], **more}


def _facts(name: str, image: images.Image) -> dict[str, Sequence[str]]:
    return {
        "architecture": [image.architecture],
        "creation-date": [image.created],
        "description": [image.description],
        "image-id": [name],
        "image-type": ["machine"],
        "is-public": ["true"],
        "name": [image.name],
        "owner-alias": ["amazon"],
        "owner-id": [image.owner],
        "root-device-type": ["ebs"],
        "state": ["available"],
        "virtualization-type": ["hvm"],
    }


def _shown(name: str, image: images.Image) -> dict[str, Any]:
    disk = {"VolumeSize": image.root_gib, "VolumeType": "gp3", "DeleteOnTermination": True, "Encrypted": False}
    return {
        "ImageId": name,
        "Name": image.name,
        "Description": image.description,
        "CreationDate": image.created,
        "OwnerId": image.owner,
        "ImageOwnerAlias": "amazon",
        "Architecture": image.architecture,
        "ImageType": "machine",
        "Public": True,
        "State": "available",
        "RootDeviceName": image.root_device,
        "RootDeviceType": "ebs",
        "VirtualizationType": "hvm",
        "EnaSupport": True,
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
    }
