"""Rehearsal of one device's step of a large mesh in one process, with fake processes and tensors without values.

The model, its sharding, the step and the optimizer are the engine's; only memory and network are missing. So shapes,
divisibility, memory and collectives are as in a real run, in seconds and without a device.
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

from trainer.accelerators.base import Backend, Capabilities, Capability, Compiler, NativeName
from trainer.accelerators.device import Device
from trainer.config import Config, DTypeName
from trainer.engine import TokenArray
from trainer.shape.mesh import Mesh, check_batch
from trainer.torch_engine.accounting import Collective, ResourceAccount
from trainer.torch_engine.build import BuiltModel, assemble_model, build_sharded_model
from trainer.torch_engine.untyped import dist


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedStep:
    """One device's share of a step; sizes are in bytes.

    Attributes:
        rank: The device's index on the mesh.
        weights: Size of the weights.
        gradients: Size of the gradients kept until the optimizer runs.
        optimizer: Size of the moments.
        averages: Size of the averaged weights.
        peak: Most bytes at the same time, all of the others included.
        collectives: Of the step.
        shapes: Local shape of each parameter.
    """

    rank: int
    weights: int
    gradients: int
    optimizer: int
    averages: int
    peak: int
    collectives: tuple[Collective, ...]
    shapes: Mapping[str, tuple[int, ...]]


def rehearse_step(config: Config, mesh: Mesh, rank: int = 0) -> RehearsedStep:
    """Rehearse the step of a device.

    No process group may exist in this process; none is left behind.

    Args:
        config: The settings.
        mesh: The mesh.
        rank: The device's index on the mesh.

    Raises:
        ConfigError: The batch does not divide.
    """
    check_batch(config, mesh)
    accelerator = FakeAccelerator()
    with _fake_processes(mesh.devices, rank):
        parts = build_sharded_model(config, accelerator, mesh)
        with FakeTensorMode(allow_non_fake_inputs=True), ResourceAccount() as account:
            build = assemble_model(config, accelerator, mesh, parts, rank)
            if build.pipeline is not None:
                build.pipeline.skip_negotiation()
            rows = torch.zeros((config.batch // mesh.shards, config.seq_len + 1), dtype=torch.int64)
            build.step(rows, config.optim.lr, False, 0)
    return _summary(rank, build, account)


def _summary(rank: int, build: BuiltModel, account: ResourceAccount) -> RehearsedStep:
    weights = _bytes(slot.weight for slot in build.slots)
    return RehearsedStep(
        rank=rank,
        weights=weights,
        gradients=_bytes(slot.weight for slot in build.slots if not slot.parameter.frozen),
        optimizer=_bytes(moment.values for moment in build.optimizer.moments()),
        averages=_bytes(moment.values for moment in build.averages.moments()) if build.averages else 0,
        peak=account.peak,
        collectives=account.collectives(),
        shapes={slot.parameter.name: slot.box.extent for slot in build.slots},
    )


class FakeAccelerator:
    """An accelerator whose tensors have no values; implements trainer.accelerators.base.NativeAccelerator."""

    name: NativeName = "cpu"
    backend: Backend = "gloo"
    compiler: Compiler = "inductor"
    launch = ""
    device = torch.device("cpu")
    capabilities = Capabilities(
        flash=Capability(True, ""),
        compile=Capability(False, "uncompiled"),
        fused=Capability(True, ""),
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
        return Device(
            kind="cpu", name="fake", vendor="", index=0, total_mem_mb=None, available_mem_mb=None, topology=None
        )

    def set_exactness(self, *, exact: bool, compiled: bool) -> None:
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
def _fake_processes(count: int, rank: int) -> Generator[None]:
    """Provide a default process group whose collectives do nothing."""
    if count == 1:
        yield
        return
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
    try:
        yield
    finally:
        dist.destroy_process_group()
        _forget_meshes()


def _forget_meshes() -> None:
    """Clear DTensor's cache, which takes the meshes of two ranks as equal although their groups have other names."""
    import torch.distributed.tensor.debug as unchecked  # importing takes a second

    debug: Any = unchecked
    debug._clear_sharding_prop_cache()


def _bytes(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
