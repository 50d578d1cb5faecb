"""How the native devices differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trainer.accelerators.base import Backend, Compiler, NativeName

_TORCHRUN = "start one rank for each with `torchrun --nproc-per-node N -m trainer ...`"


def _any(seq_len: int, head_dim: int) -> bool:
    return True


def _on_tpu(seq_len: int, head_dim: int) -> bool:
    """The words of torch_tpu's own kernel, when it refuses (0.2.0, November 2026)."""
    return head_dim < 128 or head_dim % 128 == 0


def _on_neuron(seq_len: int, head_dim: int) -> bool:
    """_can_use_nki_flash_attention of torch-neuronx, as public benchmarks quote it (October 2026)."""
    return seq_len % 512 == 0 and head_dim <= 128


@dataclass(frozen=True, slots=True)
class Row:
    """flash: torch's attention has a kernel without the matrix of scores. fused: AdamW has a fused kernel.

    package: the plug-in that brings the device to torch, when it must not be asked without hardware. absent: what to
    do when there is no such device. launch: how a host's ranks are started. attends: whether that kernel of attention
    takes these, seq_len and head_dim.
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
    attends: Callable[[int, int], bool] = _any


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
# torch_tpu 0.2.0 with torch 2.13 (November 2026): the names that it registers, and its kernels. It has one for fused
# AdamW, which takes the rate as a number: without a chip nobody saw whether each new rate compiles anew.
_TPU = Row(
    "tpu",
    "tpu_dist",
    "tpu",
    flash=True,
    fused=False,
    absent="on a TPU VM, `pip install torch_tpu` beside torch 2.13",
    # It prints names and values, without `export`.
    launch='first `set -a; eval "$(python -m torch.tpu.distributed)"; set +a`, then ' + _TORCHRUN,
    compile_needs="torch_tpu compiles",
    package="torch_tpu",
    attends=_on_tpu,
)
# TorchNeuron, the native backend of torch-neuronx 2.13 and 2.14, since Neuron 2.33 (19 October 2026): Trn2 and Trn3.
# Names: "TorchNeuron: Native PyTorch on AWS Neuron" and "How to use torch.distributed on Neuron" of its documentation.
_NEURON = Row(
    "neuron",
    "neuron",
    "neuron",
    flash=True,
    fused=False,
    absent="take an image of AWS Neuron: 2.33 or later on Trn2 and Trn3, 2.28 with torch_xla on Trn1",
    launch=_TORCHRUN,
    compile_needs="TorchNeuron compiles",
    attends=_on_neuron,
)
ROWS: Mapping[NativeName, Row] = MappingProxyType({row.name: row for row in (_CPU, _CUDA, _TPU, _NEURON)})
