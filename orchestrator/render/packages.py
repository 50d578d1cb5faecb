"""What is installed for which backend, and what the bundled trainer imports.

Sources: PyPI, November 2026. torch_xla 2.9.0 is the last release and wants torch 2.9. The Neuron packages of that index
are empty placeholders, so Neuron's own torch always comes with the AWS image and is never installed here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Backend: TypeAlias = Literal["cpu", "cuda", "xla", "neuron", "jax"]

TRAINER_LIBRARIES = ("numpy", "safetensors", "obstore")


def backend_packages(backend: Backend, *, tpu: bool = False) -> tuple[str, ...]:
    """Requirements of the framework itself. tpu: JAX is meant for a TPU."""
    match backend:
        case "cpu" | "cuda":
            return ("torch==2.13.0",)
        case "xla":
            return ("torch==2.9.*", "torch_xla[tpu]==2.9.0")
        case "jax":
            return ("jax[tpu]",) if tpu else ("jax",)
        case "neuron":
            return ()


def trainer_packages(backend: Backend) -> tuple[str, ...]:
    """Requirements of the bundled trainer on one backend."""
    return (*backend_packages(backend), *TRAINER_LIBRARIES)


def trainer_modules(backend: Backend) -> tuple[str, ...]:
    """Modules that the bundled trainer must find."""
    framework = ("torch", "torch_xla") if backend == "xla" else ("torch",)
    return (*framework, *TRAINER_LIBRARIES)
