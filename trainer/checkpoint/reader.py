"""Finds the checkpoint to go on from. Only what is whole and intact is ever taken.

All processes take part: rank 0 proposes, each checks some of the parts, and one refusal counts for all. What a process
checks is mostly what it will need, so it keeps the parts in memory: they are read once, and are taken as checked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn, TypeVar, cast

import numpy as np

from trainer.checkpoint.layout import Broken, Manifest, Part, manifest_path, part_path, split_uri, step_folder, step_of
from trainer.checkpoint.store import Store, open_store
from trainer.checkpoint.streams import stretches
from trainer.errors import ConfigError, StorageError
from trainer.team import Team

_CHECKERS = 4  # parts that a process reads at once to check them

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint whose checksums held when it was chosen. kept: parts in memory, by path."""

    store: Store
    manifest: Manifest
    kept: Mapping[str, memoryview] = field(default_factory=dict[str, memoryview], repr=False)


def newest(
    store: Store, team: Team, report: Callable[[str], None], *, up_to: int | None = None, room: int = 0
) -> Checkpoint | None:
    """The newest intact checkpoint, at or before step `up_to`; each one that is passed over is reported.

    room: bytes of values that this process may keep in memory. Returns the same on every rank, but for what is kept.
    Raises StorageError on all ranks when the bucket cannot be read, or a checkpoint is of another format: that is no
    reason to take an older one.
    """
    for step in first_says(team, lambda: _steps(store, up_to)):
        text, refusal = first_says(team, partial(_read_manifest, store, step))
        if not refusal:
            manifest = Manifest.from_json(text.encode(), step)
            found, refusal = _checked(store, manifest, team, room)
            if found is not None:
                return found
        report(f"skipped checkpoint {step}: {refusal}")
    return None


def choose(
    own: Store, resume_from: str, team: Team, report: Callable[[str], None], *, room: int = 0
) -> Checkpoint | None:
    """The checkpoint to start from. resume_from: "", "latest", or the URI of a step's folder. room: see `newest`.

    "" and "latest": the newest of this run. A folder of this run: that one, or the newest before it. A folder of
    another run (to fine-tune): this run's own newest once it has one, since that is further.

    Raises ConfigError for a folder of this run behind its newest: each attempt would go back there again.
    """
    if resume_from in ("", "latest"):
        return newest(own, team, report, room=room)
    place, step = _split(resume_from)
    if open_store(place).uri == own.uri:
        if first_says(team, lambda: _has_later(own, step)):
            raise ConfigError(
                f"ORCH_RESUME_FROM={resume_from}: this run has later checkpoints; leave it out to go on, "
                "or give another checkpoint.uri to go back"
            )
        found = newest(own, team, report, up_to=step, room=room)
        return found if found is not None else _nothing(resume_from)
    return newest(own, team, report, room=room) or named(resume_from, team, report, room=room)


def named(resume_from: str, team: Team, report: Callable[[str], None], *, room: int = 0) -> Checkpoint:
    """The checkpoint in that folder, or the newest intact one before it. Raises StorageError when there is none."""
    place, step = _split(resume_from)
    found = newest(open_store(place), team, report, up_to=step, room=room)
    return found if found is not None else _nothing(resume_from)


def first_says(team: Team, find: Callable[[], T]) -> T:
    """What rank 0 found, on every rank. T: JSON-able. Raises its StorageError on every rank: else they would wait."""
    if team.world.is_first:
        try:
            answer = [find(), ""]
        except StorageError as error:
            answer = [None, str(error)]
        value, failure = team.gather(answer)[0]
    else:
        value, failure = team.gather(None)[0]
    if failure:
        raise StorageError(failure)
    return cast("T", value)


def check_part(store: Store, step: int, part: Part, into: memoryview | None = None) -> str:
    """Read a part to its end. into: of its size, to keep it there. Returns what is wrong, or "".

    Raises StorageError when it cannot be read.
    """
    digest = hashlib.sha256()
    for stretch in stretches(store, part_path(step, part.name), 0, part.size, into):
        digest.update(stretch)
    return "" if digest.hexdigest() == part.sha256 else f"{part.name} does not have its checksum"


