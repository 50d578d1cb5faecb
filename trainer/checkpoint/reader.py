"""Finds the checkpoint to resume from; only a complete and intact one is used.

All processes take part: rank 0 proposes, each verifies some of the parts, and one refusal applies to all. What a
process verifies is mostly what it will need, so it keeps these parts in memory and does not read them again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar, cast

import numpy as np

from trainer.checkpoint.chunks import read_in_chunks
from trainer.checkpoint.claim import raise_shared_failure
from trainer.checkpoint.layout import parse_manifest, split_uri
from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest, Part, StepFolder, order_step_folders
from trainer.checkpoint.pointer import read_latest
from trainer.checkpoint.store import Store, open_store
from trainer.errors import ConfigError, MissingFolderError, StorageError
from trainer.team import Team

_CHECKERS = 4  # parts that a process verifies concurrently

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint whose checksums were correct when it was chosen.

    Attributes:
        kept: Parts in memory, by path.
    """

    store: Store
    manifest: Manifest
    kept: Mapping[str, memoryview] = field(default_factory=dict[str, memoryview], repr=False)


def find_newest_checkpoint(
    store: Store, team: Team, report: Callable[[str], None], *, up_to: int | None = None, room: int = 0
) -> Checkpoint | None:
    """Return the newest intact checkpoint, the same on every rank; None if there is none.

    Args:
        store: The folder of checkpoints.
        team: All ranks of the run.
        report: Receives why each newer checkpoint was skipped.
        up_to: The largest step to consider.
        room: Bytes of values that this process may keep in memory.

    Raises:
        StorageError: The bucket cannot be read, or a checkpoint has another format (which does not justify an older
            one); raised on every rank.
    """
    for name, unnamed in broadcast_from_first(team, lambda: _list_folders(store, up_to)):
        folder = _parse(name)
        text, refusal = "", unnamed
        if not unnamed:
            text, refusal = broadcast_from_first(team, partial(_read_manifest, store, folder))
        if not refusal:
            manifest = parse_manifest(text.encode(), folder)
            found, refusal = _verify_checkpoint(store, manifest, team, room)
            if found is not None:
                return found
        report(f"skipped checkpoint {folder.step}: {refusal}")
    return None


def choose_checkpoint(
    own: Store, resume_from: str, team: Team, report: Callable[[str], None], *, room: int = 0
) -> Checkpoint | None:
    """Return the checkpoint to start from; None for a new run.

    Args:
        own: This run's folder of checkpoints.
        resume_from: "" or "latest": the newest of this run. A folder of this run: that step, or the newest before it. A
            folder of another run (to fine-tune): this run's own newest once it has one, since that is further.
        team: All ranks of the run.
        report: Receives why each newer checkpoint was skipped.
        room: See `find_newest_checkpoint`.

    Raises:
        ConfigError: A folder is named that has no intact checkpoint, or one of this run behind its newest: each attempt
            would go back there again.
        StorageError: The bucket fails.
    """
    if resume_from in ("", "latest"):
        return find_newest_checkpoint(own, team, report, room=room)
    place, step = _split(resume_from)
    if _is_same_place(place, own):
        if broadcast_from_first(team, lambda: _has_later(own, step)):
            raise ConfigError(
                f"ORCH_RESUME_FROM={resume_from}: this run has later checkpoints; leave it out to resume, "
                "or give another checkpoint.uri to go back"
            )
        found = find_newest_checkpoint(own, team, report, up_to=step, room=room)
        return found if found is not None else _raise_nothing_to_start_from(resume_from)
    return find_newest_checkpoint(own, team, report, room=room) or find_named_checkpoint(
        resume_from, team, report, room=room
    )


def find_named_checkpoint(resume_from: str, team: Team, report: Callable[[str], None], *, room: int = 0) -> Checkpoint:
    """Return the checkpoint in that folder, or the newest intact one before it.

    Raises:
        ConfigError: There is none.
        StorageError: The bucket fails.
    """
    place, step = _split(resume_from)
    try:
        store = open_store(place)
    except MissingFolderError as error:
        raise ConfigError(f"nothing to start from: {resume_from}: {error}") from error
    found = find_newest_checkpoint(store, team, report, up_to=step, room=room)
    return found if found is not None else _raise_nothing_to_start_from(resume_from)


def broadcast_from_first(team: Team, find: Callable[[], T]) -> T:
    """Return on every rank what rank 0 found; it must be JSON-able.

    Raises:
        StorageError: Rank 0's, on every rank, because the others would wait; also TakenOver.
    """
    if team.world.is_first:
        try:
            answer = [find(), ""]
        except StorageError as error:
            answer = [None, str(error)]
        value, failure = team.gather(answer)[0]
    else:
        value, failure = team.gather(None)[0]
    if failure:
        raise_shared_failure(failure)
    return cast("T", value)


