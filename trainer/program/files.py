"""The files of a program's checkpoint: listed in its folder, copied, and uploaded as parts."""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..checkpoint.manifest import (
    PROGRAM_FORMAT,
    RESERVED,
    CorruptCheckpoint,
    Manifest,
    Part,
    StepFolder,
    UnsupportedFormat,
    check_file_path,
)
from ..checkpoint.store import Store
from ..errors import ConfigError, StorageError
from .trust import Trust

_CONCURRENT = 4  # files that are hashed and sent at the same time


def list_files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, sorted; empty folders are not kept.

    Raises:
        ConfigError: There are none, or something is there that is not a file or folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"save({str(folder)!r}): there is no such folder")
    found: list[str] = []
    for place, folders, names in os.walk(folder, onerror=_raise):
        if Path(place) == folder:
            folders[:] = [name for name in folders if not name.startswith(RESERVED)]  # of a restore to this folder
        found += [str(Path(place, name).relative_to(folder)) for name in names]
        linked = [name for name in folders if Path(place, name).is_symlink()]
        if linked:
            raise ConfigError(f"{Path(place, linked[0])} is a link to a folder, which is not saved: copy the files")
    found = [name for name in found if not name.startswith(RESERVED)]
    for name in sorted(found):
        if not (folder / name).is_file():
            raise ConfigError(f"{folder / name} is no file, so it cannot be saved")
        try:
            check_file_path(name)
        except CorruptCheckpoint as error:
            raise ConfigError(f"{folder / name} cannot be saved under that name: rename it") from error
    if not found:
        raise ConfigError(f"save({str(folder)!r}): the folder is empty")
    return sorted(found)


def copy_files(folder: Path, names: Sequence[str], target: Path) -> None:
    """Copy files, so that the program may go on writing to its own."""
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, target / name)


def upload_files(store: Store, folder: str, rank: int, place: Path, names: Sequence[str]) -> tuple[Part, ...]:
    """Upload the files of one rank as parts of a checkpoint's folder; return their entries of the manifest.

    Raises:
        StorageError: The bucket fails, or a file cannot be read.
    """
    with ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="orch-run-part") as pool:
        begun = [
            pool.submit(_upload, store, folder, f"part-{rank:05d}-{index:03d}.file", place, name)
            for index, name in enumerate(names)
        ]
        return tuple(future.result() for future in begun)


def read_manifest(store: Store, folder: StepFolder, trust: Trust) -> Manifest | str:
    """Return the manifest of a checkpoint whose parts are all there, or why it is not used.

    Raises:
        StorageError: The bundled trainer wrote it, or a newer version, or its writer is unknown; skipping it would lose
            a run.
    """
    found = store.find(folder.manifest)
    if found is None:
        return "it has no manifest: its writer was stopped"
    try:
        manifest = Manifest.from_json(found.data, folder)
    except UnsupportedFormat as error:
        raise StorageError(f"{store.uri}/{folder.name}: {error}: update orch, or give another folder") from error
    except CorruptCheckpoint as error:
        return str(error)
    if manifest.format != PROGRAM_FORMAT:
        raise StorageError(
            f"{store.uri}/{folder.name} was written by the bundled trainer: give the program another run or folder"
        )
    sizes = {entry.path.rsplit("/", 1)[-1]: entry.size for entry in store.list_objects(folder.name)}
    for part in manifest.parts:
        if sizes.get(part.name) != part.size:
            return f"{part.file} is missing or has another size"
    trust.check(store, manifest, found.data)
    return manifest


def _upload(store: Store, folder: str, name: str, place: Path, file: str) -> Part:
    with _mapped(place / file) as data:
        digest = hashlib.sha256(data)
        store.put(f"{folder}/{name}", data)
        return Part(name=name, size=len(data), header=0, sha256=digest.hexdigest(), file=file)


@contextlib.contextmanager
def _mapped(path: Path) -> Generator[memoryview, None, None]:
    """Open a file as memory that the system reads when it is needed."""
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                yield memoryview(b"")
                return
            # Not closed here: the frames of a failed write still refer to it, and closing would hide their error.
            yield memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def _raise(error: OSError) -> None:
    """Raise an error of a listing: a folder that cannot be read must not be left out of a checkpoint."""
    raise error


@contextlib.contextmanager
def reporting_disk(call: str) -> Generator[None, None, None]:
    """Translate errors of the local disk to StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{call}: the local disk fails: {error}") from error