def checker_of(part: Part, index: int, writers: int, ranks: int) -> int:
    """The rank that checks a part: the one that most likely needs it. index: among all parts. writers: processes that
    wrote the checkpoint.

    Processes hold their regions in the order of their ranks, so the one at the writer's place among all: on the same
    mesh that is the writer itself. Where there are more processes than writers, those at its place take turns.
    """
    writer = min(part.writer, writers - 1)
    low, high = writer * ranks // writers, (writer + 1) * ranks // writers
    return low + index % max(1, high - low)


def _nothing(resume_from: str) -> NoReturn:
    raise StorageError(f"nothing to start from: {resume_from}: no intact checkpoint there or before it")


def _split(resume_from: str) -> tuple[str, int]:
    place, step = split_uri(resume_from)
    if step is None:
        raise StorageError(
            f"where to start from, {resume_from}, does not end with a folder like step-00001200: name the step's folder"
        )
    return place, step


def _has_later(store: Store, step: int) -> bool:
    return any(later > step and store.find(manifest_path(later)) for later in _steps(store, None))


def _steps(store: Store, up_to: int | None) -> list[int]:
    steps = [step for name in store.folders() if (step := step_of(name)) is not None]
    return sorted((step for step in steps if up_to is None or step <= up_to), reverse=True)


def _read_manifest(store: Store, step: int) -> tuple[str, str]:
    """(its text, "") or ("", what is wrong)."""
    found = store.find(manifest_path(step))
    if found is None:
        return "", "it has no manifest: its writer was stopped"
    try:
        manifest = Manifest.from_json(found.data, step)
    except Broken as error:
        return "", str(error)
    sizes = {entry.path.rsplit("/", 1)[-1]: entry.size for entry in store.entries(step_folder(step))}
    for part in manifest.parts:
        if part.name not in sizes:
            return "", f"{part.name} is missing"
        if sizes[part.name] != part.size:
            return "", f"{part.name} has {sizes[part.name]} bytes instead of {part.size}"
    return found.data.decode(), ""


def _checked(store: Store, manifest: Manifest, team: Team, room: int) -> tuple[Checkpoint | None, str]:
    """(the checkpoint, "") or (None, what is wrong), the same on every rank. Raises StorageError on every rank."""
    rank, ranks = team.world.rank, team.world.size
    mine = [
        part
        for index, part in enumerate(manifest.parts)
        if checker_of(part, index, max(1, manifest.world), ranks) == rank
    ]
    kept = dict(_places(manifest.step, mine, room))
    verdicts = team.gather(_check_parts(store, manifest.step, mine, kept))
    unreadable = next((error for error, _ in verdicts if error), "")
    if unreadable:
        raise StorageError(unreadable)
    refusal = next((verdict for _, verdict in verdicts if verdict), "")
    return (None, refusal) if refusal else (Checkpoint(store, manifest, kept), "")


def _places(step: int, parts: Sequence[Part], room: int) -> Iterator[tuple[str, memoryview]]:
    """Memory for the parts that are kept, by path."""
    for part in parts:
        if part.size - part.header <= room:
            room -= part.size - part.header
            yield part_path(step, part.name), np.empty(part.size, np.uint8).data


def _check_parts(store: Store, step: int, parts: Sequence[Part], kept: Mapping[str, memoryview]) -> tuple[str, str]:
    """Returns (why they cannot be read, what is wrong), each "" if nothing is."""
    with ThreadPoolExecutor(_CHECKERS, thread_name_prefix="check-part") as pool:
        begun = [pool.submit(check_part, store, step, part, kept.get(part_path(step, part.name))) for part in parts]
        try:
            return "", next((verdict for future in begun if (verdict := future.result())), "")
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # pruned by another since it was listed
                return "", str(error)
            return str(error), ""
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # one that is wrong is enough
