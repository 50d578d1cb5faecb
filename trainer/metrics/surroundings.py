"""What a run ran on, and what its devices and libraries say of themselves: one file each for an attempt.

Both lie in the run's folder beside the checkpoints: environment.json of the first attempt, environment-0002.json of the
second; diagnostics.json likewise. Every rank calls, rank 0 writes.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from trainer.checkpoint.layout import run_folder, timestamp
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.engine import Engine
from trainer.environment import Run
from trainer.options import flat
from trainer.team import Team

_PACKAGES = (
    "torch", "torch_xla", "torch_tpu", "torch-neuronx", "triton", "jax", "jaxlib", "libtpu", "numpy", "safetensors",
    "obstore", "tokenizers", "datasets",
)  # fmt: skip


def write_environment(config: Config, run: Run, team: Team, engine: Engine, store: Store | None) -> None:
    """environment.json: hosts, versions, mesh, settings. store: of the checkpoints; None: nothing is written.

    Raises StorageError, PeerError.
    """
    world, mesh = team.world, engine.mesh
    ranks = team.gather(
        {
            "rank": world.rank,
            "local_rank": world.local_rank,
            "host": platform.node(),
            "python": platform.python_version(),
            "device": engine.headline(),
            "rows": {"first": engine.share.first, "count": engine.share.count, "of": engine.share.of},
        }
    )
    content = {
        "run_id": run.run_id,
        "attempt": run.attempt,
        "time": timestamp(),
        "world": world.size,
        "launcher": world.launcher,
        "engine": engine.name,
        "mesh": {"data": mesh.data, "fsdp": mesh.fsdp, "tensor": mesh.tensor, "devices": mesh.devices},
        "peak_flops": engine.peak_flops,
        "program": engine.program(),
        "versions": _versions(),
        "platform": platform.platform(),
        "notes": list(engine.notes()),
        "ranks": ranks,
        "config": flat(config),
    }
    if world.is_first:
        _write("environment", content, run, store)


def write_diagnostics(config: Config, run: Run, team: Team, engine: Engine, store: Store | None) -> None:
    """diagnostics.json: what each rank's devices and libraries report, once the steps are done.

    Raises StorageError, PeerError.
    """
    ranks = team.gather(_own_diagnostics(team.world.rank, engine))
    content = {
        "run_id": run.run_id,
        "attempt": run.attempt,
        "time": timestamp(),
        "engine": engine.name,
        "dtype": config.dtype,
        "command": sys.argv[1:],
        "ranks": ranks,
    }
    if team.world.is_first:
        _write("diagnostics", content, run, store)


def _own_diagnostics(rank: int, engine: Engine) -> dict[str, Any]:
    try:
        return {
            "rank": rank,
            "host": platform.node(),
            "memory": engine.memory(),
            "counters": _plain(engine.counters()),
            "engine": _plain(engine.diagnostics()),
        }
    except Exception as error:  # libraries and devices raise anything, and the run is already done
        return {"rank": rank, "error": f"{type(error).__name__}: {error}"}


def _write(name: str, content: Mapping[str, Any], run: Run, store: Store | None) -> None:
    if store is None:
        return
    file = f"{name}.json" if run.attempt == 1 else f"{name}-{run.attempt:04d}.json"
    # Create-only: of an attempt that was started twice, the first word stays.
    open_store(run_folder(store.uri), create=True).create(file, json.dumps(content, indent=1).encode())


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _plain(value: Any) -> Any:
    """The same as JSON has it; what JSON has no form for, as text."""
    return json.loads(json.dumps(value, default=str))
