"""The public host keys that EC2 holds: those in the user data of the instances, whoever sent it."""

from __future__ import annotations

import base64
import binascii

from orchestrator.errors import CloudError
from orchestrator.providers.aws.calls import Calls
from orchestrator.providers.aws.userdata import unpack_public


def read_host_public(calls: Calls, instance: str) -> tuple[str, ...]:
    """Return the public host keys of an instance's launch, one line for each rank.

    Raises:
        CloudError: Its user data is not of orch.
        Refused: EC2 does not show it.
    """
    answer = calls.read("ec2", "DescribeInstanceAttribute", {"InstanceId": instance, "Attribute": "userData"})
    data = str(answer.get("UserData", {}).get("Value", ""))
    try:
        return unpack_public(base64.b64decode(data, validate=True).decode())
    except (ValueError, binascii.Error) as error:
        raise CloudError(f"the user data of {instance} is not of orch", str(error), "orch down   ends it") from error
