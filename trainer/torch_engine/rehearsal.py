"""One step of one device of a large mesh, built in this one process: pretended processes, tensors without values.

The model, its division, the step and the optimizer are those of the engine; only the memory and the network are not
there. So shapes, divisibility, memory and collectives come out as they would be, in seconds and without a device.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainer.accelerators.base import Backend, Compiler, Flag, Flags, NativeName
from trainer.accelerators.device import Device
from trainer.config import Config, DTypeName
from trainer.engine import TokenArray
from trainer.shape.mesh import Mesh, check_batch
from trainer.torch_engine.accounting import Account, Collective
from trainer.torch_engine.build import Build, assemble, divided
from trainer.torch_engine.untyped import dist


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One device's share of a step. Bytes; peak: most at once, all of the others included.

    gradients: those that are kept until the optimizer's turn. shapes: what the device has of each parameter.
    """

    rank: int
    weights: int
    gradients: int
    optimizer: int
    averages: int
    peak: int
    collectives: tuple[Collective, ...]
    shapes: Mapping[str, tuple[int, ...]]


def rehearse(config: Config, mesh: Mesh, rank: int = 0) -> Rehearsed:
    """rank: the device's place on the mesh. Raises ConfigError when the batch does not divide.

    No process group may exist in this process; none is left behind.
    """
    check_batch(config, mesh)
    accelerator = Pretended()
    with _pretended_processes(mesh.devices, rank):
        parts = divided(config, accelerator, mesh)
        with FakeTensorMode(allow_non_fake_inputs=True), Account() as account:
            build = assemble(config, accelerator, mesh, parts, rank)
            rows = torch.zeros((config.batch // mesh.shards, config.seq_len + 1), dtype=torch.int64)
            build.step(rows, config.optim.lr, False, 0)
    return _summary(rank, build, account)


def _summary(rank: int, build: Build, account: Account) -> Rehearsed:
    weights = _bytes(slot.weight for slot in build.slots)
    return Rehearsed(
        rank=rank,
        weights=weights,
        gradients=weights,
        optimizer=_bytes(moment.values for moment in build.optimizer.moments()),
        averages=_bytes(moment.values for moment in build.averages.moments()) if build.averages else 0,
        peak=account.peak,
        collectives=account.collectives(),
        shapes={slot.parameter.name: slot.box.extent for slot in build.slots},
    )


class Pretended:
    """An accelerator whose tensors have no values; see trainer.accelerators.base.NativeAccelerator."""

    name: NativeName = "cpu"
    backend: Backend = "gloo"
    compiler: Compiler = "inductor"
    launch = ""
    device = torch.device("cpu")
    flags = Flags(
        fp16=Flag(False, "bf16"), flash=Flag(True, ""), compile=Flag(False, "uncompiled"), fused=Flag(True, "")
    )

    def autocast(self, dtype: DTypeName) -> AbstractContextManager[object]:
        return nullcontext() if dtype == "fp32" else torch.autocast("cpu", dtype=torch.bfloat16)

    def to_device(self, rows: TokenArray) -> Tensor:
        return torch.zeros(rows.shape, dtype=torch.int64)

    def synchronize(self) -> None:
        pass

    def memory(self) -> int | None:
        return None

    def peak_flops(self, dtype: DTypeName) -> float | None:
        return None

    def describe(self) -> Device:
        return Device("cpu", "pretended", "", 0, None, None, None)

    def set_deterministic(self, *, compiled: bool) -> None:
        pass

    def seed(self, number: int) -> None:
        pass

    def snapshot(self) -> Mapping[str, Any]:
        return {}

    def activities(self) -> Sequence[Any]:
        return ()

    def notes(self, config: Config | None = None) -> Sequence[str]:
        return ()


@contextmanager
def _pretended_processes(count: int, rank: int) -> Generator[None]:
    """A default process group whose collectives do nothing."""
    if count == 1:
        yield
        return
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
