"""The answers of the TPU compiler, kept in the state folder: one file a step, named by all that decides the answer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from orchestrator.engine.training.process import trainer_folder
from orchestrator.offers.speed_choice import CompiledSpeed, read_compiled_speed
from orchestrator.paths import load_paths
from orchestrator.private_files import make_private_folder, write_whole

_LARGEST = 1 << 20  # bytes of a file
_MOST = 500  # files that are read for their speeds, the newest


def read_answer(key: str) -> dict[str, Any] | None:
    """Return the kept answer; None where there is none, or it is broken.

    Args:
        key: Digest of what decides the answer.
    """
    return _read(_find_folder() / f"{key}.json")


def keep_answer(key: str, found: Mapping[str, Any]) -> None:
    """Keep an answer, best effort: without it the same step is compiled again."""
    folder = _find_folder()
    day = time.strftime("%Y-%m-%d", time.gmtime())
    with contextlib.suppress(OSError):
        make_private_folder(folder)
        write_whole(folder / f"{key}.json", json.dumps({**found, "trainer": digest_trainer(), "day": day}))


def load_compiled_speeds() -> dict[str, CompiledSpeed]:
    """Return the times of the steps that were compiled with this trainer, by the identity of the step.

    What another version of the trainer compiled is left out: its program may be another one.
    """
    folder = _find_folder()
    try:
        files = sorted(folder.glob("*.json"), key=lambda one: one.stat().st_mtime)[-_MOST:]
    except OSError:
        return {}
    return dict(_read_speeds(files)) if files else {}


def _read_speeds(files: list[Path]) -> Iterator[tuple[str, CompiledSpeed]]:
    """Yield the times, the newest last."""
    trainer = digest_trainer()
    for file in files:
        record = _read(file) or {}
        if record.get("trainer") == trainer and (speed := read_compiled_speed(record)) is not None:
            yield speed


def digest_trainer() -> str:
    """Return a digest of the trainer's own modules."""
    folder = trainer_folder() / "trainer"
    total = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        total.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return total.hexdigest()


def _find_folder() -> Path:
    return load_paths().state / "compiled"


def _read(file: Path) -> dict[str, Any] | None:
    try:
        if file.stat().st_size > _LARGEST:
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
