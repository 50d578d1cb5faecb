"""What would fail on the machines of a task, as far as that can be known before they are paid for."""

from __future__ import annotations

from orchestrator.engine import wish
from orchestrator.errors import AccessError, OrchError, UserError
from orchestrator.slices import HostFacts
from orchestrator.spec.infra import Where
from orchestrator.spec.task import Task

# What gives a program credentials of AWS without a role of its machine (AWS SDKs and Tools Reference Guide, 2026).
_OWN_CREDENTIALS = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}
)


def doomed(task: Task, facts: HostFacts) -> OrchError | None:
    """Why it must not be begun; None when nothing is known against it."""
    return on_one_disk(task, facts) or without_credentials(task, facts) or too_many_hosts(task, facts)


def on_one_disk(task: Task, facts: HostFacts) -> UserError | None:
    """A bucket on the disk of a rented machine goes with it, and the other hosts do not see it."""
    bucket = task.checkpoint.bucket
    if not bucket.startswith("file://") or task.choices[0].infra.owned or facts.backend == "cpu":
        return None
    kind = "s3://" if any(choice.infra.provider is Where.AWS for choice in task.choices) else "gs://"
    return UserError(
        f"{bucket} would be a folder on each rented machine",
        "checkpoints there are lost with the machine, and its neighbours cannot read them",
        f"--bucket {kind}NAME/runs",
    )


def too_many_hosts(task: Task, facts: HostFacts) -> UserError | None:
    """With the lazy torch of Trainium, torch_xla, the bundled trainer drives the devices of one host."""
    first = task.choices[0]
    if task.train is None or task.hosts_of(first) == 1:
        return None
    chosen = wish.stack(task, facts)
    if chosen.device != "xla" or chosen.backend != "neuron":
        return None
    return UserError(
        f"the bundled trainer does not train on several hosts of {first.machine.name} with torch",
        "torch_xla, the last torch for this chip, drives the devices of one host",
        "write engine=jax, take one host of it, or write a program of your own: run: in a task file",
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
