"""Which engine of the bundled trainer drives a machine, on which device, and with which software. Pure.

PyTorch/XLA ended with torch_xla 2.9; TorchTPU (package torch_tpu) follows it (PyPI, November 2026). AWS recommends
Neuron SDK 2.28 for training with PyTorch/XLA, does not support it since 2.30, and has it in no image since 2.32.
TorchNeuron, which follows it since 2.33, is for Trainium2 and 3, while JAX is in every current Neuron image (AWS Neuron
documentation, SDK 2.28 to 2.33, February to October 2026).
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.catalog.machines import Accelerator, Ec2Instance, LocalHosts, OwnDevices
from orchestrator.spec.errors import FormError, did_you_mean

AUTO = "auto"
BACKENDS = (AUTO, "cpu", "cuda", "tpu", "xla", "neuron", "jax")
"""Words of `train.backend`."""


@dataclass(frozen=True, slots=True)
class Stack:
    """engine and device: the trainer's words. backend: the scripts that set it up (templates/run, templates/setup).

    words: those of `train.backend` that ask for it. what: the software. why: the reason, for the plan.
    """

    engine: str
    device: str
    backend: str
    words: tuple[str, ...]
    what: str
    why: str = ""

    def __str__(self) -> str:
        return f"engine={self.engine} device={self.device}, {self.what}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the task says of it, "" for nothing: `train.backend`, settings engine and device, framework of the image."""

    backend: str = ""
    engine: str = ""
    device: str = ""
    framework: str = ""

    @classmethod
    def of(cls, backend: str, args: tuple[tuple[str, str], ...], framework: str = "") -> Asked:
        given = dict(args)
        words = (backend, given.get("engine", ""), given.get("device", ""), framework)
        return cls(*("" if word == AUTO else word for word in words))

    def fits(self, stack: Stack) -> bool:
        return (
            (not self.backend or self.backend in stack.words)
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


_CPU = Stack("torch", "cpu", "cpu", ("cpu",), "torch 2.13")
_TPU = (
    Stack("jax", "tpu", "jax", ("jax",), "JAX 0.10", "the engine that every TPU generation is served with"),
    Stack("torch", "tpu", "tpu", ("tpu",), "TorchTPU 0.2 with torch 2.13", "as asked for"),
    Stack("torch", "xla", "xla", ("xla",), "torch_xla 2.9 with torch 2.9", "as asked for; its last release"),
    _CPU,
)
_TRAINIUM1 = (
    Stack("jax", "neuron", "jax", ("jax",), "JAX of AWS's Neuron image", "the one that AWS still serves on this chip"),
    Stack(
        "torch",
        "xla",
        "neuron",
        ("neuron", "xla"),
        "torch_xla 2.9 of Neuron SDK 2.28",
        "as asked for; its last SDK here",
    ),
    _CPU,
)
_TRAINIUM2 = (
    Stack("torch", "neuron", "neuron", ("neuron",), "TorchNeuron of AWS's Neuron image", "PyTorch's own device there"),
    Stack("jax", "neuron", "jax", ("jax",), "JAX of AWS's Neuron image", "as asked for"),
    _CPU,
)
_GPU = (
    Stack("torch", "cuda", "cuda", ("cuda",), "the image's own torch, else torch 2.13", "the fastest engine on GPUs"),
    Stack("jax", "cuda", "jax", ("jax",), "JAX 0.10 with its CUDA 12 libraries", "as asked for"),
    _CPU,
)
_HERE = (
    Stack("torch", "cpu", "cpu", ("cpu",), "torch of this computer"),
    Stack("jax", "cpu", "jax", ("jax",), "JAX of this computer", "as asked for"),
    Stack("torch", "xla", "xla", ("xla",), "torch_xla of this computer", "as asked for"),
    Stack("torch", "cuda", "cpu", (), "torch of this computer", "as asked for"),
    Stack("jax", "cuda", "jax", (), "JAX of this computer", "as asked for"),
)
_PLAIN = (_CPU, Stack("jax", "cpu", "jax", ("jax",), "JAX 0.10", "as asked for"))


def choose(machine: Accelerator, asked: Asked) -> Stack:
    """The first way to train on `machine` that is what was asked for. Raises FormError when there is none."""
    ways = _ways(machine)
    for stack in ways:
        if asked.fits(stack):
            return stack
    raise _none(machine, asked, ways)


def stand_in(machine: Accelerator, asked: Asked) -> Stack:
    """The same where a host of this computer plays `machine`: on its processor, with torch unless JAX is asked for.

    Raises FormError as `choose` does.
    """
    real = choose(machine, asked)
    engine = real.engine if asked != Asked() else "torch"
    return next(stack for stack in _HERE if stack.engine == engine)


def backends(machine: Accelerator) -> tuple[str, ...]:
    """The words of `train.backend` that are possible."""
    return tuple(dict.fromkeys(word for stack in _ways(machine) for word in stack.words))


def _ways(machine: Accelerator) -> tuple[Stack, ...]:
    """What can drive it, the usual one first."""
    if isinstance(machine, LocalHosts):
        return _HERE
    if "neuron" in machine.backends:
        return _TRAINIUM1 if is_trainium1(machine) else _TRAINIUM2
    if "cuda" in machine.backends:
        return _GPU
    return _PLAIN if machine.backend == "cpu" else _TPU


def is_trainium1(machine: Accelerator) -> bool:
    """The first generation, which TorchNeuron does not serve."""
    chip = machine.chip if isinstance(machine, Ec2Instance | OwnDevices) else ""
    return chip == "Trainium" or (not chip and machine.name.startswith(("trn1", "inf")))


def _none(machine: Accelerator, asked: Asked, ways: tuple[Stack, ...]) -> FormError:
    words = backends(machine)
    possible = f"possible: {', '.join(words)}"
    if asked.backend and asked.backend not in words:
        near = did_you_mean(asked.backend, words)
        step = f"write backend: {near}" if near else "write backend: auto"
        return FormError(f"`train.backend: {asked.backend}` cannot drive {machine.name}", possible, step)
    alone = [stack for stack in ways if asked.backend in stack.words]
    if alone:
        first = alone[0]
        why = f"backend: {asked.backend} is engine={first.engine} device={first.device} on {machine.name}"
        return FormError(f"{asked} exclude each other", why, "keep one of them")
    pairs = ", ".join(dict.fromkeys(f"engine={stack.engine} device={stack.device}" for stack in ways))
    return FormError(f"{asked} cannot drive {machine.name}", f"possible: {pairs}", "remove it, or take another machine")