def verify_part(store: Store, folder: str, part: Part, into: memoryview | None = None) -> str:
    """Read a part to its end; return what is wrong with it, or "".

    Args:
        store: The folder of checkpoints.
        folder: Name of the checkpoint's folder.
        part: As the manifest describes it.
        into: Memory of its size, to keep it.

    Raises:
        StorageError: It cannot be read.
    """
    digest = hashlib.sha256()
    for stretch in read_in_chunks(store, f"{folder}/{part.name}", 0, part.size, into):
        digest.update(stretch)
    return "" if digest.hexdigest() == part.sha256 else f"{part.name} does not have its checksum"


def choose_verifying_rank(part: Part, index: int, writers: int, ranks: int) -> int:
    """Return the rank that verifies a part: the one that most likely needs it.

    Processes hold their regions in the order of their ranks, so it is the one at the writer's relative position: on the
    same mesh the writer itself. Where there are more processes than writers, those at its position take turns.

    Args:
        part: As the manifest describes it.
        index: Among all parts.
        writers: Processes that wrote the checkpoint.
        ranks: Processes that read it.
    """
    writer = min(part.writer, writers - 1)
    low, high = writer * ranks // writers, (writer + 1) * ranks // writers
    return low + index % max(1, high - low)


def _raise_nothing_to_start_from(resume_from: str) -> NoReturn:
    raise ConfigError(f"nothing to start from: {resume_from}: no intact checkpoint there or before it")


def _is_same_place(place: str, own: Store) -> bool:
    """Return whether a place is the run's own; one that was deleted is not."""
    try:
        return open_store(place).uri == own.uri
    except MissingFolderError:
        return False


def _split(resume_from: str) -> tuple[str, int]:
    place, step = split_uri(resume_from)
    if step is None:
        raise ConfigError(
            f"where to start from, {resume_from}, does not end with a folder like step-00001200: name the step's folder"
        )
    return place, step


def _has_later(store: Store, step: int) -> bool:
    later = [_parse(name) for name, refusal in _list_folders(store, None) if not refusal]
    return any(folder.step > step and store.find(folder.manifest) for folder in later)


def _list_folders(store: Store, up_to: int | None) -> list[tuple[str, str]]:
    """Return the names of the checkpoints' folders, newest first, each with why it is not used, or ""."""
    try:
        latest = read_latest(store)
    except CorruptCheckpoint:
        latest = None  # each complete checkpoint counts
    folders = order_step_folders(store.list_folders(), latest)
    return [(folder.name, refusal) for folder, refusal in folders if up_to is None or folder.step <= up_to]


def _parse(name: str) -> StepFolder:
    folder = StepFolder.parse(name)
    assert folder is not None  # noqa: S101  # `_list_folders` gives no other names
    return folder


def _read_manifest(store: Store, folder: StepFolder) -> tuple[str, str]:
    """Return (the manifest's text, "") or ("", what is wrong)."""
    found = store.find(folder.manifest)
    if found is None:
        return "", "it has no manifest: its writer was stopped"
    try:
        manifest = parse_manifest(found.data, folder)
    except CorruptCheckpoint as error:
        return "", str(error)
    sizes = {entry.path.rsplit("/", 1)[-1]: entry.size for entry in store.list_objects(folder.name)}
    for part in manifest.parts:
        if part.name not in sizes:
            return "", f"{part.name} is missing"
        if sizes[part.name] != part.size:
            return "", f"{part.name} has {sizes[part.name]} bytes instead of {part.size}"
    return found.data.decode(), ""


def _verify_checkpoint(store: Store, manifest: Manifest, team: Team, room: int) -> tuple[Checkpoint | None, str]:
    """Return (the checkpoint, "") or (None, what is wrong), the same on every rank."""
    rank, ranks = team.world.rank, team.world.size
    mine = [
        part
        for index, part in enumerate(manifest.parts)
        if choose_verifying_rank(part, index, max(1, manifest.world), ranks) == rank
    ]
    kept = dict(_allocate_parts(manifest.folder, mine, room))
    verdicts = team.gather(_verify_parts(store, manifest.folder, mine, kept))
    unreadable = next((error for error, _ in verdicts if error), "")
    if unreadable:
        raise StorageError(unreadable)
    refusal = next((verdict for _, verdict in verdicts if verdict), "")
    return (None, refusal) if refusal else (Checkpoint(store, manifest, kept), "")


def _allocate_parts(folder: str, parts: Sequence[Part], room: int) -> Iterator[tuple[str, memoryview]]:
    """Yield memory for the parts that are kept, by path."""
    for part in parts:
        if part.size - part.header <= room:
            room -= part.size - part.header
            yield f"{folder}/{part.name}", np.empty(part.size, np.uint8).data


def _verify_parts(store: Store, folder: str, parts: Sequence[Part], kept: Mapping[str, memoryview]) -> tuple[str, str]:
    """Return (why the parts cannot be read, what is wrong with them), each "" if nothing is."""
    with ThreadPoolExecutor(_CHECKERS, thread_name_prefix="check-part") as pool:
        begun = [pool.submit(verify_part, store, folder, part, kept.get(f"{folder}/{part.name}")) for part in parts]
        try:
            return "", next((verdict for future in begun if (verdict := future.result())), "")
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # pruned by another since it was listed
                return "", str(error)
            return str(error), ""
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # one that is wrong is enough
