"""The packages of each backend, and the modules that the bundled trainer imports.

Sources: PyPI, November 2026. torch_xla 2.9.0 is the last release and requires torch 2.9; torch_tpu 0.2 has code for
torch 2.13. jax[tpu] brings the libtpu that fits it, jax[cuda12] the CUDA libraries. The Neuron packages of that index
are empty placeholders, so Neuron's own torch and JAX always come with the AWS image and are never installed here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Backend: TypeAlias = Literal["cpu", "cuda", "tpu", "xla", "neuron", "jax"]

TORCH = "torch==2.13.0"
JAX = "0.10.2"
BESIDE_AN_IMAGE = ("obstore==0.12.1", "tokenizers==0.23.3")
"""The trainer's packages beside a torch or JAX of an image, which another numpy could break."""
TRAINER_LIBRARIES = ("numpy>=2.0,<3", *BESIDE_AN_IMAGE)
TRAINER_MODULES = ("numpy", "obstore")  # tokenizers: only for runs that name one


def backend_packages(backend: Backend, device: str = "") -> tuple[str, ...]:
    """Return the requirements of the framework itself; `device` selects JAX for "tpu" or "cuda", else for the CPU."""
    match backend:
        case "cpu" | "cuda":
            return (TORCH,)
        case "tpu":
            return (TORCH, "torch_tpu==0.2.0")
        case "xla":
            return ("torch==2.9.0", "torch_xla[tpu]==2.9.0")
        case "jax":
            extra = {"tpu": "[tpu]", "cuda": "[cuda12]"}.get(device, "")
            return () if device == "neuron" else (f"jax{extra}=={JAX}",)
        case "neuron":
            return ()


def trainer_packages(backend: Backend, device: str = "") -> tuple[str, ...]:
    """Return the requirements of the bundled trainer on one backend."""
    framework = backend_packages(backend, device)
    return (*framework, *(TRAINER_LIBRARIES if framework else BESIDE_AN_IMAGE))


def trainer_modules(backend: Backend, device: str = "") -> tuple[str, ...]:
    """Return the modules that the bundled trainer must find; `device` is the trainer's name of the device."""
    if backend == "jax":
        return ("jax", *TRAINER_MODULES)
    more = {"xla": ("torch_xla",), "tpu": ("torch_tpu",)}.get(device or backend, ())
    return ("torch", *more, *TRAINER_MODULES)
