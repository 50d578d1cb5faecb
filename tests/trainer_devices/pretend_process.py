"""Trains on a pretended device, or on the processor for comparison. Prints losses and operations as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
from support.pretend_device import PretendDevice

from trainer.environment import World
from trainer.options import parse
from trainer.torch_engine.engine import open_torch


class Alone:
    world = World()

    def gather(self, value: Any) -> list[Any]:
        return [value]


def main(name: str, words: list[str]) -> dict[str, Any]:
    pretended = PretendDevice(name)
    if name != "cpu":
        pretended.register()
    engine = open_torch(parse([f"device={name}", *words]), World(), Alone())  # type: ignore[arg-type]
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
    return {
        "losses": losses,
        "ops": sorted(pretended.ops),
        "synchronized": pretended.synchronized,
        "notes": list(engine.notes()),
        "headline": engine.headline(),
        "device": engine.diagnostics()["device"]["kind"],
        "mixed": mixed,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
