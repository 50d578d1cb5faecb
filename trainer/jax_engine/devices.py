"""From the word of `device=` to JAX's devices, and the processes joined; what JAX raises, in our words."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from trainer.accelerators.discovery import discover
from trainer.config import Config, DeviceName
from trainer.environment import World
from trainer.errors import ConfigError, DeviceError, PeerError
from trainer.jax_engine.library import jax
from trainer.team import Team

_PLATFORMS: Mapping[str, str] = MappingProxyType({"cpu": "cpu", "cuda": "cuda", "tpu": "tpu", "neuron": "neuron"})
_FOUND_AS: Mapping[str, str] = MappingProxyType({"gpu": "cuda"})  # JAX's name of a platform -> ours
_SHUTDOWN_S = 20
_NO_PROXY = "no_grpc_proxy"  # gRPC reads it in small letters only
# A sign in the words -> what to do next.
_STEPS: Mapping[str, str] = MappingProxyType(
    {
        "already in use": "end that process, or wait for its end (sudo fuser -v /dev/accel* /dev/vfio/*)",
        "lockfile": "when no process uses the chips (sudo fuser -v /dev/accel* /dev/vfio/*), remove that file",
    }
)
# What the plug-ins join processes by: jax/_src/clusters/cloud_tpu_cluster.py; AWS Neuron documentation, JAX.
_JOINED_BY: Mapping[str, str] = MappingProxyType(
    {
        "tpu": "of several slices: MEGASCALE_COORDINATOR_ADDRESS, MEGASCALE_NUM_SLICES, MEGASCALE_SLICE_ID",
        "neuron": "NEURON_PJRT_PROCESSES_NUM_DEVICES, NEURON_PJRT_PROCESS_INDEX",
    }
)
_GONE = ("gloo", "connection", "heartbeat", "coordination", "unavailable", "peer", "deadline", "socket", "nccl")


def open_devices(config: Config, world: World, team: Team) -> Sequence[Any]:
    """All devices of all processes. Raises DeviceError, ConfigError, PeerError.

    The platform is chosen before JAX looks for any, so that no other is touched.
    """
    word = _word(config.device)
    if word == "cpu":
        # Size of the thread pool of JAX's processor client, which reads it when it is made; it has no option for it.
        os.environ["NPROC"] = str(world.threads(config.threads))
        if world.size > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_platforms", _PLATFORMS[word])
    if world.size > 1 and not jax.distributed.is_initialized():
        _join(config, world, team, word)
    try:
        devices: list[Any] = jax.devices()
    except RuntimeError as error:
        raise DeviceError(f"device={word}: {refusal(_line(error))}") from error
    platform = devices[0].platform
    if _FOUND_AS.get(platform, platform) != word:
        raise DeviceError(f"device={word}: JAX uses {platform} in this process already: start a new one")
    check_processes(word, world, jax.process_count())
    return devices


def refusal(words: str) -> str:
    """What JAX says when it cannot have the devices, with what to do. The words of a TPU that is in use are libtpu's
    (jax issues 10192 and 22070); one that died leaves the lock behind."""
    said = words.partition(" (set JAX_PLATFORMS")[0]
    for sign, step in _STEPS.items():
        if sign in said:
            return f"JAX cannot use it: {said}: {step}"
    return f"JAX cannot use it: {said}"


def check_processes(word: str, world: World, seen: int) -> None:
    """Raises DeviceError when the devices do not belong to our ranks: slices that did not find each other would train
    one by one, each with the whole batch."""
    if seen != world.size:
        names = _JOINED_BY.get(word)
        raise DeviceError(
            f"device={word}: JAX sees {seen} processes where the run has {world.size}: one must run on each host, with "
            "the environment that `orch` sets" + (f" ({names})" if names else "")
        )


def close_devices(world: World) -> None:
    """Leave the other processes. Each waits a while for the others, so that none takes another's end for a fault."""
    if world.size > 1 and jax.distributed.is_initialized():
        with translated(world):
            jax.distributed.shutdown()


@contextmanager
def translated(world: World) -> Generator[None]:
    """Raises DeviceError or PeerError for what JAX raises inside."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        text = _line(error)
        if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
            raise DeviceError(
                f"out of memory on the device: {text}; use remat=true, a larger accumulate, or more devices along "
                "mesh.fsdp"
            ) from error
        if world.size > 1 and any(word in text.lower() for word in _GONE):
            raise PeerError(f"lost another rank: {text}") from error
        raise DeviceError(f"the device failed: {text}") from error


def _word(name: DeviceName) -> str:
    """Raises DeviceError for a device that is not there, without touching any; ConfigError for torch's own."""
    if name == "xla":
        raise ConfigError("device=xla is torch_xla's: with engine=jax say device=tpu, neuron, cuda or cpu")
    kinds = list(dict.fromkeys(device.kind for device in discover()))
    if name == "auto":
        return kinds[0]  # accelerators come first, the processor last
    if name not in kinds:
        raise DeviceError(f"device={name}: this machine has none; it has {', '.join(kinds)}")
    return name


def _join(config: Config, world: World, team: Team, word: str) -> None:
    several = word == "cuda" and world.local_size > 1
    # It would take SIGTERM for itself: until the loop has its own handler, a stop would do nothing (jax 0.10.2).
    jax.config.update("jax_enable_preemption_service", False)
    place = team.meeting_place()
    _pass_proxies_by(place)
    try:
        jax.distributed.initialize(
            coordinator_address=place,
            num_processes=world.size,
            process_id=world.rank,
            # torchrun starts a process for each GPU of a host: each takes its own.
            local_device_ids=[world.local_rank] if several else None,
            # We know our place: no look for a cluster's own, which would ask Google's metadata server, with a library
            # that need not be there, or give each process of a Slurm host one device.
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, int(config.dist.join_timeout)),
            heartbeat_timeout_seconds=int(min(100, max(10, config.dist.timeout / 10))),
            shutdown_timeout_seconds=_SHUTDOWN_S,
        )
    except RuntimeError as error:
        raise PeerError(f"the ranks' JAX processes did not meet: {_line(error)}") from error


def _pass_proxies_by(address: str) -> None:
    """JAX's processes meet by gRPC, which goes through the proxy that http_proxy names, also to a neighbour (seen with
    jax 0.10.2: all end by SIGABRT when they have waited long enough)."""
    host = address.rpartition(":")[0].strip("[]")
    before = os.environ.get(_NO_PROXY) or os.environ.get("no_proxy", "")  # the first hides the second from gRPC
    os.environ[_NO_PROXY] = f"{before},{host}" if before else host
    jax.config.update("jax_check_proxy_envs", False)  # it would warn of what was just prevented


def _line(error: Exception) -> str:
    """The first line that says something: JAX appends stacks and memory tables."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:400]
