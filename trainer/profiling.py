"""Recording a few steps on demand: whoever watches puts a request into the job's folder, each rank answers there.

Request: $ORCH_JOB_DIR/profile-request.json, {"id": "...", "steps": 10}, put there by rename; with "ranks": [0], others
do not record; with "at": 1780000000, seconds since the epoch, none begins before, so that hosts with good clocks record
the same steps. Taken away while a rank waits or records, it ends that without a trace. Answer, in
$ORCH_JOB_DIR/profiles/<id>/: the library's traces in rank-<rank>/, then done-<rank>.json, or failed-<rank>.json
with {"why"}.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trainer.console import Console
from trainer.engine import Engine
from trainer.environment import World
from trainer.errors import DeviceError, PeerError
from trainer.wire import as_object

REQUEST = "profile-request.json"
MOST_STEPS = 1000
_SECONDS = 0.5  # between two looks
_MOST_AHEAD = 60.0  # seconds: an "at" beyond is by a clock that is not this host's, and counts for nothing


@dataclass(frozen=True, slots=True)
class _Request:
    """ranks: None for all. at: seconds since the epoch; 0: at once."""

    name: str
    steps: int
    ranks: list[object] | None
    at: float


@dataclass(frozen=True, slots=True)
class _Recording:
    folder: Path
    rank: int
    first: int
    steps: int
    context: AbstractContextManager[object]
    started: float


class Profiler:
    """folder: the job's; None: nobody can ask. A profile that fails is a note and never ends the run."""

    def __init__(self, folder: Path | None, engine: Engine, world: World, console: Console) -> None:
        self._folder = folder
        self._engine = engine
        self._rank = world.rank
        self._console = console
        self._next = 0.0
        self._seen: tuple[int, int] | None = None
        self._asked: _Request | None = None
        self._recording: _Recording | None = None

    def between(self, step: int) -> None:
        """Call it between two steps. step: steps done."""
        recording, asked = self._recording, self._asked
        over = recording is not None and step - recording.first >= recording.steps
        due = asked is not None and time.time() >= asked.at
        if self._folder is None or (time.monotonic() < self._next and not over and not due):
            return
        self._next = time.monotonic() + _SECONDS
        path = self._folder / REQUEST
        if recording is not None:
            if not path.exists():
                self._drop(recording)
            elif over:
                self._finish(step)
            return
        self._look(path)
        if self._asked is not None and time.time() >= self._asked.at:
            asked, self._asked = self._asked, None
            self._begin(path.parent / "profiles" / asked.name, asked.steps, step)

    def close(self, step: int) -> None:
        """The last step is done: what was recorded until now counts."""
        if self._recording is not None:
            self._finish(step)

    def _look(self, path: Path) -> None:
        """Whether somebody asks this rank, still or anew."""
        try:
            found = path.stat()
        except OSError:
            self._asked = None
            return
        if self._seen == (found.st_ino, found.st_mtime_ns):
            return
        self._seen, self._asked = (found.st_ino, found.st_mtime_ns), None
        try:
            asked = _read(path)
        except (OSError, ValueError) as error:
            self._console.every(f"note: {path} is no request for a profile: {error}")
            return
        folder = path.parent / "profiles" / asked.name
        if asked.ranks is not None and self._rank not in asked.ranks:
            return
        if any((folder / f"{word}-{self._rank}.json").exists() for word in ("done", "failed")):
            return  # answered by an attempt before this one
        self._asked = asked

    def _begin(self, folder: Path, steps: int, step: int) -> None:
        try:
            place = folder / f"rank-{self._rank}"
            place.mkdir(parents=True, exist_ok=True)
            context = self._engine.profile(place)
            context.__enter__()
        except Exception as error:  # a library's profiler may fail in any way; the run is worth more
            self._answer(folder, "failed", {"why": _why(error)})
            return
        self._recording = _Recording(folder, self._rank, step, steps, context, time.monotonic())
        self._console.first(f"profile {folder.name}: recording {steps} steps")

    def _drop(self, recording: _Recording) -> None:
        """Whoever asked has given up: nothing stays behind."""
        self._recording = None
        with suppress(Exception):  # its folder may be gone, and a library's profiler may fail in any way
            recording.context.__exit__(None, None, None)
        shutil.rmtree(recording.folder / f"rank-{self._rank}", ignore_errors=True)
        with suppress(OSError):  # other ranks' folders
            recording.folder.rmdir()
        self._console.first(f"profile {recording.folder.name}: taken back")

    def _finish(self, step: int) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        try:
            self._engine.numbers()  # until the devices have done what is to be recorded
            recording.context.__exit__(None, None, None)
        except (PeerError, DeviceError):
            raise  # it is the run that fails
        except Exception as error:  # as above
            self._answer(recording.folder, "failed", {"why": _why(error)})
            return
        place = recording.folder / f"rank-{self._rank}"
        files = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
        self._answer(
            recording.folder,
            "done",
            {
                "steps": step - recording.first,
                "first_step": recording.first + 1,
                "seconds": round(time.monotonic() - recording.started, 3),
                "engine": self._engine.name,
                "files": files,
            },
        )
        self._console.first(f"profile {recording.folder.name}: {step - recording.first} steps recorded")

    def _answer(self, folder: Path, word: str, content: dict[str, Any]) -> None:
        path = folder / f"{word}-{self._rank}.json"
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps({"id": folder.name, "rank": self._rank, **content}) + "\n")
            temporary.replace(path)
        except OSError as error:
            self._console.every(f"note: rank {self._rank} cannot answer in {folder}: {error}")
        if word == "failed":
            self._console.every(f"note: rank {self._rank} recorded no profile: {content['why']}")


def _read(path: Path) -> _Request:
    """Raises ValueError and OSError."""
    request = as_object(json.loads(path.read_text()))
    name, steps, ranks, at = (request.get(key) for key in ("id", "steps", "ranks", "at"))
    # The id becomes a folder's name.
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(f"id {name!r} is not a plain name")
    if not isinstance(steps, int) or isinstance(steps, bool) or not 0 < steps <= MOST_STEPS:
        raise ValueError(f"steps {steps!r} is not a number from 1 to {MOST_STEPS}")
    if ranks is not None and not isinstance(ranks, list):
        raise ValueError(f"ranks {ranks!r} is not a list")
    begin = float(at) if isinstance(at, int | float) and at - time.time() <= _MOST_AHEAD else 0.0
    return _Request(name, steps, cast("list[object] | None", ranks), begin)


def _why(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no reason given'}"
