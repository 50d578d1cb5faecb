"""Run the engine for torch_xla on 4 simulated devices in .venv-xla, and print each case's results as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_xla

from trainer.environment import World
from trainer.options import parse_config
from trainer.shape.mesh import assign_rows
from trainer.xla_engine.engine import XlaEngine, open_xla_engine
from trainer.xla_engine.runtime import Runtime, ShardingMarker


class Alone:
    """A team of one rank."""

    world = World()

    def gather(self, value: Any) -> list[Any]:
        return [value]


def run(words: list[str], rows: Any, state: Path | None, left: Path) -> dict[str, Any]:
    """Train on the rows, from a state if one is given; return losses, compilations and the final state."""
    engine = open_xla_engine(parse_config(words), World(), Alone())  # type: ignore[arg-type]  # only `gather` is called
    if state is not None:
        given = np.load(state)
        engine.load((piece, given[piece.name][piece.box.slices()]) for piece in engine.needed())
    losses, norms, compiled = [], [], [engine.counters()["compilations"]]
    for step, batch in enumerate(rows):
        engine.step(batch, 1e-2 * (step + 1) / len(rows), step == len(rows) - 1, step)
        numbers = engine.numbers()
        losses.append(numbers.loss)
        norms.append(numbers.grad_norm)
        compiled.append(engine.counters()["compilations"])
    whole = values(engine)
    np.savez(left, **whole)
    # Back into the live objects: what was copied out is what goes in, and no new step is compiled for it.
    engine.load((piece, whole[piece.name][piece.box.slices()]) for piece in engine.needed())
    engine.step(rows[0], 1e-3, False, len(rows))
    after_load = engine.counters()["compilations"] - compiled[-1]
    evaluated = engine.evaluate(rows[1])
    engine.step(rows[1], 1e-3, False, len(rows) + 1)
    product = torch.ones(2, 2, device=torch_xla.device()) @ torch.ones(2, 2, device=torch_xla.device())
    result = {
        "product": torch_xla._XLAC._get_xla_tensors_hlo([product]),
        "losses": losses,
        "norms": norms,
        "compiled": compiled,
        "after_load": after_load,
        "evaluated": [evaluated, engine.numbers().loss],
        "stops": numbers.stops,
        "fallbacks": engine.diagnostics()["fallback_ops"],
        "headline": engine.headline(),
        "written": sum(piece.box.size for piece in engine.written()),
        "needed": len(engine.needed()),
        "program": engine.program(),
    }
    engine.close()
    return result


def hosts_rows(words: list[str], rows: Any) -> list[Any]:
    """Simulate two hosts of two devices each; return the rows on each device after its host sends its share."""
    config = parse_config(words)
    runtime = Runtime(World(), Alone())  # type: ignore[arg-type]  # only `gather` is called
    mesh = runtime.mesh(config)
    marks = ShardingMarker(runtime, mesh)
    found: list[Any] = []
    for host in range(2):
        share = assign_rows(mesh, host, 2)
        first, count = share.rows(len(rows))
        sent = marks.send_rows(rows[first : first + count], share)
        local = range(2 * host, 2 * host + 2)
        found += [shard.data.tolist() for device, shard in marks.list_shards(sent) if device in local]
    return found


def values(engine: XlaEngine) -> dict[str, Any]:
    """Assemble every tensor of the state; a gap would stay nan."""
    parts = {piece: np.empty(piece.box.extent, np.float32) for piece in engine.written()}
    engine.copy_out(parts)
    whole: dict[str, Any] = {}
    for piece, array in parts.items():
        whole.setdefault(piece.name, np.full(piece.shape, np.nan, np.float32))[piece.box.slices()] = array
    return whole


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    cases = json.loads((folder / "cases.json").read_text())
    rows = np.load(folder / "rows.npy")
    for name, case in cases.items():
        state = folder / case["state"] if case["state"] else None
        print(json.dumps({name: run(case["words"], rows, state, folder / f"{name}.npz")}), flush=True)
    hosts = {name: hosts_rows(case["words"], rows[0]) for name, case in cases.items()}
    print(json.dumps({"hosts": hosts}), flush=True)
