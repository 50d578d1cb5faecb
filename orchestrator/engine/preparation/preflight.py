"""Preflight: what would fail on the machines of a task, as far as it is known before they cost money."""

from __future__ import annotations

from orchestrator.engine.preparation import host_inputs
from orchestrator.errors import AccessError, OrchError, UserError
from orchestrator.slices import HostFacts
from orchestrator.task.infra import InfraProvider
from orchestrator.task.model import Task

# Variables that give a program AWS credentials without a machine role (AWS SDKs and Tools Reference Guide, 2026).
_OWN_CREDENTIALS = frozenset(
    {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}
)


def preflight_error(task: Task, facts: HostFacts) -> OrchError | None:
    """Return the first preflight error, or None."""
    return (
        local_bucket_error(task, facts)
        or missing_credentials_error(task, facts)
        or unsupported_hosts_error(task, facts)
    )


def local_bucket_error(task: Task, facts: HostFacts) -> UserError | None:
    """Return an error for a file:// bucket on rented machines, or None.

    Such a bucket would be a folder on each machine: it is lost with the machine, and the other hosts cannot read it.
    """
    bucket = task.checkpoint.bucket
    if not bucket.startswith("file://") or task.choices[0].infra.owned or facts.shares_files:
        return None
    kind = "s3://" if any(choice.infra.provider is InfraProvider.AWS for choice in task.choices) else "gs://"
    return UserError(
        f"{bucket} would be a folder on each rented machine",
        "checkpoints there are lost with the machine, and the other hosts cannot read them",
        f"--bucket {kind}NAME/runs",
    )


def unsupported_hosts_error(task: Task, facts: HostFacts) -> UserError | None:
    """Return an error for the bundled trainer on several Trainium hosts with torch, or None.

    torch_xla, the last torch for this chip, drives the devices of one host only.
    """
    first = task.choices[0]
    if task.train is None or task.count_hosts(first) == 1:
        return None
    chosen = host_inputs.choose_trainer_stack(task, facts)
    if chosen.device != "xla" or chosen.backend != "neuron":
        return None
    return UserError(
        f"the bundled trainer does not train on several hosts of {first.machine.name} with torch",
        "torch_xla, the last torch for this chip, drives the devices of one host",
        "set engine=jax, use one host, or run your own program: run: in a task file",
    )


def missing_credentials_error(task: Task, facts: HostFacts) -> AccessError | None:
    """Return an error when hosts on EC2 could not open an s3:// bucket of the task, or None.

    Their role is an instance profile: orch never copies the user's own keys to a machine.
    """
    on_ec2 = any(choice.infra.provider is InfraProvider.AWS for choice in task.choices)
    if not on_ec2 or task.aws.instance_profile:
        return None
    given = {name for name, _ in (*facts.env, *task.envs)} | set(task.secret_names)
    buckets = [uri for uri in (task.checkpoint.bucket, *(mount.source for mount in task.file_mounts)) if _in_s3(uri)]
    if not buckets or given & _OWN_CREDENTIALS:
        return None
    return AccessError(
        f"the machines could not open {buckets[0]}",
        "no instance profile is set, so the machines would have no AWS credentials",
        "orch config set aws.instance_profile NAME   docs/aws.md explains how to make one",
    )


def _in_s3(uri: str) -> bool:
    return uri.startswith("s3://")
