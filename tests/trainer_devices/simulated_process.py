"""Trains on a simulated device, or on the processor for comparison, and prints losses and operations as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from support.simulated_device import SimulatedDevice

from trainer.accelerators.base import Capability
from trainer.accelerators.registry import open_native_device
from trainer.environment import World
from trainer.options import parse_config
from trainer.shape.mesh import Mesh
from trainer.torch_engine.engine import TorchEngine, open_torch_engine


class Alone:
    world = World()

    def gather(self, value: Any) -> list[Any]:
        return [value]


def waits(name: str, words: list[str], rows: Any, simulated: SimulatedDevice) -> dict[str, int]:
    """What a step with the fused optimizer asks of the device that the processor waits for, by aten's names."""
    accelerator = open_native_device(name, World())  # type: ignore[arg-type]  # a kind's name
    accelerator.capabilities = replace(accelerator.capabilities, fused=Capability(True, ""))  # type: ignore[misc]  # of the real class
    engine = TorchEngine(parse_config([f"device={name}", *words]), World(), accelerator, Mesh())
    engine.step(rows, 1e-2, False, 0)
    before = simulated.ops.copy()
    engine.step(rows, 1e-2, False, 1)
    done = simulated.ops - before
    assert done["_fused_adamw_"] == 2, done
    return {kind: done[kind] for kind in ("from the processor", "_local_scalar_dense") if done[kind]}


def main(name: str, words: list[str]) -> dict[str, Any]:
    simulated = SimulatedDevice(name)
    if name != "cpu":
        simulated.register()
    engine = open_torch_engine(parse_config([f"device={name}", *words]), World(), Alone())  # type: ignore[arg-type]  # what the engine uses of a team
    rows = np.random.default_rng(0).integers(0, 64, (3, 8, 17)).astype(np.uint16)
    losses = []
    for step, batch in enumerate(rows):
        engine.step(batch, 1e-2, False, step)
        losses.append(engine.numbers().loss)
    state = {piece: np.empty(piece.box.extent, np.float32) for piece in engine.written()}
    engine.copy_out(state)
    engine.load(state.items())
    engine.step(rows[0], 1e-2, False, 3)
    losses.append(engine.numbers().loss)
    engine.close()
    mixed = ""
    if name != "cpu":
        try:
            torch.ones(2, device=name) + torch.ones(2)
        except RuntimeError as error:
            mixed = str(error)
    operations = sorted(set(simulated.ops) - {"from the processor"})
    return {
        "waits": waits(name, words, rows[0], simulated) if name != "cpu" else {},
        "losses": losses,
        "ops": operations,
        "synchronized": simulated.synchronized,
        "notes": list(engine.notes()),
        "headline": engine.headline(),
        "device": engine.diagnostics()["device"]["kind"],
        "mixed": mixed,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
