"""Identity of a step: equal for two runs exactly where the same program runs on the same kind of machines."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

from trainer.accelerators.tpu_compiler_options import choose_compiler_options
from trainer.config import Config
from trainer.shape.hardware import Hardware
from trainer.shape.mesh import Mesh

# Settings that no step depends on. Any other one, also of a later version, makes another step.
_SECTIONS = ("checkpoint", "eval", "dist", "metrics", "data", "mesh")
_FIELDS = ("steps", "seed", "threads", "log_every", "resume", "engine", "device", "compile", "dtype")
_OPTIMIZER = ("lr", "schedule", "warmup", "decay", "floor")


def identify_step(config: Config, mesh: Mesh, hardware: Hardware, compiler_args: str = "") -> str:
    """Return a digest of the settings, mesh and machines that decide what a step computes and where.

    Args:
        config: With engine, arithmetic and recomputation resolved.
        mesh: The mesh that the engine uses.
        hardware: The machines.
        compiler_args: What the user gives libtpu in LIBTPU_INIT_ARGS.
    """
    values: dict[str, Any] = dataclasses.asdict(config)
    for name in (*_SECTIONS, *_FIELDS):
        values.pop(name)
    for name in _OPTIMIZER:
        values["optim"].pop(name)
    values |= {
        "mesh": dataclasses.asdict(mesh),
        "machines": [hardware.chip, hardware.topology, hardware.devices, hardware.slices],
        "arithmetic": [name_framework(config), config.products, config.compiled],
        "mask": [config.data.document_mask, config.marked],
    }
    if config.engine == "jax" and hardware.kind == "tpu":
        values["compiler"] = [compiler_args, choose_compiler_options(hardware.chip, compiler_args)]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def name_framework(config: Config) -> str:
    """Return the engine, or torch_xla: on Neuron the torch engine is either that or TorchNeuron, of other speeds."""
    return "torch_xla" if config.device == "xla" else config.engine
