"""Records a few steps on demand: a request in the job's folder starts it, and each rank answers there.

Request: $ORCH_JOB_DIR/profile-request.json, {"id": "...", "steps": 10}, put there by rename. With "ranks": [0], other
ranks do not record; with "at": 1780000000, seconds since the epoch, no rank begins earlier, so that hosts with
synchronized clocks record the same steps. If it is removed while a rank waits or records, the rank discards the
profile. Answer, in $ORCH_JOB_DIR/profiles/<id>/: the library's traces in rank-<rank>/, then done-<rank>.json, or
failed-<rank>.json with {"why"}.
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
MAX_STEPS = 1000
_SECONDS_BETWEEN_POLLS = 0.5  # between two checks
_MAX_DELAY = 60.0  # seconds: a later "at" comes from another clock and is ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request to record.

    Attributes:
        ranks: The ranks that record; None for all.
        at: Seconds since the epoch at which recording begins; 0 for immediately.
    """

    name: str
    steps: int
    ranks: list[object] | None
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    folder: Path
    rank: int
    first: int
    steps: int
    context: AbstractContextManager[object]
    started: float


class Profiler:
    """Records steps when a request appears in the job's folder; a failed profile is a note and never ends the run."""

    def __init__(self, folder: Path | None, engine: Engine, world: World, console: Console) -> None:
        """Watch a folder for requests.

        Args:
            folder: The job's; None: there are no requests.
            engine: Its library records.
            world: Which rank this process is.
            console: For notes.
        """
        self._folder = folder
        self._engine = engine
        self._rank = world.rank
        self._console = console
        self._next = 0.0
        self._last_request: tuple[int, int] | None = None
        self._pending: _Request | None = None
        self._recording: _Recording | None = None

    def poll(self, step: int) -> None:
        """Start, cancel or finish a recording as due; call it between two steps.

        Args:
            step: Steps that are done.
        """
        recording, pending = self._recording, self._pending
        over = recording is not None and step - recording.first >= recording.steps
        due = pending is not None and time.time() >= pending.at
        if self._folder is None or (time.monotonic() < self._next and not over and not due):
            return
        self._next = time.monotonic() + _SECONDS_BETWEEN_POLLS
        path = self._folder / REQUEST
        if recording is not None:
            if not path.exists():
                self._cancel(recording)
            elif over:
                self._finish(step)
            return
        self._read_request(path)
        if self._pending is not None and time.time() >= self._pending.at:
            pending, self._pending = self._pending, None
            self._begin(path.parent / "profiles" / pending.name, pending.steps, step)

    def close(self, step: int) -> None:
        """Finish a recording after the last step; what was recorded until now counts."""
        if self._recording is not None:
            self._finish(step)

    def _read_request(self, path: Path) -> None:
        """Read a new or changed request for this rank."""
        try:
            found = path.stat()
        except OSError:
            self._pending = None
            return
        if self._last_request == (found.st_ino, found.st_mtime_ns):
            return
        self._last_request, self._pending = (found.st_ino, found.st_mtime_ns), None
        try:
            request = _parse_request(path)
        except (OSError, ValueError) as error:
            self._console.print_on_every(f"note: {path} is no valid profile request: {error}")
            return
        folder = path.parent / "profiles" / request.name
        if request.ranks is not None and self._rank not in request.ranks:
            return
        if any((folder / f"{word}-{self._rank}.json").exists() for word in ("done", "failed")):
            return  # answered by an attempt before this one
        self._pending = request

    def _begin(self, folder: Path, steps: int, step: int) -> None:
        try:
            place = folder / f"rank-{self._rank}"
            place.mkdir(parents=True, exist_ok=True)
            context = self._engine.profile(place)
            context.__enter__()
        except Exception as error:  # a library's profiler may fail in any way, which must not end the run
            self._answer(folder, "failed", {"why": _describe_error(error)})
            return
        self._recording = _Recording(
            folder=folder, rank=self._rank, first=step, steps=steps, context=context, started=time.monotonic()
        )
        self._console.print_on_first(f"profile {folder.name}: recording {steps} steps")

    def _cancel(self, recording: _Recording) -> None:
        """Discard the recording, because its request was withdrawn."""
        self._recording = None
        with suppress(Exception):  # its folder may be deleted, and a library's profiler may fail in any way
            recording.context.__exit__(None, None, None)
        shutil.rmtree(recording.folder / f"rank-{self._rank}", ignore_errors=True)
        with suppress(OSError):  # other ranks' folders
            recording.folder.rmdir()
        self._console.print_on_first(f"profile {recording.folder.name}: cancelled")

    def _finish(self, step: int) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        try:
            self._engine.numbers()  # wait until the devices have finished what is recorded
            recording.context.__exit__(None, None, None)
        except (PeerError, DeviceError):
            raise  # the run itself failed
        except Exception as error:  # as above
            self._answer(recording.folder, "failed", {"why": _describe_error(error)})
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
        self._console.print_on_first(f"profile {recording.folder.name}: {step - recording.first} steps recorded")

    def _answer(self, folder: Path, word: str, content: dict[str, Any]) -> None:
        path = folder / f"{word}-{self._rank}.json"
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps({"id": folder.name, "rank": self._rank, **content}) + "\n")
            temporary.replace(path)
        except OSError as error:
            self._console.print_on_every(f"note: rank {self._rank} cannot answer in {folder}: {error}")
        if word == "failed":
            self._console.print_on_every(f"note: rank {self._rank} recorded no profile: {content['why']}")


def _parse_request(path: Path) -> _Request:
    """Read and check a request.

    Raises:
        ValueError: It is not a valid request.
        OSError: It cannot be read.
    """
    request = as_object(json.loads(path.read_text()))
    name, steps, ranks, at = (request.get(key) for key in ("id", "steps", "ranks", "at"))
    # The id becomes the name of a folder.
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(f"id {name!r} is not a plain name")
    if not isinstance(steps, int) or isinstance(steps, bool) or not 0 < steps <= MAX_STEPS:
        raise ValueError(f"steps {steps!r} is not a number from 1 to {MAX_STEPS}")
    if ranks is not None and not isinstance(ranks, list):
        raise ValueError(f"ranks {ranks!r} is not a list")
    begin = float(at) if isinstance(at, int | float) and at - time.time() <= _MAX_DELAY else 0.0
    return _Request(name=name, steps=steps, ranks=cast("list[object] | None", ranks), at=begin)


def _describe_error(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no reason given'}"
