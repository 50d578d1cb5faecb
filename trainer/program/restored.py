"""The folder to which a program's checkpoint is restored: its files, and a record of which are the run's.

Files that a restore wrote, or a save read, are the run's: another restore replaces or removes them. All others are
kept, and set aside where the checkpoint has a file of their name. The record, a lock, the files that are being written
and those set aside have names that no checkpoint may use (see RESERVED).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..checkpoint.file_lock import hold_lock
from ..checkpoint.manifest import RESERVED, Manifest, Part, check_file_path
from ..checkpoint.store import Store
from ..errors import ConfigError, StorageError

_CONCURRENT = 4  # files that are read at the same time
_CHUNK = 32 << 20
_RECORD = f"{RESERVED}.json"
_LOCK = f"{RESERVED}.lock"
_LOCK_SECONDS = 3600.0  # another process of the host may be downloading a large checkpoint
_PARTS = f"{RESERVED}.parts"  # a folder: names of files may be as long as the disk allows
_KEPT = f"{RESERVED}.kept"  # a folder with files of others, which a restore has set aside
_SEVERAL = "several"  # in place of a checkpoint


def download_files(
    store: Store,
    manifest: Manifest,
    folder: Path,
    chosen: Callable[[str], bool],
    *,
    report: Callable[[str], None],
    is_current: Callable[[], bool] = lambda: True,
) -> str:
    """Write the files of a checkpoint to a folder, in place of those that the run restored or saved there before.

    A file that is there with the right checksum is not read again. Processes that share the folder take turns, and
    files that another one has restored from the same checkpoint stay.

    Args:
        store: The folder of checkpoints.
        manifest: Of the checkpoint.
        folder: Where its files go.
        chosen: Whether a file, named by its path, is one of them.
        report: Prints a line, when another process has the folder for long, or files are set aside.
        is_current: Whether the checkpoint is still the one to restore, once this process has the folder.

    Returns:
        What is wrong with the checkpoint, or "".

    Raises:
        StorageError: The bucket fails, or the disk does.
        ConfigError: The program itself is in the folder, with files that are not the run's.
    """
    parts = [part for part in manifest.parts if chosen(part.file)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_own(folder)
        with (
            hold_lock(folder / _LOCK, seconds=_LOCK_SECONDS, report=report),
            ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="orch-run-part") as pool,
        ):
            if not is_current():
                return "another checkpoint is restored in its place"
            _set_aside(folder, parts, report)
            _remove_earlier(folder, _identify_checkpoint(store, manifest), {part.file for part in parts})
            temporary = folder / _PARTS
            shutil.rmtree(temporary, ignore_errors=True)  # of a restore that was killed
            temporary.mkdir()
            begun = [
                pool.submit(_download, store, manifest.folder, folder, temporary / str(index), part)
                for index, part in enumerate(parts)
            ]
            refusals = [future.result() for future in begun]
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise StorageError(f"{folder}: the checkpoint cannot be written there: {error}") from error
    return next((refusal for refusal in refusals if refusal), "")


def _identify_checkpoint(store: Store, manifest: Manifest) -> str:
    """Return a text for a checkpoint; it is another one once a damaged step has been written again."""
    files = json.dumps([(part.file, part.sha256) for part in manifest.parts])
    return f"{store.uri}/{manifest.folder} {hashlib.sha256(files.encode()).hexdigest()[:16]}"


def _download(store: Store, folder: str, target: Path, temporary: Path, part: Part) -> str:
    place = target / part.file
    if _has_content(place, part):
        return ""
    place.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with temporary.open("wb") as file:
        for at in range(0, part.size, _CHUNK):
            chunk = memoryview(bytearray(min(_CHUNK, part.size - at)))
            store.read_into(f"{folder}/{part.name}", at, chunk)
            digest.update(chunk)
            file.write(chunk)
    if digest.hexdigest() != part.sha256:
        temporary.unlink()
        return f"{part.file} does not have its checksum"
    temporary.replace(place)
    return ""


def _has_content(path: Path, part: Part) -> bool:
    return path.is_file() and path.stat().st_size == part.size and _digest(path) == part.sha256


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def note_saved(folder: Path, names: Sequence[str], report: Callable[[str], None]) -> None:
    """Record that files of a folder are the run's, so that a restore may replace them.

    Raises:
        StorageError: The disk fails.
    """
    if _holds_program(folder):
        return
    with hold_lock(folder / _LOCK, seconds=_LOCK_SECONDS, report=report):
        known = _read_record(folder)[1]
        if not known.issuperset(names):
            _write_record(folder, _SEVERAL, known.union(names))


def _holds_program(folder: Path) -> bool:
    """Return whether the working folder or the program's file is in a folder: its files are not only a checkpoint's."""
    place = folder.resolve()
    return any(path.is_relative_to(place) for path in (Path.cwd(), Path(sys.argv[0] or ".").resolve()))


def _check_own(folder: Path) -> None:
    """Refuse the program's own folder. Another process may be restoring to it: its record precedes its files."""
    others = [path for path in folder.iterdir() if not path.name.startswith(RESERVED)]
    if others and not (folder / _RECORD).is_file() and _holds_program(folder):
        raise ConfigError(
            f"restore({str(folder)!r}): the folder holds files, and the program works in it: name another folder"
        )


