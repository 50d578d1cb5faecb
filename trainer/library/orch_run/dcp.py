"""Storage for torch.distributed.checkpoint (DCP): every rank writes its shards, and one manifest completes them.

In the program:

    torch.distributed.checkpoint.save(state, storage_writer=Writer(run, step))
    step = load(run, state, "restored")  # on any number of ranks; None for a new run

DCP pickles its index (`.metadata`) and every value that is no tensor. What is loaded here may name only the types of
DCP's own index, and of values what `torch.load(weights_only=True)` allows: a checkpoint runs no code.
"""

from __future__ import annotations

import io
import os
import pickle
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem, SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_loader import (
    load as load_state,  # pyright: ignore[reportUnknownVariableType]  # torch's own
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from . import ConfigError

if TYPE_CHECKING:
    from trainer.program import Run

_INDEX = ".metadata"
# What pickles of DCP's index name (torch 2.13, read November 2026): its dataclasses, sizes, layouts, and a path.
_METADATA = "torch.distributed.checkpoint.metadata"
_TYPES = frozenset(
    {
        (_METADATA, "BytesStorageMetadata"),
        (_METADATA, "ChunkStorageMetadata"),
        (_METADATA, "Metadata"),
        (_METADATA, "MetadataIndex"),
        (_METADATA, "StorageMeta"),
        (_METADATA, "TensorProperties"),
        (_METADATA, "TensorStorageMetadata"),
        (_METADATA, "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),  # as Python 3.13 names it
        ("collections", "OrderedDict"),
    }
)


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
        load_state(state, storage_reader=_Reader(Path(folder)), planner=_Planner())
    return step


class _IndexUnpickler(pickle._Unpickler):  # pyright: ignore[reportPrivateUsage]  # that of C calls no `_build`
    """Reads DCP's index, and nothing that would run code or change a type."""

    stack: list[Any]

    def _build(self) -> None:
        """Give an object its state. A type or a function in its place would be changed for the whole program.

        Raises:
            ConfigError: It is no object of DCP's index.
        """
        target = self.stack[-2]
        if isinstance(target, type) or not is_dataclass(target):
            _refuse(_INDEX, f"it changes {getattr(target, '__name__', type(target).__name__)}")
        super().load_build()  # type: ignore[misc]  # pyright: ignore  # pickle.py has it, its stub does not

    dispatch: ClassVar[dict[int, Any]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: _build}  # pyright: ignore[reportPrivateUsage]  # see above

    def find_class(self, module: str, name: str) -> Any:
        """Return a type of DCP's index.

        Raises:
            ConfigError: It is another.
        """
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_dtype and (module, name) not in _TYPES:
            _refuse(_INDEX, f"{module}.{name} is no type of DCP's index")
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    """Reads the files of a checkpoint that `Run.restore` has written."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """See StorageReader.

        Raises:
            ConfigError: It is no index, or names files elsewhere.
        """
        text = Path(str(self.path), _INDEX).read_bytes()  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  # torch's own
        try:
            found: Any = _IndexUnpickler(io.BytesIO(text)).load()
        except ConfigError:
            raise
        except Exception as error:  # what pickle raises for other bytes is of any kind
            _refuse(_INDEX, f"it cannot be read: {type(error).__name__}: {error}")
        index: Any = found  # its parts have no types of torch's own
        if not isinstance(found, Metadata) or not isinstance(found.storage_data, dict):
            _refuse(_INDEX, "it is no index of DCP")
        for stored in index.storage_data.values():
            path = str(stored.relative_path)
            if stored.transform_descriptors or Path(path).name != path:
                _refuse(_INDEX, f"it names the file {path!r}")
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


class _Planner(DefaultLoadPlanner):
    """Loads values that are no tensors without running code of them."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """See LoadPlanner.

        Raises:
            ConfigError: The value has a type that was not allowed.
        """
        name = read_item.dest_index.fqn
        try:
            loaded = torch.load(value, weights_only=True)
        except pickle.UnpicklingError as error:
            named = re.search(r"GLOBAL ([\w.]+)", str(error))
            why = f"it names {named[1]}, which may run code" if named else "it may run code"
            _refuse(name, f"{why}; allow its type with torch.serialization.add_safe_globals([...]) before load()")
        plain = io.BytesIO()
        torch.save(
            loaded, plain
        )  # DefaultLoadPlanner loads any type, so it gets what was loaded here, and not the file
        plain.seek(0)
        super().load_bytes(read_item, plain)


def _refuse(what: str, why: str) -> NoReturn:
    raise ConfigError(f"{what} of the checkpoint is not loaded: {why}")
