"""The ranks of a run as one team: how they meet, agree and leave.

Two kinds of traffic never share a process group: gradients, and everything else (which checkpoint to take,
whose part is written). Mixed on one gloo group from two threads they would be matched wrongly.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeVar, cast

import torch
import torch.distributed
from torch import Tensor

from trainer.config import DistConfig
from trainer.environment import World, split_address
from trainer.errors import PeerError

T = TypeVar("T")
dist: Any = torch.distributed  # torch's own annotations of this module are partial, so it cannot be checked
Backend = Literal["gloo", "nccl", "neuron"]


def join(world: World, backend: Backend, config: DistConfig) -> Team:
    """Meet the other ranks. Raises PeerError, naming the coordinator, when they do not come in time."""
    if world.size == 1:
        return Team(world, None, config.timeout)
    _prefer_loopback(world)
    both = "gloo" if backend == "gloo" else f"cpu:gloo,{'cuda' if backend == 'nccl' else backend}:{backend}"
    try:
        dist.init_process_group(
            both,
            store=_meeting_place(world, config.join_timeout),
            rank=world.rank,
            world_size=world.size,
            timeout=timedelta(seconds=config.timeout),
        )
        control = dist.new_group(backend="gloo", timeout=timedelta(seconds=config.timeout))
    except (RuntimeError, ValueError) as error:
        raise PeerError(
            f"rank {world.rank} of {world.size} could not meet the others at {world.coordinator} "
            f"within {config.join_timeout:g} s: {_first_line(error)}"
        ) from error
    return Team(world, control, config.timeout)


class Team:
    """All ranks; a team of one needs no process group. Calls must come in the same order on every rank."""

    def __init__(self, world: World, group: object | None, timeout: float) -> None:
        self.world = world
        self._group = group
        self._timeout = timeout

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in rank order. Values are pickled: keep them small. Raises PeerError."""
        if self._group is None:
            return [value]
        values: list[Any] = [None] * self.world.size
        with self.waiting("an agreement"):
            dist.all_gather_object(values, value, group=self._group)
        return values

    def start_sum(self, tensor: Tensor) -> Pending | None:
        """Begin to add up `tensor` over all ranks, in place. None when alone."""
        if self._group is None:
            return None
        with self.waiting("gradients"):
            work: Pending | None = dist.all_reduce(tensor, async_op=True)
        return work

    def side_channel(self, timeout: float) -> Team:
        """The same ranks with a group of their own, for one background thread. timeout: seconds."""
        if self._group is None:
            return self
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        return Team(self.world, group, timeout)

    @contextmanager
    def waiting(self, what: str) -> Generator[None]:
        """Translate a failed collective: a rank that left, or one that does not answer in time."""
        try:
            yield
        except RuntimeError as error:
            raise PeerError(
                f"rank {self.world.rank} lost another rank while waiting for {what} "
                f"(limit {self._timeout:g} s): {_first_line(error)}"
            ) from error


class Pending(Protocol):
    """A collective under way."""

    def wait(self) -> Any: ...


def leave(status: int) -> None:
    """End the process now, without the destructors of the process groups.

    gloo's destructor aborts one run in ten at exit (seen with torch 2.13, November 2026), which would turn a
    good run into a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _meeting_place(world: World, timeout: float) -> object:
    if world.launcher == "torchrun":
        # Its agent may keep the store already; torch knows from the environment.
        limit = timedelta(seconds=timeout)
        store, _, _ = next(dist.rendezvous("env://", world.rank, world.size, timeout=limit))
        return cast("object", store)
    host, port = split_address("ORCH_COORDINATOR", world.coordinator)
    return dist.TCPStore(
        host,
        port,
        world_size=world.size,
        is_master=world.is_first,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=True,
    )


def _prefer_loopback(world: World) -> None:
    # gloo else takes the address of the host's name, which local hosts do not share.
    host, _ = split_address("coordinator", world.coordinator)
    if host.startswith("127.") and sys.platform.startswith("linux"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _first_line(error: BaseException) -> str:
    """The cause alone: gloo puts a source position before it and advice behind it."""
    text = str(error).strip()
    line = text.splitlines()[0] if text else type(error).__name__
    return re.sub(r"^\[[^\]]*\.cc:\d+\] ", "", line).partition(". This is typically")[0]


def set_threads(count: int) -> None:
    """Processor threads of this process for torch."""
    torch.set_num_threads(count)
