"""Reports on a run's environment and on its devices and libraries, one file of each per attempt.

Both are stored in the run's folder beside the checkpoints: environment.json for the first attempt,
environment-0002.json for the second; diagnostics.json likewise. Every rank calls, rank 0 writes.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from trainer.checkpoint.epoch import utc_timestamp
from trainer.checkpoint.layout import run_folder
from trainer.checkpoint.store import Store, open_store
from trainer.config import Config
from trainer.engine import Engine
from trainer.environment import Run
from trainer.options import flatten_config
from trainer.team import Team

_PACKAGES = (
    "torch", "torch_xla", "torch_tpu", "torch-neuronx", "triton", "jax", "jaxlib", "libtpu", "numpy",
    "obstore", "tokenizers", "datasets",
)  # fmt: skip


def write_environment(config: Config, run: Run, team: Team, engine: Engine, store: Store | None) -> None:
    """Write environment.json: hosts, versions, mesh, settings.

    Args:
        config: The settings.
        run: The run and its attempt.
        team: The ranks.
        engine: The open engine.
        store: Of the checkpoints; None writes nothing.

    Raises:
        StorageError: The bucket is not writable.
        PeerError: Another rank is lost.
    """
    world, mesh = team.world, engine.mesh
    ranks = team.gather(
        {
            "rank": world.rank,
            "local_rank": world.local_rank,
            "host": platform.node(),
            "python": platform.python_version(),
            "device": engine.headline(),
            "rows": {"first": engine.share.first, "count": engine.share.count, "of": engine.share.total},
        }
    )
    content = {
        "run_id": run.run_id,
        "attempt": run.attempt,
        "time": utc_timestamp(),
        "world": world.size,
        "launcher": world.launcher,
        "engine": engine.name,
        "mesh": {**asdict(mesh), "devices": mesh.devices},
        "peak_flops": engine.peak_flops,
        "program": engine.program(),
        "versions": _versions(),
        "platform": platform.platform(),
        "notes": list(engine.notes()),
        "ranks": ranks,
        "config": flatten_config(config),
    }
    if world.is_first:
        _write("environment", content, run, store)


def write_diagnostics(config: Config, run: Run, team: Team, engine: Engine, store: Store | None) -> None:
    """Write diagnostics.json: what each rank's devices and libraries report after the last step.

    Raises:
        StorageError: The bucket is not writable.
        PeerError: Another rank is lost.
    """
    ranks = team.gather(_own_diagnostics(team.world.rank, engine))
    content = {
        "run_id": run.run_id,
        "attempt": run.attempt,
        "time": utc_timestamp(),
        "engine": engine.name,
        "dtype": config.products,
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
    # Create-only: if an attempt is started twice, the first report stays.
    open_store(run_folder(store.uri), create=True, retry_seconds=store.retry_seconds).create(
        file, json.dumps(content, indent=1).encode()
    )


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _plain(value: Any) -> Any:
    """Return the value as JSON represents it; types unknown to JSON become text."""
    return json.loads(json.dumps(value, default=str))
