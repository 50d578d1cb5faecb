"""What the torch engine needs of a device."""

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
class Flag:
    """Whether a device can do something; otherwise: one sentence, what is done instead."""

    there: bool
    otherwise: str

    def __bool__(self) -> bool:
        return self.there


@dataclass(frozen=True, slots=True)
class Flags:
    """fp16: arithmetic in it. flash: attention without the matrix of scores. compile: torch.compile. fused: AdamW."""

    fp16: Flag
    flash: Flag
    compile: Flag
    fused: Flag

    def taken(self, config: Config) -> list[str]:
        """The fallbacks that a run with this config takes, one sentence each."""
        wanted = (
            (config.dtype == "fp16", self.fp16),
            (True, self.flash),
            (config.compile, self.compile),
            (config.optim.kind == "adamw", self.fused),
        )
        return [flag.otherwise for asked, flag in wanted if asked and not flag]

    def as_json(self) -> dict[str, bool]:
        return {"fp16": bool(self.fp16), "flash": bool(self.flash), "compile": bool(self.compile)} | {
            "fused": bool(self.fused)
        }


class NativeAccelerator(Protocol):
    """One device of this process that torch computes on directly. The functions that make one raise DeviceError."""

    @property
    def name(self) -> NativeName:
        """The word of `device=`; also torch's name of the device's type."""
        ...

    @property
    def device(self) -> torch.device: ...

    @property
    def backend(self) -> Backend:
        """Of process groups whose tensors lie on the device."""
        ...

    @property
    def compiler(self) -> Compiler:
        """The backend of torch.compile."""
        ...

    @property
    def flags(self) -> Flags: ...

    @property
    def launch(self) -> str:
        """How one host's ranks are started, for people."""
        ...

    def autocast(self, dtype: DTypeName) -> AbstractContextManager[object]:
        """Matrix products in bf16 for bf16 and fp16, nothing for fp32."""
        ...

    def to_device(self, rows: TokenArray) -> Tensor:
        """int64, same shape. May return before the copy is done."""
        ...

    def synchronize(self) -> None:
        """Wait until everything asked for is done."""
        ...

    def memory(self) -> int | None:
        """Most bytes in use at once so far; None when the device does not say."""
        ...

    def peak_flops(self, dtype: DTypeName) -> float | None:
        """Published peak of this device, or None when it is not in our table."""
        ...

    def describe(self) -> Device: ...

    def set_deterministic(self, *, compiled: bool) -> None: ...

    def seed(self, number: int) -> None:
        """Of all random generators of torch."""
        ...

    def snapshot(self) -> Mapping[str, Any]:
        """How the device does now, JSON-able: torch's memory figures, nvidia-smi's or the Neuron driver's numbers."""
        ...

    def activities(self) -> Sequence[Any]:
        """torch.profiler.ProfilerActivity members that see this device's work."""
        ...

    def notes(self, config: Config | None = None) -> Sequence[str]:
        """What the user should know: idle devices, and the fallbacks that this config takes. One line each."""
        ...
