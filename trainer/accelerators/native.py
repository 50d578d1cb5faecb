"""Devices that are part of torch: the processor, NVIDIA GPUs, TPUs by TorchTPU, Neuron cores by TorchNeuron.

They differ in one row of a table; standard torch, mostly torch.accelerator, does the rest.
"""

from __future__ import annotations

import os
import resource
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.accelerators import discovery, health, nvidia
from trainer.accelerators.base import Backend, Capabilities, Capability, Compiler, NativeName
from trainer.accelerators.device import Device
from trainer.accelerators.peaks import find_peak_flops
from trainer.accelerators.traits import TRAITS, DeviceTraits
from trainer.config import Config, DTypeName
from trainer.engine import TokenArray
from trainer.environment import World
from trainer.errors import DeviceError

# torch annotates these modules in part only, so no strict checker can follow them.
_accelerator: Any = torch.accelerator
_profiler: Any = torch.profiler
_cuda: Any = torch.cuda
_core: Any = vars(torch)["_C"]  # the settings of the allocator have no public name in 2.13

_AMPERE = (8, 0)  # compute capability from which GPUs multiply in bf16
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class TorchDevice:
    """The implementation of NativeAccelerator for all devices that are part of torch."""

    def __init__(self, name: NativeName, world: World) -> None:
        """Open the device of this rank.

        Raises:
            DeviceError: torch has no such device, or fewer than this host has ranks.
        """
        self._row = TRAITS[name]
        self._local_size = world.local_size
        self._described: Device | None = None
        self.name: NativeName = name
        self.backend: Backend = self._row.backend
        self.compiler: Compiler = self._row.compiler
        self.launch = self._row.launch
        self.device = torch.device("cpu") if name == "cpu" else _open(self._row, world)
        self.capabilities = _find_capabilities(self._row, self.device)
        # TPUs compute float32 products in bf16 by default (torch_tpu, precision).
        torch.set_float32_matmul_precision("highest")

    def autocast(self, dtype: DTypeName) -> AbstractContextManager[object]:
        if dtype == "fp32":
            return nullcontext()
        return torch.autocast(device_type=self.device.type, dtype=torch.bfloat16)

    def to_device(self, rows: TokenArray) -> Tensor:
        host = torch.as_tensor(rows.astype(np.int64))
        if self.name != "cuda":
            return host.to(self.device)
        return host.pin_memory().to(self.device, non_blocking=True)

    def synchronize(self) -> None:
        if self.name != "cpu":
            _accelerator.synchronize()

    def memory(self) -> int | None:
        if self.name == "cpu":
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
        try:
            return int(_accelerator.max_memory_allocated(self.device))
        except (RuntimeError, AttributeError, NotImplementedError):  # a device without torch's allocator
            return None

    def peak_flops(self, dtype: DTypeName) -> float | None:
        return find_peak_flops(self.describe(), dtype)

    def describe(self) -> Device:
        if self._described is None:
            self._described = self._find()
        return self._described

    def set_exactness(self, *, exact: bool, compiled: bool) -> None:
        if not exact and self.name != "cpu":
            if self.name == "cuda":
                # TF32: factors of 10 bits, sums in float32; seven times as fast on an H100.
                torch.set_float32_matmul_precision("high")
            return
        # cuBLAS reads this once, when its first handle is made (cuBLAS documentation, "Results reproducibility").
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # With warnings alone, attention on CUDA keeps its unrepeatable backward pass (PyTorch's attention_backward.cu).
        strict = self.name == "cuda"
        if compiled:
            torch.use_deterministic_algorithms(True, warn_only=not strict)
        else:  # the same, without loading the compiler, which takes a second of every start
            torch.set_deterministic_debug_mode("error" if strict else "warn")
        # Else every new tensor is filled first, which shows reads of unset memory: an aid for debugging torch.
        unchecked: Any = torch.utils.deterministic  # the switch is made at run time, so no checker knows it
        unchecked.fill_uninitialized_memory = False

    def seed(self, number: int) -> None:
        unchecked: Any = torch  # this function is annotated in part only
        unchecked.manual_seed(number)

    def snapshot(self) -> Mapping[str, Any]:
        found = self.describe()
        result: dict[str, Any] = {"device": str(self.device), "launch": self.launch, "peak_bytes": self.memory()}
        if self.name == "cuda":
            result["nvidia_smi"] = nvidia.query_health(found.uuid or found.bus or str(found.index))
            stats: Mapping[str, Any] = torch.cuda.memory_stats(self.device)
            result["allocator"] = {key: stats[key] for key in health.ALLOCATOR_COUNTERS if key in stats}
        if self.name == "neuron":
            result["neuron_driver"] = health.read_neuron_driver(found.index)
            result["neuron_monitor"] = health.read_neuron_monitor()
        if self.name == "cpu":
            result["load"] = health.read_load_average()
        return result

    def activities(self) -> Sequence[Any]:
        kinds: Any = _profiler.ProfilerActivity
        if self.name == "cpu":
            return [kinds.CPU]
        return [kinds.CPU, kinds.CUDA if self.name == "cuda" else kinds.PrivateUse1]

    def notes(self, config: Config | None = None) -> Sequence[str]:
        notes: list[str] = []
        idle = 0 if self.name == "cpu" else int(_accelerator.device_count()) - self._local_size
        if idle > 0:
            notes.append(f"{idle} {self.name} devices of this host are not used: {self.launch}")
        if config is None:
            return notes
        capability = torch.cuda.get_device_capability(self.device) if self.name == "cuda" else None
        if self.capabilities.flash and not self._row.supports_attention(config.seq_len, config.model.head_dim):
            notes.append(self.capabilities.flash.fallback)
        return [*notes, *self.capabilities.list_fallbacks(config), *_describe_slow_settings(config, capability)]

    def _find(self) -> Device:
        if self.name == "cpu":
            return discovery.discover_processor()
        found = self._discovered()
        if self.name != "cuda" or (found is not None and found.total_mem_mb is not None):
            return found or Device(
                kind=self.name,
                name=str(self.device),
                vendor="unknown",
                index=self.device.index or 0,
                total_mem_mb=None,
                available_mem_mb=None,
                topology=None,
            )
        # Without nvidia-smi, as in some containers: torch describes the device, which is open by now.
        about = _cuda.get_device_properties(self.device)
        known = found or Device(
            kind="cuda",
            name="",
            vendor="NVIDIA",
            index=self.device.index or 0,
            total_mem_mb=None,
            available_mem_mb=None,
            topology=None,
        )
        return replace(known, name=str(about.name), total_mem_mb=int(about.total_memory) >> 20)

    def _discovered(self) -> Device | None:
        """Return the device as the kernel's files and the vendor's tool show it; None when they do not."""
        found = [device for device in discovery.discover_devices() if device.kind == self.name]
        index = self.device.index or 0
        if self.name == "cuda":
            shown = nvidia.list_visible_indices(os.environ, [device.uuid for device in found])
            found = [found[position] for position in shown]
        by_device = [device for device in found for _ in range(device.devices)]
        return by_device[index] if index < len(by_device) else None


