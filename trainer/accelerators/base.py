"""The interface between the torch engine and a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from trainer.accelerators.device import Device
from trainer.config import Config, DTypeName

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainer.engine import TokenArray  # numpy: `python -m trainer devices` works without it

NativeName: TypeAlias = Literal["cpu", "cuda", "tpu", "neuron"]
Backend: TypeAlias = Literal["gloo", "nccl", "tpu_dist", "neuron"]
Compiler: TypeAlias = Literal["inductor", "tpu", "neuron"]


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether a device supports something.

    Attributes:
        fallback: One sentence: what is used instead.
    """

    supported: bool
    fallback: str

    def __bool__(self) -> bool:
        return self.supported


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a device supports.

    Attributes:
        flash: Attention without the matrix of scores.
        compile: torch.compile.
        fused: A fused AdamW.
    """

    flash: Capability
    compile: Capability
    fused: Capability

    def list_fallbacks(self, config: Config) -> list[str]:
        """Return the fallbacks that a run with this config takes, one sentence each."""
        requested = (
            (True, self.flash),
            (config.compiled, self.compile),
            (config.optim.kind != "adafactor", self.fused),
        )
        return [capability.fallback for used, capability in requested if used and not capability]

    def as_json(self) -> dict[str, bool]:
        return {"flash": bool(self.flash), "compile": bool(self.compile), "fused": bool(self.fused)}


class NativeAccelerator(Protocol):
    """One device of this process that torch computes on directly.

    The functions that open one raise DeviceError.
    """

    @property
    def name(self) -> NativeName:
        """The word of `device=`; also torch's name of the device's type."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def backend(self) -> Backend:
        """The backend of process groups whose tensors are on the device."""
        ...

    @property
    def compiler(self) -> Compiler:
        """The backend of torch.compile."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def launch(self) -> str:
        """How one host's ranks are started, for people."""
        ...

    def autocast(self, dtype: DTypeName) -> AbstractContextManager[object]:
        """Compute matrix products in bf16 for bf16; change nothing for fp32."""
        ...

    def to_device(self, rows: TokenArray) -> Tensor:
        """Copy rows to the device as int64, same shape; may return before the copy is done."""
        ...

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""
        ...

    def memory(self) -> int | None:
        """Return the peak bytes in use so far; None when the device does not report it."""
        ...

    def peak_flops(self, dtype: DTypeName) -> float | None:
        """Return the published peak of this device, or None when our table lacks it."""
        ...

    def describe(self) -> Device: ...

    def set_exactness(self, *, exact: bool, compiled: bool) -> None:
        """Choose between operations that repeat bit for bit and fast ones; a processor repeats always.

        Args:
            exact: Also compute float32 products in full precision where a device would take fewer bits.
            compiled: Whether torch's compiler will be loaded.
        """
        ...

    def seed(self, number: int) -> None:
        """Seed all random generators of torch."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """Return the device's current state, JSON-able: torch's memory figures, nvidia-smi's or the Neuron driver's."""
        ...

    def activities(self) -> Sequence[Any]:
        """Return the torch.profiler.ProfilerActivity members that record this device's work."""
        ...

    def notes(self, config: Config | None = None) -> Sequence[str]:
        """Return what the user should know, one line each: idle devices, and the fallbacks that this config takes."""
        ...
