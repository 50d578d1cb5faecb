"""Whether the machines of a task could open its buckets, as far as that can be known before they are there."""

from __future__ import annotations

from orchestrator.errors import AccessError
from orchestrator.slices import HostFacts
from orchestrator.spec.infra import Where
from orchestrator.spec.task import Task

# What gives a program credentials of AWS without a role of its machine (AWS SDKs and Tools Reference Guide, 2026).
_OWN_CREDENTIALS = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}
)


def without_credentials(task: Task, facts: HostFacts) -> AccessError | None:
    """Why hosts on EC2 could not open an s3:// bucket of the task; None when they can, or need none.

    Their role is an instance profile: orch never copies the user's own keys to a machine.
    """
    on_ec2 = any(choice.infra.provider is Where.AWS for choice in task.choices)
    if not on_ec2 or task.aws.instance_profile:
        return None
    given = {name for name, _ in (*facts.env, *task.envs)} | set(task.secret_names)
    buckets = [uri for uri in (task.checkpoint.bucket, *(mount.source for mount in task.file_mounts)) if _in_s3(uri)]
    if not buckets or given & _OWN_CREDENTIALS:
        return None
    return AccessError(
        f"the machines could not open {buckets[0]}",
        "they would have no credentials: no instance profile is named",
        "orch config set aws.instance_profile NAME   docs/aws.md tells how to make one",
    )


def _in_s3(uri: str) -> bool:
    return uri.startswith("s3://")
