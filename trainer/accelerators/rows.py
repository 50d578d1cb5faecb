"""How the native devices differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.accelerators.base import Backend, Compiler, NativeName

_TORCHRUN = "start one rank for each with `torchrun --nproc-per-node N -m trainer ...`"


@dataclass(frozen=True, slots=True)
class Row:
    """flash: torch's attention has a kernel without the matrix of scores. fused: AdamW has a fused kernel.

    package: the plug-in that brings the device to torch, when it must not be asked without hardware. absent: what to
    do when there is no such device. launch: how a host's ranks are started.
    """

    name: NativeName
    backend: Backend
    compiler: Compiler
    flash: bool
    fused: bool
    absent: str
    launch: str
    compile_needs: str
    package: str = ""


_CPU = Row(
    "cpu",
    "gloo",
    "inductor",
    flash=True,
    fused=True,
    absent="",
    launch="one rank on each host, or more with `torchrun --nproc-per-node N -m trainer ...`",
    compile_needs="it needs a C++ compiler, g++ or clang++",
)
_CUDA = Row(
    "cuda",
    "nccl",
    "inductor",
    flash=True,
    fused=True,
    absent="install a CUDA build of torch, and check with `nvidia-smi`",
    launch=_TORCHRUN,
    compile_needs="it needs triton and a C++ compiler",
)
# torch_tpu 0.2.0 (November 2026): backend and compiler by its names; fused AdamW is not among its kernels. Its own
# attention kernel is reached by torch.compile only.
_TPU = Row(
    "tpu",
    "tpu_dist",
    "tpu",
    flash=False,
    fused=False,
    absent="on a TPU VM, `pip install torch_tpu` beside torch 2.13",
    launch='first `eval "$(python -m torch.tpu.distributed)"`, then ' + _TORCHRUN,
    compile_needs="torch_tpu compiles",
    package="torch_tpu",
)
# TorchNeuron, the native backend of torch-neuronx since Neuron 2.33 (October 2026): Trn2 and Trn3 only.
_NEURON = Row(
    "neuron",
    "neuron",
    "neuron",
    flash=False,
    fused=False,
    absent="take an image of AWS Neuron: 2.33 or later on Trn2 and Trn3, 2.28 with torch_xla on Trn1",
    launch=_TORCHRUN,
    compile_needs="TorchNeuron compiles",
)
ROWS: Mapping[NativeName, Row] = MappingProxyType({row.name: row for row in (_CPU, _CUDA, _TPU, _NEURON)})
