"""The packages of each backend, from catalog/data/installs.toml, and the modules that the bundled trainer imports.

Sources: PyPI, November 2026. torch_xla 2.9.0 is the last release and requires torch 2.9; torch_tpu 0.2 has code for
torch 2.13. jax[tpu] 0.10.2 would bring libtpu 0.0.42, whose compiler crashes on v5e (public reports of 2026); 0.0.43.2
does not. jax[cuda12] brings the CUDA libraries. The Neuron packages of that index are empty placeholders, so
Neuron's own torch and JAX always come with the AWS image and are never installed here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from orchestrator.catalog.installs import python_stack

Backend: TypeAlias = Literal["cpu", "cuda", "tpu", "xla", "neuron", "jax"]

TRAINER_MODULES = ("numpy", "obstore")  # tokenizers: only for runs that name one
BESIDE_AN_IMAGE = "beside"
"""The stack of the trainer's packages beside a torch or JAX of an image, which another numpy could break."""


def stack_name(backend: Backend, device: str = "") -> str:
    """Return the stack of catalog/data/installs.toml; `device` selects JAX for "tpu" or "cuda", else for the CPU."""
    match backend:
        case "cpu" | "cuda":
            return "torch"
        case "tpu":
            return "torch-tpu"
        case "xla":
            return "torch-xla"
        case "jax":
            return {"tpu": "jax-tpu", "cuda": "jax-cuda", "neuron": BESIDE_AN_IMAGE}.get(device, "jax")
        case "neuron":
            return BESIDE_AN_IMAGE


def backend_packages(backend: Backend, device: str = "") -> tuple[str, ...]:
    """Return the requirements of the framework itself; `device` is as in `stack_name`."""
    return python_stack(stack_name(backend, device)).framework


def trainer_packages(backend: Backend, device: str = "") -> tuple[str, ...]:
    """Return the requirements of the bundled trainer on one backend."""
    stack = python_stack(stack_name(backend, device))
    return (*stack.framework, *stack.libraries)


def trainer_modules(backend: Backend, device: str = "") -> tuple[str, ...]:
    """Return the modules that the bundled trainer must find; `device` is the trainer's name of the device."""
    if backend == "jax":
        return ("jax", *TRAINER_MODULES)
    more = {"xla": ("torch_xla",), "tpu": ("torch_tpu",)}.get(device or backend, ())
    return ("torch", *more, *TRAINER_MODULES)
