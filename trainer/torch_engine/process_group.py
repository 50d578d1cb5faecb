"""The process group that sums gradients: how ranks join it, the meaning of its errors, how to exit."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch

from trainer.config import DistConfig
from trainer.environment import World, split_address
from trainer.errors import DeviceError, PeerError, TrainerError
from trainer.team import Team
from trainer.torch_engine.flight_recorder import enable_flight_recorder
from trainer.torch_engine.untyped import dist

# Error texts of the collectives of gloo, NCCL and torch when another process is lost or late.
_LOST = re.compile(
    r"\bgloo\b|nccl|connection (closed|reset|refused)|(by|remote) peer|timed? ?out|broken pipe|\bsocket\b|"
    r"(?<!vector )\b(tcp)?store\b(?! vector)|process ?group|\bcollective\b",
    re.IGNORECASE,
)
# Error texts of CUDA and its libraries when the device, not another rank, is the cause. Only the text identifies the
# error: most of them are plain RuntimeErrors, and NCCL's have the class of lost ranks.
_FULL = re.compile(r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|can't allocate memory", re.IGNORECASE)
_BROKEN = re.compile(
    r"\bCUDA (driver )?error\b|\bcuda failure\b|unhandled cuda error|Triton Error \[CUDA\]|CUBLAS_STATUS|CUDNN_STATUS|"
    r"duplicate gpu",
    re.IGNORECASE,
)
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
_UNREPEATABLE = "torch.use_deterministic_algorithms"


def join_process_group(device: torch.device, backend: str, team: Team, config: DistConfig) -> None:
    """Create the default process group of all ranks.

    Raises:
        PeerError: The other ranks do not join in time.
    """
    world = team.world
    place = team.rendezvous_address()
    _choose_interface(place)
    if backend == "nccl":
        enable_flight_recorder(os.environ)
    # gloo beside NCCL would only add its own address lookup, which fails where a host's name resolves to itself.
    kinds = backend if device.type in ("cpu", "cuda") else f"cpu:gloo,{device.type}:{backend}"
    host, port = split_address("the engine's meeting place", place)
    limit = timedelta(seconds=config.join_timeout)
    try:
        store = dist.TCPStore(host, port, world_size=world.size, is_master=world.is_first, timeout=limit)
        dist.init_process_group(
            kinds, store=store, rank=world.rank, world_size=world.size, timeout=timedelta(seconds=config.timeout)
        )
    except (RuntimeError, ValueError) as error:
        raise PeerError(
            f"rank {world.rank} of {world.size} could not join the others at {place} "
            f"within {config.join_timeout:g} s: {extract_cause(error)}"
        ) from error


def exit_process(status: int) -> None:
    """End the process now, without the destructors of the process groups.

    gloo's destructor aborts one run in ten at exit (seen with torch 2.13, November 2026), which would turn a successful
    run into a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def translate_errors(world: World, limit: float) -> Generator[None]:
    """Translate torch's errors into the trainer's: a lost or late rank, a device that failed or has no memory.

    Args:
        world: The ranks.
        limit: The setting dist.timeout in seconds.
    """
    try:
        yield
    except TrainerError:
        raise
    except RuntimeError as error:
        found = _translation(error, world, limit)
        if found is None:
            raise
        raise found from error


def _translation(error: RuntimeError, world: World, limit: float) -> TrainerError | None:
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError) or _FULL.search(text):
        return DeviceError(
            f"rank {world.rank}: the device is out of memory: {extract_cause(error)}; "
            "use remat=full, a larger accumulate, or more devices in mesh.fsdp"
        )
    if _UNREPEATABLE in text:
        return DeviceError(
            f"rank {world.rank}: an operation is not deterministic on this device: {extract_cause(error)}; "
            "use exact=false"
        )
    if isinstance(error, torch.AcceleratorError) or _BROKEN.search(text):
        return DeviceError(f"rank {world.rank}: the device failed: {extract_cause(error)}")
    if world.size > 1 and (isinstance(error, dist.DistError) or _LOST.search(text)):
        return PeerError(
            f"rank {world.rank} lost another rank while waiting for gradients (limit {limit:g} s): "
            f"{extract_cause(error)}"
        )
    return None


def extract_cause(error: BaseException) -> str:
    """Return only the cause: gloo adds a source position before it and advice after it, NCCL states it last."""
    text = str(error).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    last = text.partition("Last error:")[2].strip().splitlines()
    line = re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", line).partition(". This is typically")[0]
    return f"{line} ({last[0].strip()})" if last else line


def _choose_interface(place: str) -> None:
    # By default gloo uses the address of the host's name: simulated hosts on one machine do not share it, and on many
    # machines (Debian's 127.0.1.1) it is a loopback address, which no other host reaches.
    if "GLOO_SOCKET_IFNAME" not in os.environ and sys.platform.startswith("linux"):
        name = (
            "lo" if place.startswith("127.") else find_interface_to(*split_address("the engine's meeting place", place))
        )
        if name:
            os.environ["GLOO_SOCKET_IFNAME"] = name


def find_interface_to(host: str, port: int) -> str:
    """Return the interface by which this machine reaches an IPv4 address, or "" if unknown; sends nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            mine = socket.inet_aton(probe.getsockname()[0])
            for _, name in socket.if_nameindex():
                with suppress(OSError):  # the interface has no IPv4 address
                    if fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()))[20:24] == mine:
                        return name
    except OSError:
        pass
    return ""