def _open(row: DeviceTraits, world: World) -> torch.device:
    """Return the device of this rank, made torch's current one."""
    if row.name == "cuda":
        # So that torch counts the devices as nvidia-smi and discovery do. Read when CUDA starts.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    if row.package and find_spec(row.package) and not any(d.kind == row.name for d in discovery.discover_devices()):
        # torch_tpu aborts the process when it opens a chip that does not exist.
        raise DeviceError(f"device={row.name}: its PCI bus shows none; {row.install_hint}, or use device=cpu")
    present: torch.device | None = _accelerator.current_accelerator(check_available=True)
    if present is None or present.type != row.name:
        raise DeviceError(
            f"device={row.name}: torch {torch.__version__} finds none; {row.install_hint}, or use device=cpu"
        )
    count: int = _accelerator.device_count()
    if world.local_size > count:
        raise DeviceError(f"device={row.name}: {world.local_size} ranks on this host, but only {count} devices")
    if row.name == "tpu" and world.size > 1 and find_spec("torch_tpu"):
        if not os.environ.get("TORCH_TPU_SLICEBUILDER_ADDRESSES"):
            raise DeviceError(f"device=tpu: TORCH_TPU_SLICEBUILDER_ADDRESSES is not set; {row.launch}")
        # A process is bound to one chip by its launcher; it cannot choose another.
        return torch.device(row.name, int(_accelerator.current_device_index()))
    device = torch.device(row.name, world.local_rank)
    try:
        if row.name != "neuron" or world.size == 1:
            # TorchNeuron gives a rank its core in init_process_group, by LOCAL_RANK; nothing may open one before.
            _accelerator.set_device_index(world.local_rank)
        if row.name == "cuda":
            _open_allocator(device)
    except RuntimeError as error:  # in use by another process alone, an uncorrected memory error, ...
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DeviceError(f"device={row.name}: {device} does not open: {why}; {row.install_hint}") from error
    return device


