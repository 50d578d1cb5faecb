"""The differences between the native devices, one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.accelerators.base import Backend, Compiler, NativeName

_TORCHRUN = "start one rank for each with `torchrun --nproc-per-node N -m trainer ...`"


def _any(seq_len: int, head_dim: int) -> bool:
    return True


def _on_tpu(seq_len: int, head_dim: int) -> bool:
    """Return what torch_tpu's own kernel accepts, by its error message (0.2.0, November 2026)."""
    return head_dim < 128 or head_dim % 128 == 0


def _on_neuron(seq_len: int, head_dim: int) -> bool:
    """Return what torch-neuronx's _can_use_nki_flash_attention accepts, by public benchmarks (October 2026)."""
    return seq_len % 512 == 0 and head_dim <= 128


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTraits:
    """The properties of one kind of native device.

    Attributes:
        name: The word of `device=`.
        backend: Of process groups.
        compiler: Of torch.compile.
        flash: torch's attention has a kernel without the matrix of scores.
        fused: AdamW has a fused kernel.
        install_hint: What to do when there is no such device.
        launch: How a host's ranks are started.
        compile_needs: What torch.compile needs.
        package: The plug-in that adds the device to torch, if it must not be loaded without hardware.
        supports_attention: Whether the attention kernel takes this seq_len and head_dim.
    """

    name: NativeName
    backend: Backend
    compiler: Compiler
    flash: bool
    fused: bool
    install_hint: str
    launch: str
    compile_needs: str
    package: str = ""
    supports_attention: Callable[[int, int], bool] = _any


_CPU = DeviceTraits(
    name="cpu",
    backend="gloo",
    compiler="inductor",
    flash=True,
    fused=True,
    install_hint="",
    launch="one rank on each host, or more with `torchrun --nproc-per-node N -m trainer ...`",
    compile_needs="it needs a C++ compiler, g++ or clang++, and Python's headers (python3-dev)",
)
_CUDA = DeviceTraits(
    name="cuda",
    backend="nccl",
    compiler="inductor",
    flash=True,
    fused=True,
    install_hint="install a CUDA build of torch, and check with `nvidia-smi`",
    launch=_TORCHRUN,
    compile_needs="it needs triton, a C++ compiler and Python's headers (python3-dev)",
)
# torch_tpu 0.2.0 with torch 2.13 (November 2026): the names that it registers, and its kernels. It has one for fused
# AdamW, which takes the rate as a number: whether each new rate compiles again was not tested on a chip.
_TPU = DeviceTraits(
    name="tpu",
    backend="tpu_dist",
    compiler="tpu",
    flash=True,
    fused=False,
    install_hint="on a TPU VM, `pip install torch_tpu` beside torch 2.13",
    # It prints names and values, without `export`.
    launch='first `set -a; eval "$(python -m torch.tpu.distributed)"; set +a`, then ' + _TORCHRUN,
    compile_needs="torch_tpu compiles",
    package="torch_tpu",
    supports_attention=_on_tpu,
)
# TorchNeuron, the native backend of torch-neuronx 2.13 and 2.14, since Neuron 2.33 (19 October 2026): Trn2 and Trn3.
# Names: "TorchNeuron: Native PyTorch on AWS Neuron" and "How to use torch.distributed on Neuron" of its documentation.
_NEURON = DeviceTraits(
    name="neuron",
    backend="neuron",
    compiler="neuron",
    flash=True,
    fused=False,
    install_hint="take an image of AWS Neuron: 2.33 or later on Trn2 and Trn3, 2.28 with torch_xla on Trn1",
    launch=_TORCHRUN,
    compile_needs="TorchNeuron compiles",
    supports_attention=_on_neuron,
)
TRAITS: Mapping[NativeName, DeviceTraits] = MappingProxyType({row.name: row for row in (_CPU, _CUDA, _TPU, _NEURON)})
