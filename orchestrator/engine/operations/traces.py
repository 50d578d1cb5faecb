"""Merging the traces of many ranks: each rank a group of processes beside the others, on one clock where there is one.

The format is the "Trace Event Format" of Chrome's tracing, which torch writes, and JAX beside its own. torch gives the
epoch of its times as `baseTimeNanoseconds`; JAX gives none, so its ranks are aligned by their first event.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

Event: TypeAlias = dict[str, Any]

RANK = re.compile(r"rank-([0-9]{1,6})")
_FLOWS = frozenset("stfbenNOD")  # events that find each other by `id`
_PER_RANK = 1_000_000  # process numbers of one rank
_LARGEST = 1 << 30  # characters of one trace, unpacked: hosts may send what unpacks without end


@dataclass(frozen=True, slots=True)
class MergedTrace:
    """A merged trace.

    Attributes:
        file: The trace.
        ranks: The ranks in it.
        one_clock: Whether times of different ranks can be compared.
    """

    file: Path
    ranks: tuple[int, ...]
    one_clock: bool


@dataclass(frozen=True, slots=True)
class _Trace:
    rank: int
    events: Sequence[Event]
    base: int | None  # nanoseconds since the epoch

    @property
    def first(self) -> float:
        """Time of the first event, in the file's microseconds."""
        return min((event["ts"] for event in self.events if _is_timed(event)), default=0.0)


def merge_traces(folder: Path, into: Path, damaged: Callable[[str], None]) -> MergedTrace | None:
    """Merge the traces of all ranks; None when no rank has a Chrome trace.

    Args:
        folder: Holds rank-N folders.
        into: The merged file.
        damaged: Called with each file that cannot be read; the others are merged without it.

    Raises:
        OSError: The merged file cannot be written.
    """
    traces = [trace for place in _ranks(folder) for trace in _read(place, damaged)]
    if not traces:
        return None
    bases = [trace.base for trace in traces if trace.base is not None]
    one_clock = len(bases) == len(traces)
    earliest = min(bases, default=0)
    shifts = [(trace.base - earliest) / 1e3 if one_clock and trace.base else -trace.first for trace in traces]
    start = min(trace.first + shift for trace, shift in zip(traces, shifts, strict=True))
    events = [event for trace, shift in zip(traces, shifts, strict=True) for event in _shifted(trace, shift - start)]
    document = {"displayTimeUnit": "ms", "traceEvents": events}
    temporary = into.with_name(f".{into.name}.tmp")
    try:
        with gzip.open(temporary, "wt", encoding="utf-8", compresslevel=5) as file:
            json.dump(document, file)
        temporary.replace(into)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return MergedTrace(into, tuple(sorted({trace.rank for trace in traces})), one_clock)


def _ranks(folder: Path) -> list[Path]:
    return sorted((path for path in folder.iterdir() if RANK.fullmatch(path.name)), key=_rank_of)


def _rank_of(place: Path) -> int:
    return int(place.name.removeprefix("rank-"))


def _read(place: Path, damaged: Callable[[str], None]) -> Iterator[_Trace]:
    """Yield every Chrome trace below the folder; other JSON is ignored."""
    for path in sorted(place.rglob("*")):
        if not path.name.endswith((".json", ".json.gz")):
            continue
        opened = gzip.open if path.name.endswith(".gz") else open
        try:
            with opened(path, "rt", encoding="utf-8") as file:
                document: object = json.loads(_read_bounded(file))
        except (ValueError, EOFError, zlib.error, OSError, RecursionError) as error:
            damaged(f"{path} is not a trace: {error}")
            continue
        table: Mapping[str, object] = cast("dict[str, object]", document) if isinstance(document, dict) else {}
        events, base = table.get("traceEvents"), table.get("baseTimeNanoseconds")
        if isinstance(events, list):
            kept = [cast("Event", event) for event in cast("list[object]", events) if _is_event(event)]
            yield _Trace(_rank_of(place), kept, base if isinstance(base, int) else None)


def _read_bounded(file: IO[str]) -> str:
    text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ValueError(f"more than {_LARGEST:,} characters")
    return text


def _is_event(event: object) -> bool:
    """Return whether the fields that are used here have their types; programs on hosts may write anything."""
    if not event or not isinstance(event, dict):
        return False
    fields = cast("Event", event)
    return (
        isinstance(fields.get("pid"), int | str | None)
        and isinstance(fields.get("args", {}), dict)
        and isinstance(fields.get("ph", ""), str)
    )


def _is_timed(event: Mapping[str, Any]) -> bool:
    return event.get("ph") != "M" and isinstance(event.get("ts"), int | float)


def _shifted(trace: _Trace, shift: float) -> Iterator[Event]:
    """Yield the events of one rank, its processes renumbered and named after it."""
    numbers: dict[Any, int] = {}
    for event in trace.events:
        # torch names some groups ("Spans"): all become numbers unique to the rank.
        number = numbers.setdefault(event.get("pid"), trace.rank * _PER_RANK + len(numbers))
        made = {**event, "pid": number}
        if _is_timed(event):
            made["ts"] = event["ts"] + shift
        if event.get("ph") in _FLOWS and "id" in event:
            made["id"] = f"{trace.rank}.{event['id']}"
        if event.get("ph") == "M" and event.get("name") in ("process_name", "process_sort_index"):
            continue
        yield made
    names = _names(trace)
    for old, number in numbers.items():
        name = names.get(old, str(old if old is not None else ""))
        yield _metadata_event(number, "process_name", {"name": f"rank {trace.rank} {name}".rstrip()})
        yield _metadata_event(number, "process_sort_index", {"sort_index": number})


def _names(trace: _Trace) -> dict[Any, str]:
    """Return the names that the trace gives to its processes."""
    found = [event for event in trace.events if event.get("ph") == "M" and event.get("name") == "process_name"]
    return {event.get("pid"): str(event.get("args", {}).get("name", "")) for event in found}


def _metadata_event(number: int, name: str, arguments: Event) -> Event:
    return {"ph": "M", "pid": number, "tid": 0, "ts": 0, "name": name, "args": arguments}
