"""What would fail on the machines of a task, as far as that can be known before they are paid for."""

from __future__ import annotations

from orchestrator.catalog.machines import Accelerator, Ec2Instance, LocalHosts
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
    return without_credentials(task, facts) or too_many_hosts(task, facts)


def too_many_hosts(task: Task, facts: HostFacts) -> UserError | None:
    """The bundled trainer drives the devices of one host where its torch is the lazy one, torch_xla."""
    first = task.choices[0]
    if task.train is None or task.hosts_of(first) == 1 or isinstance(first.machine, LocalHosts):
        return None
    backend = wish.backend(task, facts)
    if backend != "xla" and not (backend == "neuron" and _is_trainium1(first.machine)):
        return None
    return UserError(
        f"the bundled trainer does not train on several hosts of {first.machine.name} yet",
        "with torch_xla it drives the devices of one host",
        "take one host of it, or write a program of your own: run: in a task file",
    )


def _is_trainium1(machine: Accelerator) -> bool:
    """Its last PyTorch is the lazy one (Neuron SDK 2.28)."""
    return isinstance(machine, Ec2Instance) and machine.chip == "Trainium"


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
