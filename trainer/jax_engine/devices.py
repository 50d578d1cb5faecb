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
        raise DeviceError(f"device={word}: JAX cannot use it: {_line(error)}") from error
    platform = devices[0].platform
    if _FOUND_AS.get(platform, platform) != word:
        raise DeviceError(f"device={word}: JAX uses {platform} in this process already: start a new one")
    return devices


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
    try:
        jax.distributed.initialize(
            coordinator_address=team.meeting_place(),
            num_processes=world.size,
            process_id=world.rank,
            # torchrun starts a process for each GPU of a host: each takes its own.
            local_device_ids=[world.local_rank] if several else None,
            initialization_timeout=max(1, int(config.dist.join_timeout)),
            heartbeat_timeout_seconds=int(min(100, max(10, config.dist.timeout / 10))),
            shutdown_timeout_seconds=_SHUTDOWN_S,
        )
    except RuntimeError as error:
        raise PeerError(f"the ranks' JAX processes did not meet: {_line(error)}") from error


def _line(error: Exception) -> str:
    """The first line that says something: JAX appends stacks and memory tables."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:400]
