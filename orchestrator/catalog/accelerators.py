"""Find the machine that a name means, in any usual spelling: `resolve("tpu-v5e-16")`."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.catalog import ec2, tpu
from orchestrator.catalog.machines import (
    Accelerator,
    CpuMachine,
    Ec2Instance,
    LocalHosts,
    OwnDevices,
    TpuSlice,
)
from orchestrator.errors import UserError

LARGEST_LOCAL = 1024  # loopback hosts; more is a typing error


def resolve(name: str) -> Accelerator:
    """Return the machine that a name means: a TPU slice, an EC2 type, NAME:COUNT, `cpu`, or `local:...`.

    Raises:
        UserError: The name is unknown; the message has the nearest names or sizes.
    """
    requested = name.strip()
    if requested.lower() == "cpu":
        return _cpu(requested)
    if requested.lower().startswith("local:"):
        return resolve_local(requested[len("local:") :])
    return resolve_rented(requested)


def resolve_rented(name: str) -> TpuSlice | Ec2Instance:
    """Resolve a name of something that a cloud rents out.

    `tpu-v5e-16:1` is accepted, as the SkyPilot dialect does, and `v4:2x2x4`.
    """
    requested, _, count = name.strip().partition(":")
    if tpu.is_topology(count):
        return _shaped(requested, count)
    found_slice = tpu.find_slice(requested)
    if found_slice is not None:
        if count.strip() not in ("", "1"):
            raise UserError(
                f"`{name.strip()}` asks for {count.strip()} slices",
                "a slice is one node of the task",
                f"write accelerators: {found_slice.name} and num_nodes: {count.strip()}",
            )
        return replace(found_slice, normalised_from=name.strip()) if count else found_slice
    instance = ec2.find_instance(name)
    if instance is not None:
        return instance
    raise _unknown(name.strip())


def resolve_instance(name: str) -> TpuSlice | Ec2Instance:
    """Resolve an EC2 instance type, which may be newer than the table."""
    try:
        return resolve_rented(name)
    except UserError:
        if (instance := ec2.make_unlisted_type(name)) is not None:
            return instance
        raise


def _shaped(name: str, topology: str) -> TpuSlice:
    sized = tpu.find_slice(name)
    if sized is not None:
        return tpu.reshape_slice(sized, topology)
    return tpu.find_by_topology(name, topology)


def resolve_own(name: str) -> TpuSlice | OwnDevices | CpuMachine | Ec2Instance:
    """Resolve the devices of one of the user's own machines.

    NAME:COUNT with any count, a TPU slice, an instance type, or `cpu`.
    """
    if name.strip().lower() == "cpu":
        return _cpu(name.strip())
    return ec2.find_devices(name) or resolve_rented(name)


def resolve_local(shape: str) -> LocalHosts:
    """Resolve the part after `local:`: a number of hosts, or a machine whose shape they take."""
    text = shape.strip()
    if text.isascii() and text.isdigit():
        return _plain_hosts(text)
    if text.lower() == "cpu":
        return _plain_hosts("1")
    real = resolve_rented(text)
    return LocalHosts(
        name=f"local:{real.name}",
        hosts=real.hosts,
        chips_per_host=real.chips_per_host,
        cores_per_chip=real.cores_per_chip,
        hbm_gib_per_chip=0,
        peak_bf16_tflops_per_chip=0,
        backends=("cpu", "xla", "jax"),
        normalised_from=None if text == real.name else f"local:{text}",
        stands_for=real,
    )


def nearest_names(name: str) -> tuple[str, ...]:
    """Return up to three known names that resemble `name`, best first."""
    from difflib import get_close_matches

    spelled = {known.lower(): known for known in (*tpu.list_common_names(), *ec2.list_common_names(), "cpu", "local:4")}
    word = name.strip().lower()
    close = get_close_matches(word.removeprefix("tpu-"), spelled, n=6, cutoff=0.6)
    found = [spelled[item] for item in close] or [
        spelled[item] for item in spelled if item.partition(":")[0] == word.partition(":")[0]
    ]
    unique: list[str] = []
    for item in found:
        slice_ = tpu.find_slice(item)
        canonical = slice_.name if slice_ else item
        if canonical not in unique:
            unique.append(canonical)
    return tuple(unique[:3])


def _plain_hosts(count: str) -> LocalHosts:
    hosts = int(count[:7])
    if not 1 <= hosts <= LARGEST_LOCAL:
        raise UserError(f"`local:{count}` is not possible", f"1 to {LARGEST_LOCAL} local hosts", "use local:4")
    return LocalHosts(
        name=f"local:{hosts}",
        hosts=hosts,
        chips_per_host=0,
        cores_per_chip=0,
        hbm_gib_per_chip=0,
        peak_bf16_tflops_per_chip=0,
        backends=("cpu", "xla", "jax"),
        normalised_from=None if count == str(hosts) else f"local:{count}",
    )


def _cpu(requested: str) -> CpuMachine:
    return CpuMachine(
        name="cpu",
        hosts=1,
        chips_per_host=0,
        cores_per_chip=0,
        hbm_gib_per_chip=0,
        peak_bf16_tflops_per_chip=0,
        backends=("cpu", "xla", "jax"),
        normalised_from=None if requested == "cpu" else requested,
    )


def _unknown(name: str) -> UserError:
    generation = tpu.find_generation(name)
    if generation is not None:
        sizes = ", ".join(f"{generation.prefix}-{size}" for size in generation.sizes[:6])
        return UserError(
            f"`{name}` names a TPU generation and no size", f"sizes: {sizes}, …", f"use {generation.prefix}-8"
        )
    near = nearest_names(name)
    return UserError(
        f"there is no accelerator called `{name}`",
        f"nearest: {', '.join(near)}"
        if near
        else "TPU slices are named like v5litepod-16, GPUs like H100:8, or by instance type",
        f"use {near[0]}" if near else "orch accelerators lists them",
    )
