"""The process group that adds up gradients: how ranks meet in it, what its failures mean, how to leave."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

import torch

from trainer.config import DistConfig
from trainer.environment import World, split_address
from trainer.errors import DeviceError, PeerError, TrainerError
from trainer.team import Team
from trainer.torch_engine.untyped import dist

# What the collectives of gloo, NCCL and torch say when another process is gone or late.
_LOST = re.compile(
    r"\bgloo\b|nccl|connection (closed|reset|refused)|(by|remote) peer|timed? ?out|broken pipe|\bsocket\b|"
    r"(?<!vector )\b(tcp)?store\b(?! vector)|process ?group|\bcollective\b",
    re.IGNORECASE,
)


def join(device: torch.device, backend: str, team: Team, config: DistConfig) -> None:
    """Make the default process group of all ranks. Raises PeerError when the others do not come in time."""
    world = team.world
    place = team.meeting_place()
    _prefer_loopback(place)
    kinds = backend if device.type == "cpu" else f"cpu:gloo,{device.type}:{backend}"
    host, port = split_address("the engine's meeting place", place)
    limit = timedelta(seconds=config.join_timeout)
    try:
        store = dist.TCPStore(host, port, world_size=world.size, is_master=world.is_first, timeout=limit)
        dist.init_process_group(
            kinds, store=store, rank=world.rank, world_size=world.size, timeout=timedelta(seconds=config.timeout)
        )
    except (RuntimeError, ValueError) as error:
        raise PeerError(
            f"rank {world.rank} of {world.size} could not meet the others at {place} "
            f"within {config.join_timeout:g} s: {first_line(error)}"
        ) from error


def leave(status: int) -> None:
    """End the process now, without the destructors of the process groups.

    gloo's destructor aborts one run in ten at exit (seen with torch 2.13, November 2026), which would turn a
    good run into a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def translated(world: World, limit: float) -> Generator[None]:
    """Turn torch's errors into ours: a lost or late rank, a device without memory or gone. limit: dist.timeout."""
    try:
        yield
    except TrainerError:
        raise
    except torch.OutOfMemoryError as error:
        raise DeviceError(
            f"rank {world.rank}: the device is out of memory: {first_line(error)}; "
            "use remat=true, a larger accumulate, or more devices in mesh.fsdp"
        ) from error
    except RuntimeError as error:
        if isinstance(error, torch.AcceleratorError):
            raise DeviceError(f"rank {world.rank}: the device failed: {first_line(error)}") from error
        if world.size > 1 and (isinstance(error, dist.DistError) or _LOST.search(str(error))):
            raise PeerError(
                f"rank {world.rank} lost another rank while waiting for gradients "
                f"(limit {limit:g} s): {first_line(error)}"
            ) from error
        raise


def first_line(error: BaseException) -> str:
    """The cause alone: gloo puts a source position before it and advice behind it."""
    text = str(error).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    return re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", line).partition(". This is typically")[0]


def _prefer_loopback(place: str) -> None:
    # gloo else takes the address of the host's name, which local hosts do not share.
    if place.startswith("127.") and sys.platform.startswith("linux"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