def _set_aside(folder: Path, parts: Sequence[Part], report: Callable[[str], None]) -> None:
    """Move files of others that the checkpoint would replace, and what is a file where it needs a folder."""
    own = _read_record(folder)[1]
    aside: list[str] = []
    for part in parts:
        above = [str(path) for path in reversed(Path(part.file).parents) if path.name]
        blocking = [name for name in above if (folder / name).is_symlink() or (folder / name).is_file()]
        name = next(iter(blocking), part.file)
        place = folder / name
        if name in own or not (place.exists() or place.is_symlink()) or _has_content(place, part):
            continue
        if place.is_dir() and not place.is_symlink() and any(one.startswith(f"{name}/") for one in own):
            continue  # a folder of files that were the run's
        number = sum(1 for _ in (folder / _KEPT).glob("*")) if (folder / _KEPT).is_dir() else 0
        kept = folder / _KEPT / str(number) / name
        kept.parent.mkdir(parents=True)
        place.rename(kept)
        aside.append(name)
    if aside:
        some = ", ".join(aside[:3]) + (f" and {len(aside) - 3} more" if len(aside) > 3 else "")
        report(f"restore: files that this run did not write are kept in {folder / _KEPT}: {some}")


def _remove_earlier(folder: Path, checkpoint: str, expected: set[str]) -> None:
    """Remove what restores of other checkpoints wrote and this one does not."""
    source, earlier = _read_record(folder)
    kept = earlier | expected if source == checkpoint else expected
    if earlier - kept:
        _write_record(folder, _SEVERAL, earlier | expected)  # also when this is killed
    for name in sorted(earlier - kept, reverse=True):  # files before the folders that hold them
        place = folder / name
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if not place.is_dir() or place.is_symlink():
                place.unlink()
        for parent in [place, *place.parents][: len(Path(name).parts)]:
            with contextlib.suppress(OSError):  # it holds other files, or is none
                parent.rmdir()
    _write_record(folder, checkpoint, kept)


def _read_record(folder: Path) -> tuple[str, set[str]]:
    """Return the checkpoint and the files of an earlier restore; none where the record is damaged or absent.

    What it names is removed, so each name is checked as those of a manifest are. A power failure may damage it.
    """
    try:
        content: Any = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        return str(content["checkpoint"]), {check_file_path(name) for name in content["files"]}
    except FileNotFoundError:
        return "", set()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # CorruptCheckpoint is a ValueError
        return "", set()


def _write_record(folder: Path, checkpoint: str, files: set[str]) -> None:
    temporary = folder / f"{_RECORD}.tmp"
    temporary.write_text(json.dumps({"checkpoint": checkpoint, "files": sorted(files)}), encoding="utf-8")
    temporary.replace(folder / _RECORD)
