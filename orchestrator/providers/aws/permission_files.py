"""The policies that `orch check aws --print-policy` prints."""

from __future__ import annotations

from orchestrator.errors import UserError
from orchestrator.providers.aws.check_policy import policy_text
from orchestrator.storage.address import Address


def make_permission_file(purpose: str, bucket: str) -> str:
    """Return a policy.

    Args:
        purpose: "user", "hosts", "trust", "server" or "project-trust".
        bucket: Address of the only bucket that it allows; "" for all.

    Raises:
        UserError: The bucket is not on S3.
    """
    if not bucket:
        return policy_text(purpose)
    address = Address.parse(bucket)
    if address.scheme != "s3":
        raise UserError(f"{bucket} is not on S3", "an AWS policy cannot name it", "--bucket s3://NAME/FOLDER")
    return policy_text(purpose, address.container, address.prefix)
