"""Orbax for JAX and Flax: every process writes the shards that it holds, and one manifest completes them.

In the program, on every process:

    save(run, step, state)
    step, state = load(run, state, "restored")  # on any number of processes; step 0 for a new run

The hosts share no disk, which Orbax's CheckpointManager needs. The files are a checkpoint of Orbax in the format zarr,
which `orbax.checkpoint.PyTreeCheckpointer` reads as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import orbax.checkpoint as ocp  # pyright: ignore[reportMissingTypeStubs]  # it has none
from etils import epath  # pyright: ignore[reportMissingTypeStubs]  # it has none

if TYPE_CHECKING:
    from trainer.program import Run

_METADATA = "_METADATA"  # of the tree; the same on every process


def save(run: Run, step: int, state: Any, meta: Mapping[str, Any] | None = None) -> None:
    """Write the arrays to the local disk, and give them to the run, which uploads them in the background.

    Args:
        run: Of `orch_run.init()`.
        step: Steps that are done.
        state: A tree of arrays and numbers. With several processes its arrays are global.
        meta: See `Run.save`.
    """
    folder = run.new_folder()
    _make_handler().save(epath.Path(folder), args=ocp.args.PyTreeSave(state))
    if run.rank:
        (folder / _METADATA).unlink()
        # A process that holds no first replica still takes part: the manifest waits for every rank.
        (folder / f".rank-{run.rank}").touch()
    run.save(folder, step, meta, sharded=True)


def load(run: Run, state: Any, folder: str | os.PathLike[str]) -> tuple[int, Any]:
    """Return the step and the state of the newest complete checkpoint; 0 and the state that is given for a new run.

    Args:
        run: Of `orch_run.init()`.
        state: A tree with the structure, shapes and shardings that are wanted; every process calls this.
        folder: Where the files go on the local disk; see `Run.restore`.
    """
    step = run.restore(folder)
    if step is None:
        return 0, state
    placement = ocp.checkpoint_utils.construct_restore_args(state)
    restore = ocp.args.PyTreeRestore(state, restore_args=placement)
    return step, _make_handler().restore(epath.Path(Path(folder).resolve()), args=restore)


def _make_handler() -> Any:
    """Return a handler that waits for no other process: their files are on other disks."""
    index = jax.process_index()  # pyright: ignore[reportUnknownMemberType]  # JAX's own
    alone = ocp.options.MultiprocessingOptions(
        primary_host=index, active_processes={index}, barrier_sync_key_prefix=f"orch-run-{index}"
    )
    kinds = ocp.type_handlers
    handlers = [
        *((kind, kinds.ScalarHandler()) for kind in (int, float, bytes, np.number)),
        (np.ndarray, kinds.NumpyHandler()),
        (jax.Array, kinds.ArrayHandler(array_metadata_store=None)),  # it would have to be of all processes
        (str, kinds.StringHandler()),
    ]
    return ocp.PyTreeCheckpointHandler(
        use_ocdbt=False,  # OCDBT merges the files of all processes on one disk
        multiprocessing_options=alone,
        type_handler_registry=kinds.create_type_handler_registry(*handlers),
    )
