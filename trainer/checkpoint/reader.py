"""Finds the checkpoint to go on from, and reads it. Only what is whole and intact is ever taken.

All ranks take part: rank 0 proposes, each rank checks some of the parts, and one refusal counts for all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

import safetensors.torch
from torch import Tensor

from trainer.checkpoint.layout import Broken, Manifest, manifest_path, step_folder, step_of
from trainer.checkpoint.store import Store, open_store
from trainer.distributed import Team
from trainer.errors import StorageError


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint whose checksums held when it was chosen."""

    store: Store
    manifest: Manifest

    def tensors(self) -> Iterator[dict[str, Tensor]]:
        """The tensors of one part after the other, checked again. Raises StorageError."""
        for part in self.manifest.parts:
            path = f"{step_folder(self.manifest.step)}/{part.name}"
            found = self.store.find(path)
            if found is None or hashlib.sha256(found.data).hexdigest() != part.sha256:
                raise StorageError(f"{self.store.uri}/{path} changed while it was read")
            yield safetensors.torch.load(found.data)


def newest(store: Store, team: Team, report: Callable[[str], None], *, up_to: int | None = None) -> Checkpoint | None:
    """The newest intact checkpoint, at or before step `up_to`; each one that is passed over is reported.

    Returns the same on every rank. Raises StorageError when the bucket cannot be read: that is no reason to
    take an older one.
    """
    steps = team.gather(_steps(store, up_to) if team.world.is_first else [])[0]
    for step in steps:
        manifest, refusal = team.gather(_read_manifest(store, step) if team.world.is_first else (None, ""))[0]
        if manifest is not None:
            verdicts = team.gather(_check_parts(store, manifest, team.world.rank, team.world.size))
            refusal = next((verdict for verdict in verdicts if verdict), "")
            if not refusal:
                return Checkpoint(store, manifest)
        report(f"skipped checkpoint {step}: {refusal}")
    return None


def choose(own: Store, resume_from: str, team: Team, report: Callable[[str], None]) -> Checkpoint | None:
    """The checkpoint to start from. resume_from: "", "latest", or the URI of a step's folder.

    "" and "latest": the newest of this run. A folder of this run: that one, or the newest before it. A folder of
    another run (to fine-tune): this run's own newest once it has one, since that is further.
    """
    if resume_from in ("", "latest"):
        return newest(own, team, report)
    place, step = _split(resume_from)
    if open_store(place).uri == own.uri:
        found = newest(own, team, report, up_to=step)
        return found if found is not None else _nothing(resume_from)
    return newest(own, team, report) or named(resume_from, team, report)


def named(resume_from: str, team: Team, report: Callable[[str], None]) -> Checkpoint:
    """The checkpoint in that folder, or the newest intact one before it. Raises StorageError when there is none."""
    place, step = _split(resume_from)
    found = newest(open_store(place), team, report, up_to=step)
    return found if found is not None else _nothing(resume_from)


def _nothing(resume_from: str) -> NoReturn:
    raise StorageError(f"ORCH_RESUME_FROM={resume_from}: no intact checkpoint there or before it")


def _split(resume_from: str) -> tuple[str, int]:
    place, _, folder = resume_from.rstrip("/").rpartition("/")
    step = step_of(folder)
    if step is None:
        raise StorageError(f"ORCH_RESUME_FROM={resume_from}: does not end with a folder like step-00001200")
    return place, step


def _steps(store: Store, up_to: int | None) -> list[int]:
    steps = [step for name in store.folders() if (step := step_of(name)) is not None]
    return sorted((step for step in steps if up_to is None or step <= up_to), reverse=True)


def _read_manifest(store: Store, step: int) -> tuple[Manifest | None, str]:
    found = store.find(manifest_path(step))
    if found is None:
        return None, "it has no manifest: its writer was stopped"
    try:
        manifest = Manifest.from_json(found.data, step)
    except Broken as error:
        return None, str(error)
    sizes = {entry.path.rsplit("/", 1)[-1]: entry.size for entry in store.entries(step_folder(step))}
    for part in manifest.parts:
        if part.name not in sizes:
            return None, f"{part.name} is missing"
        if sizes[part.name] != part.size:
            return None, f"{part.name} has {sizes[part.name]} bytes instead of {part.size}"
    return manifest, ""


def _check_parts(store: Store, manifest: Manifest, rank: int, ranks: int) -> str:
    """Checksums of every ranks-th part. Returns what is wrong, or ""."""
    for part in manifest.parts[rank::ranks]:
        found = store.find(f"{step_folder(manifest.step)}/{part.name}")
        if found is None:
            return f"{part.name} is missing"
        if hashlib.sha256(found.data).hexdigest() != part.sha256:
            return f"{part.name} does not have its checksum"
    return ""
