"""JAX's devices for the setting `device`, the connection of the processes, and translation of JAX's errors."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from trainer.accelerators.discovery import discover_devices
from trainer.accelerators.usable_memory import find_usable_share, get_usable_share
from trainer.config import Config, DeviceName
from trainer.environment import World
from trainer.errors import ConfigError, DeviceError, PeerError
from trainer.jax_engine.library import jax
from trainer.team import Team

_PLATFORMS: Mapping[str, str] = MappingProxyType({"cpu": "cpu", "cuda": "cuda", "tpu": "tpu", "neuron": "neuron"})
_FOUND_AS: Mapping[str, str] = MappingProxyType({"gpu": "cuda"})  # JAX's name of a platform -> ours
_SHUTDOWN_S = 20
_MEMORY_SHARES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")  # the second is deprecated
_NO_PROXY = "no_grpc_proxy"  # gRPC reads it in small letters only
# Part of an error message -> what to do next.
_STEPS: Mapping[str, str] = MappingProxyType(
    {
        "already in use": "end that process, or wait for its end (sudo fuser -v /dev/accel* /dev/vfio/*)",
        "lockfile": "when no process uses the chips (sudo fuser -v /dev/accel* /dev/vfio/*), remove that file",
    }
)
# Variables by which the plug-ins connect processes: jax/_src/clusters/cloud_tpu_cluster.py; AWS Neuron documentation.
_JOINED_BY: Mapping[str, str] = MappingProxyType(
    {
        "tpu": "of several slices: MEGASCALE_COORDINATOR_ADDRESS, MEGASCALE_NUM_SLICES, MEGASCALE_SLICE_ID",
        "neuron": "NEURON_PJRT_PROCESSES_NUM_DEVICES, NEURON_PJRT_PROCESS_INDEX",
    }
)
_LOST = ("gloo", "connection", "heartbeat", "coordination", "unavailable", "peer", "deadline", "socket", "nccl")


def open_devices(config: Config, world: World, team: Team) -> Sequence[Any]:
    """Return all devices of all processes.

    The platform is chosen before JAX searches for any, so that no other is initialized.

    Raises:
        DeviceError: The device is missing or in use.
        ConfigError: The device belongs to another engine.
        PeerError: The other processes do not join in time.
    """
    word = _word(config.device)
    if word == "cpu":
        # Size of the thread pool of JAX's CPU client, which reads this variable when it is created; there is no option.
        os.environ["NPROC"] = str(world.threads(config.threads))
        if world.size > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if word == "cuda":
        reserve_gpu_memory(os.environ)
    jax.config.update("jax_platforms", _PLATFORMS[word])
    if world.size > 1 and not jax.distributed.is_initialized():
        _join(config, world, team, word)
    try:
        devices: list[Any] = jax.devices()
    except RuntimeError as error:
        raise DeviceError(f"device={word}: {explain_refusal(_line(error))}") from error
    platform = devices[0].platform
    if _FOUND_AS.get(platform, platform) != word:
        raise DeviceError(f"device={word}: JAX uses {platform} in this process already: start a new one")
    check_processes(word, world, jax.process_count())
    return devices


def reserve_gpu_memory(environ: MutableMapping[str, str]) -> None:
    """Let JAX use the share of a GPU that the estimates count on, unless a variable sets another.

    Its default is 75 % (https://docs.jax.dev/en/latest/201/gpu-memory.html, reviewed 2026-07-10). JAX reads the
    variables when it creates the device, and refuses both (jaxlib 0.10.2, xla_client.py).
    """
    if not any(environ.get(name) for name in _MEMORY_SHARES):
        environ[_MEMORY_SHARES[0]] = f"{get_usable_share('cuda'):g}"


def explain_refusal(message: str) -> str:
    """Return JAX's message that a device is unavailable, with the next step.

    The messages about a TPU in use are libtpu's (jax issues 10192 and 22070); a process that died leaves the lock file.
    """
    reason = message.partition(" (set JAX_PLATFORMS")[0]
    for part, step in _STEPS.items():
        if part in reason:
            return f"JAX cannot use it: {reason}: {step}"
    return f"JAX cannot use it: {reason}"


def check_processes(word: str, world: World, seen: int) -> None:
    """Check that the devices belong to our ranks.

    Slices that do not find each other would train separately, each with the whole batch.

    Raises:
        DeviceError: JAX sees another number of processes.
    """
    if seen != world.size:
        names = _JOINED_BY.get(word)
        raise DeviceError(
            f"device={word}: JAX sees {seen} processes where the run has {world.size}: one must run on each host, with "
            "the environment that `orch` sets" + (f" ({names})" if names else "")
        )


def find_usable_memory(world: World) -> int | None:
    """Return the usable bytes of one of this process's devices; None when unknown."""
    devices: list[Any] = jax.local_devices()
    platform = str(devices[0].platform)
    kind = _FOUND_AS.get(platform, platform)
    if kind == "cuda":  # JAX reserves a share of the memory when it starts
        known: dict[str, int] = devices[0].memory_stats() or {}
        return known.get("bytes_limit")
    found = next((device for device in discover_devices() if device.kind == kind), None)
    sharers = world.local_size * len(devices) if kind == "cpu" else 1
    return None if found is None else find_usable_share(found, sharers)


def close_devices(world: World) -> None:
    """Disconnect from the other processes; each waits briefly for the others, so that no exit looks like a failure."""
    if world.size > 1 and jax.distributed.is_initialized():
        with translate_errors(world):
            jax.distributed.shutdown()


@contextmanager
def translate_errors(world: World) -> Generator[None]:
    """Translate JAX's errors into DeviceError and PeerError."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        text = _line(error)
        if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
            raise DeviceError(
                f"out of memory on the device: {text}; use remat=full, a larger accumulate, or more devices along "
                "mesh.fsdp"
            ) from error
        if world.size > 1 and any(word in text.lower() for word in _LOST):
            raise PeerError(f"lost another rank: {text}") from error
        raise DeviceError(f"the device failed: {text}") from error


def _word(name: DeviceName) -> str:
    """Resolve the setting `device`.

    Raises:
        DeviceError: The device does not exist; none is initialized to find out.
        ConfigError: The device belongs to torch.
    """
    if name == "xla":
        raise ConfigError("device=xla belongs to torch_xla: with engine=jax use device=tpu, neuron, cuda or cpu")
    kinds = list(dict.fromkeys(device.kind for device in discover_devices()))
    if name == "auto":
        return kinds[0]  # accelerators come first, the processor last
    if name not in kinds:
        raise DeviceError(f"device={name}: this machine has none; it has {', '.join(kinds)}")
    return name


def _join(config: Config, world: World, team: Team, word: str) -> None:
    several = word == "cuda" and world.local_size > 1
    # It would handle SIGTERM itself: before the loop installs its handler, a stop would do nothing (jax 0.10.2).
    jax.config.update("jax_enable_preemption_service", False)
    place = team.rendezvous_address()
    _bypass_proxies(place)
    try:
        jax.distributed.initialize(
            coordinator_address=place,
            num_processes=world.size,
            process_id=world.rank,
            # torchrun starts one process per GPU of a host: each uses its own.
            local_device_ids=[world.local_rank] if several else None,
            # The rank is known. Detection would query Google's metadata server, with a library that may be missing, or
            # give each process of a Slurm host one device.
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, int(config.dist.join_timeout)),
            heartbeat_timeout_seconds=int(min(100, max(10, config.dist.timeout / 10))),
            shutdown_timeout_seconds=_SHUTDOWN_S,
        )
    except RuntimeError as error:
        raise PeerError(f"the ranks' JAX processes could not connect: {_line(error)}") from error


def _bypass_proxies(address: str) -> None:
    """Exclude the address from gRPC's proxies.

    JAX's processes connect by gRPC, which uses the proxy in http_proxy even for neighbours (seen with jax 0.10.2: all
    processes end by SIGABRT after the timeout).
    """
    host = address.rpartition(":")[0].strip("[]")
    before = os.environ.get(_NO_PROXY) or os.environ.get("no_proxy", "")  # the first hides the second from gRPC
    os.environ[_NO_PROXY] = f"{before},{host}" if before else host
    jax.config.update("jax_check_proxy_envs", False)  # it would warn about what was just prevented


def _line(error: Exception) -> str:
    """Return the first line with text: JAX appends stacks and memory tables."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:400]
