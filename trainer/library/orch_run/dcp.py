"""Storage for torch.distributed.checkpoint (DCP): every rank writes its shards, and one manifest completes them.

In the program:

    torch.distributed.checkpoint.save(state, storage_writer=Writer(run, step))
    step = load(run, state, "restored")  # on any number of ranks; None for a new run
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import (
    load as load_state,  # pyright: ignore[reportUnknownVariableType]  # torch's own
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

if TYPE_CHECKING:
    from trainer.program import Run


class Writer(FileSystemWriter):
    """Writes one checkpoint to the local disk, and gives it to the run, which uploads it in the background.

    DCP's coordinator writes `.metadata` when all ranks have written, so it gives its files to the run last.
    """

    def __init__(self, run: Run, step: int, meta: Mapping[str, Any] | None = None, **options: Any) -> None:
        """Take the run and the step.

        Args:
            run: Of `orch_run.init()`.
            step: Steps that are done.
            meta: See `Run.save`.
            options: Of FileSystemWriter.
        """
        self._folder = run.new_folder()
        super().__init__(self._folder, **options)  # pyright: ignore[reportUnknownMemberType]  # torch's own
        self._run, self._step, self._meta, self._coordinates = run, step, meta, False

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """See StorageWriter."""
        self._coordinates = is_coordinator
        super().set_up_storage_writer(is_coordinator, *args, **kwargs)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """See StorageWriter."""
        written = super().write_data(plan, planner)
        written.wait()
        if not self._coordinates:
            # A rank without tensors still takes part: the manifest waits for every rank.
            (self._folder / f".rank-{self._run.rank}").touch()
            self._save()
        return written

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """See StorageWriter."""
        super().finish(metadata, results)
        self._save()

    def _save(self) -> None:
        self._run.save(self._folder, self._step, self._meta, sharded=True)


def load(run: Run, state: dict[str, Any], folder: str | os.PathLike[str]) -> int | None:
    """Load the newest complete checkpoint into a state dict, in place; return its step, or None for a new run.

    Args:
        run: Of `orch_run.init()`.
        state: As `torch.distributed.checkpoint.load` takes it; every rank calls this.
        folder: Where the files go on the local disk; see `Run.restore`.
    """
    step = run.restore(folder)
    if step is not None:
        load_state(state, storage_reader=FileSystemReader(Path(folder)))
    return step
