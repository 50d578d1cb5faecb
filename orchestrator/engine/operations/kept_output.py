"""The output of a job as the engine of this computer has kept it while it followed the job. No host is asked."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.documents.output_parts import MOST_BYTES, OutputPart
from orchestrator.engine.loop.follow import find_size_at
from orchestrator.engine.operations.log_sources import LogStart
from orchestrator.engine.operations.setup_logs import find_setup_files
from orchestrator.engine.state.kept_log import read_log
from orchestrator.paths import load_paths
from orchestrator.slices import SliceState
from orchestrator.store.records import ClusterRecord, JobRecord

_ATTEMPT = "attempt-"
_LAST_BYTES = 1 << 20  # in which the last lines of a file are counted: there may be hundreds of files


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOutput:
    """What was read.

    Attributes:
        complete: Whether nothing more is kept now.
        setup_of: The job whose setup it is; 0 for the output of the program.
        ranks: The hosts of which something is kept.
    """

    parts: tuple[OutputPart, ...]
    complete: bool
    setup_of: int
    ranks: tuple[int, ...]


def read_kept_output(
    record: ClusterRecord,
    job: JobRecord,
    *,
    setup: bool,
    ranks: Collection[int],
    start: LogStart,
    positions: Mapping[str, int],
) -> KeptOutput:
    """Read what is kept of a job's output, at most MOST_BYTES.

    Args:
        record: The cluster.
        job: The job.
        setup: Whether to read the output of the setup. It is that of a program which has not started, too.
        ranks: Of which hosts; none for all.
        start: Where to begin in files without a position.
        positions: The byte at which to begin, by file.
    """
    number, files = find_setup_files(record, job) if setup or not job.started else (0, [])
    if not files and not setup:
        number, files = 0, _find_program_files(record, job)
    if not number and any(not name.startswith(_ATTEMPT) for name in positions):  # the end of the setup comes first
        files = [file for file in find_setup_files(record, job)[1] if _name(file) in positions] + files
    chosen = [file for file in files if not ranks or int(file.stem) in ranks]
    parts: list[OutputPart] = []
    left = MOST_BYTES
    for part in _read_parts(chosen, start, positions):
        if part.content or part.missing or part.file not in positions:
            parts.append(part)
            left -= len(part.content)
        if left <= 0:
            break
    sizes = {part.file: part.end for part in parts}
    ends = {_name(file): sizes.get(_name(file), positions.get(_name(file), -1)) for file in chosen}
    return KeptOutput(
        parts=tuple(parts),
        complete=all(ends[_name(file)] >= file.stat().st_size for file in chosen),
        setup_of=number,
        ranks=tuple(sorted({int(file.stem) for file in files})),
    )


def _read_parts(files: list[Path], start: LogStart, positions: Mapping[str, int]) -> Iterator[OutputPart]:
    left = MOST_BYTES
    for file in files:
        name = _name(file)
        begin = min(positions[name], file.stat().st_size) if name in positions else _find_begin(file, start)
        piece = read_log(file, begin, left)
        left -= len(piece.content)
        yield OutputPart(
            file=name, rank=int(file.stem), begin=piece.begin, missing=piece.missing, content=piece.content
        )


def _find_begin(file: Path, start: LogStart) -> int:
    """Return the byte at which to begin; of very long last lines it is within the last bytes of the file."""
    begin, size = 0, file.stat().st_size
    if start.tail is not None:
        begin = max(size - _LAST_BYTES, 0)
        with file.open("rb") as opened:
            opened.seek(begin)
            lines = opened.read(_LAST_BYTES).splitlines(keepends=True)
        begin = size - sum(map(len, lines[-start.tail :] if start.tail else []))
    if start.seconds is not None:
        begin = max(begin, find_size_at(file, time.time() - start.seconds))
    return begin


def _find_program_files(record: ClusterRecord, job: JobRecord) -> list[Path]:
    """Return the files of the present attempt, as its hosts have them; of hosts that are absent, those of all."""
    present = bool(record.hosts) and record.last_state != SliceState.STOPPED
    folder = f"{_ATTEMPT}{job.attempt:04d}" if present else f"{_ATTEMPT}*"
    found = load_paths().logs(record.uid, job.id).glob(f"{folder}/*.log")
    return sorted(found, key=lambda file: (file.parent.name, int(file.stem)))


def _name(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"
