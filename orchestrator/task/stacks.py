"""Which engine of the bundled trainer drives a machine, on which device, and with which software. Pure.

PyTorch/XLA ended with torch_xla 2.9; TorchTPU (package torch_tpu) follows it (PyPI, November 2026). AWS recommends
Neuron SDK 2.28 for training with PyTorch/XLA, does not support it since 2.30, and has it in no image since 2.32.
TorchNeuron, which follows it since 2.33, is for Trainium2 and 3, while JAX is in every current Neuron image (AWS Neuron
documentation, SDK 2.28 to 2.33, February to October 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from orchestrator.catalog.machines import LocalHosts, Machine
from orchestrator.task.errors import InvalidValueError, did_you_mean

AUTO = "auto"
Backend: TypeAlias = Literal["auto", "cpu", "cuda", "tpu", "xla", "neuron", "jax"]
BACKENDS: tuple[str, ...] = get_args(Backend)
"""Choices of `train.backend`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Engine and device of the trainer, with the scripts `backend` that set it up (templates/run, templates/setup).

    words: those of `train.backend` that ask for it. what: the software. why: the reason, for the plan.
    """

    engine: str
    device: str
    backend: str
    names: tuple[str, ...]
    software: str
    reason: str = ""

    def __str__(self) -> str:
        return f"engine={self.engine} device={self.device}, {self.software}" + (
            f": {self.reason}" if self.reason else ""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRequest:
    """A request for a stack, "" for any: `train.backend`, settings engine and device, framework of the image."""

    backend: str = ""
    engine: str = ""
    device: str = ""
    framework: str = ""

    @classmethod
    def from_settings(cls, backend: str, args: tuple[tuple[str, str], ...], framework: str = "") -> StackRequest:
        given = dict(args)
        words = (backend, given.get("engine", ""), given.get("device", ""), framework)
        backend, engine, device, framework = ("" if word == AUTO else word for word in words)
        return cls(backend=backend, engine=engine, device=device, framework=framework)

    def fits(self, stack: Stack) -> bool:
        return (
            (not self.backend or self.backend in stack.names)
            and self.engine in ("", stack.engine)
            and self.device in ("", stack.device)
            and self.framework in ("", stack.engine)
        )

    def __str__(self) -> str:
        pairs = (
            ("backend: ", self.backend),
            ("engine=", self.engine),
            ("device=", self.device),
            ("framework: ", self.framework),
        )
        return " and ".join(f"`{key}{word}`" for key, word in pairs if word)


def _stack(engine: str, device: str, backend: str, names: tuple[str, ...], software: str, reason: str = "") -> Stack:
    return Stack(engine=engine, device=device, backend=backend, names=names, software=software, reason=reason)


_CPU = _stack("torch", "cpu", "cpu", ("cpu",), "torch 2.13")
_TPU = (
    _stack("jax", "tpu", "jax", ("jax",), "JAX 0.10", "the engine that every TPU generation is served with"),
    _stack("torch", "tpu", "tpu", ("tpu",), "TorchTPU 0.2 with torch 2.13", "as requested"),
    _stack("torch", "xla", "xla", ("xla",), "torch_xla 2.9 with torch 2.9", "as requested; its last release"),
    _CPU,
)
_TRAINIUM1 = (
    _stack("jax", "neuron", "jax", ("jax",), "JAX of AWS's Neuron image", "the one that AWS still serves on this chip"),
    _stack(
        "torch",
        "xla",
        "neuron",
        ("neuron", "xla"),
        "torch_xla 2.9 of Neuron SDK 2.28",
        "as requested; its last SDK here",
    ),
    _CPU,
)
_TRAINIUM2 = (
    _stack("torch", "neuron", "neuron", ("neuron",), "TorchNeuron of AWS's Neuron image", "PyTorch's own device there"),
    _stack("jax", "neuron", "jax", ("jax",), "JAX of AWS's Neuron image", "as requested"),
    _CPU,
)
_GPU = (
    _stack("torch", "cuda", "cuda", ("cuda",), "the image's own torch, else torch 2.13", "the fastest engine on GPUs"),
    _stack("jax", "cuda", "jax", ("jax",), "JAX 0.10 with its CUDA 12 libraries", "as requested"),
    _CPU,
)
_HERE = (
    _stack("torch", "cpu", "cpu", ("cpu",), "torch of this computer"),
    _stack("jax", "cpu", "jax", ("jax",), "JAX of this computer", "as requested"),
    _stack("torch", "xla", "xla", ("xla",), "torch_xla of this computer", "as requested"),
    _stack("torch", "cuda", "cpu", (), "torch of this computer", "as requested"),
    _stack("jax", "cuda", "jax", (), "JAX of this computer", "as requested"),
)
_PLAIN = (_CPU, _stack("jax", "cpu", "jax", ("jax",), "JAX 0.10", "as requested"))


def choose_stack(machine: Machine, request: StackRequest) -> Stack:
    """Return the first stack for `machine` that fits the request.

    Raises:
        InvalidValueError: There is none.
    """
    ways = _ways(machine)
    for stack in ways:
        if request.fits(stack):
            return stack
    raise _none(machine, request, ways)


def choose_stand_in_stack(machine: Machine, request: StackRequest) -> Stack:
    """Return the stack of a local host that stands in for `machine`: its CPU, with torch unless JAX is requested.

    Raises:
        InvalidValueError: There is none for the real machine.
    """
    real = choose_stack(machine, request)
    engine = real.engine if request != StackRequest() else "torch"
    return next(stack for stack in _HERE if stack.engine == engine)


def list_backends(machine: Machine) -> tuple[str, ...]:
    """Return the values of `train.backend` that are possible."""
    return tuple(dict.fromkeys(word for stack in _ways(machine) for word in stack.names))


def _ways(machine: Machine) -> tuple[Stack, ...]:
    """Return what can drive the machine, the usual one first."""
    if isinstance(machine, LocalHosts):
        return _HERE
    if "neuron" in machine.backends:
        return _TRAINIUM1 if machine.without_torch_neuron else _TRAINIUM2
    if "cuda" in machine.backends:
        return _GPU
    return _PLAIN if machine.backend == "cpu" else _TPU


def _none(machine: Machine, request: StackRequest, ways: tuple[Stack, ...]) -> InvalidValueError:
    words = list_backends(machine)
    possible = f"possible: {', '.join(words)}"
    if request.backend and request.backend not in words:
        near = did_you_mean(request.backend, words)
        step = f"write backend: {near}" if near else "write backend: auto"
        return InvalidValueError(f"`train.backend: {request.backend}` cannot drive {machine.name}", possible, step)
    alone = [stack for stack in ways if request.backend in stack.names]
    if alone:
        first = alone[0]
        why = f"backend: {request.backend} is engine={first.engine} device={first.device} on {machine.name}"
        return InvalidValueError(f"{request} exclude each other", why, "keep one of them")
    pairs = ", ".join(dict.fromkeys(f"engine={stack.engine} device={stack.device}" for stack in ways))
    return InvalidValueError(
        f"{request} cannot drive {machine.name}", f"possible: {pairs}", "remove it, or take another machine"
    )
