"""Finds the checkpoint to go on from. Only what is whole and intact is ever taken.

All processes take part: rank 0 proposes, each checks some of the parts, and one refusal counts for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeVar, cast

from trainer.checkpoint.layout import Broken, Manifest, Part, manifest_path, part_path, split_uri, step_folder, step_of
from trainer.checkpoint.store import Store, open_store
from trainer.errors import ConfigError, StorageError
from trainer.team import Team

_CHECKERS = 4  # parts that a process reads at once to check them
_CHUNK = 16 << 20  # bytes of a part that are in memory for it

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint whose checksums held when it was chosen."""

    store: Store
    manifest: Manifest


def newest(store: Store, team: Team, report: Callable[[str], None], *, up_to: int | None = None) -> Checkpoint | None:
    """The newest intact checkpoint, at or before step `up_to`; each one that is passed over is reported.

    Returns the same on every rank. Raises StorageError on all ranks when the bucket cannot be read, or a checkpoint is
    of another format: that is no reason to take an older one.
    """
    for step in first_says(team, lambda: _steps(store, up_to)):
        text, refusal = first_says(team, partial(_read_manifest, store, step))
        if not refusal:
            manifest = Manifest.from_json(text.encode(), step)
            verdicts = team.gather(_check_parts(store, manifest, team.world.rank, team.world.size))
            unreadable = next((error for error, _ in verdicts if error), "")
            if unreadable:
                raise StorageError(unreadable)
            refusal = next((verdict for _, verdict in verdicts if verdict), "")
            if not refusal:
                return Checkpoint(store, manifest)
        report(f"skipped checkpoint {step}: {refusal}")
    return None


def choose(own: Store, resume_from: str, team: Team, report: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint to start from. resume_from: "", "latest", or the URI of a step's folder.

    "" and "latest": the newest of this run. A folder of this run: that one, or the newest before it. A folder of
    another run (to fine-tune): this run's own newest once it has one, since that is further.

    Raises ConfigError for a folder of this run behind its newest: each attempt would go back there again.
    """
    if resume_from in ("", "latest"):
        return newest(own, team, report)
    place, step = _split(resume_from)
    if open_store(place).uri == own.uri:
        if first_says(team, lambda: _has_later(own, step)):
            raise ConfigError(
                f"ORCH_RESUME_FROM={resume_from}: this run has later checkpoints; leave it out to go on, "
                "or give another checkpoint.uri to go back"
            )
        found = newest(own, team, report, up_to=step)
        return found if found is not None else _nothing(resume_from)
    return newest(own, team, report) or named(resume_from, team, report)


def named(resume_from: str, team: Team, report: Callable[[str], None]) -> Checkpoint:
    """The checkpoint in that folder, or the newest intact one before it. Raises StorageError when there is none."""
    place, step = _split(resume_from)
    found = newest(open_store(place), team, report, up_to=step)
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


def check_part(store: Store, step: int, part: Part) -> str:
    """Read a part to its end. Returns what is wrong, or "". Raises StorageError when it cannot be read."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(min(part.size, _CHUNK)))
    for start in range(0, part.size, _CHUNK):
        chunk = buffer[: min(_CHUNK, part.size - start)]
        store.read_into(part_path(step, part.name), start, chunk)
        digest.update(chunk)
    return "" if digest.hexdigest() == part.sha256 else f"{part.name} does not have its checksum"


def _nothing(resume_from: str) -> NoReturn:
    raise StorageError(f"ORCH_RESUME_FROM={resume_from}: no intact checkpoint there or before it")


def _split(resume_from: str) -> tuple[str, int]:
    place, step = split_uri(resume_from)
    if step is None:
        raise StorageError(f"ORCH_RESUME_FROM={resume_from}: does not end with a folder like step-00001200")
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


def _check_parts(store: Store, manifest: Manifest, rank: int, ranks: int) -> tuple[str, str]:
    """Checksums of every ranks-th part. Returns (why they cannot be read, what is wrong), each "" if nothing is."""
    with ThreadPoolExecutor(_CHECKERS, thread_name_prefix="check-part") as pool:
        verdicts: Iterator[str] = pool.map(partial(check_part, store, manifest.step), manifest.parts[rank::ranks])
        try:
            return "", next((verdict for verdict in verdicts if verdict), "")
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # pruned by another since it was listed
                return "", str(error)
            return str(error), ""