def _open_allocator(device: torch.device) -> None:
    """Allocate the first memory, which opens the device.

    It uses expandable segments, so that weights which are allocated and freed leave no gaps; virtual GPUs have none
    (PyTorch documentation, "Optimizing memory usage with PYTORCH_ALLOC_CONF", 2026).
    """
    set_allocator: Any = getattr(_core, "_accelerator_setAllocatorSettings", None)  # older torch has none
    if set_allocator is not None and not any(os.environ.get(name) for name in _ALLOCATOR):
        set_allocator("expandable_segments:True")
        try:
            torch.empty(1, device=device)
        except RuntimeError:
            set_allocator("expandable_segments:False")
    torch.empty(1, device=device)


def _describe_slow_settings(config: Config, capability: tuple[int, int] | None) -> list[str]:
    """Return what would be faster on a GPU, one sentence each.

    Args:
        config: Of the run.
        capability: Compute capability of the GPU; None for no GPU.
    """
    if capability is None:
        return []
    if capability < _AMPERE:
        return [] if config.products == "fp32" else ["this GPU does not multiply in bf16: dtype=fp32 is faster here"]
    slow: list[str] = []
    if config.products == "fp32":
        slow.append(f"dtype=fp32 multiplies in {'full precision' if config.exact else 'TF32'}: dtype=bf16 is faster")
    if config.exact:
        slow.append("exact=true takes only repeatable kernels: a run without it is faster")
    return slow


def _find_capabilities(row: DeviceTraits, device: torch.device) -> Capabilities:
    return Capabilities(
        flash=Capability(
            row.flash and (row.name != "cuda" or torch.cuda.get_device_capability(device) >= _AMPERE),
            f"attention on {row.name} goes through torch's plain products: its memory grows with seq_len squared",
        ),
        compile=Capability(_compiles(row), f"compile=true is left out: {row.compile_needs}"),
        fused=Capability(row.fused, f"AdamW on {row.name} is the plain one, not a fused kernel"),
    )


def _compiles(row: DeviceTraits, headers: Path | None = None) -> bool:
    """Return whether the compiler has what it needs; `headers` is the folder of Python's C headers."""
    if row.compiler != "inductor":
        return True
    cxx = bool(os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++"))
    # Both build small extensions of Python; Ubuntu's Python has no headers until python3-dev is installed.
    header = (headers or Path(sysconfig.get_path("include", "posix_prefix"))) / "Python.h"
    return cxx and header.is_file() and (row.name == "cpu" or find_spec("triton") is not None)
