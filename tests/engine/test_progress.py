"""Progress in words: what crosses to a client, what is kept of long waits, and what a hostile service can send."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.drawing.engine_log import EngineLog
from orchestrator.engine.progress import Progress, ProgressKind, parse_progress
from orchestrator.engine.unattended import kept_progress
from orchestrator.engine.unattended.kept_progress import ProgressKeeper
from orchestrator.plan.steps import Wait, WaitFor
from orchestrator.store.failures import StoreError
from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=2**53)
PROGRESS = st.builds(
    Progress,
    kind=st.sampled_from(ProgressKind),
    words=st.text(),
    result=st.text(),
    setup=st.booleans(),
    repeats=st.booleans(),
    seconds=NUMBERS,
    until=NUMBERS,
    done=st.integers(0, 2**53),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(PROGRESS)
def test_what_is_kept_comes_back(progress: Progress) -> None:
    assert parse_progress(json.loads(json.dumps(progress.as_json()))) == progress


@given(JSON)
def test_anything_else_is_no_progress(document: object) -> None:
    assert parse_progress(document) is None or isinstance(document, dict)


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "wait", "words": "x", "seconds": float("nan")},
        {"kind": "wait", "seconds": float("inf")},
        {"kind": "wait", "seconds": "1"},
        {"kind": "moved", "done": 10**400, "total": 10**399},
        {"kind": "begun", "setup": 1},
        {"kind": "begun", "words": ["x"]},
        {"kind": "shutdown"},
        {"kind": ["wait"]},
    ],
)
def test_a_field_of_another_kind_is_refused(document: object) -> None:
    assert parse_progress(document) is None


@dataclass
class Site:
    """A store, which can be away."""

    file: Path
    away: threading.Event = field(default_factory=threading.Event)

    def open(self) -> Store:
        if self.away.is_set():
            raise StoreError("the store is away")
        return Store(self.file)

    def read(self) -> list[Progress | None]:
        with open_reader_at(self.file) as reader:
            return [parse_progress(json.loads(row.document)) for row in reader.progress_after(0, 100)]


def test_a_long_wait_is_one_row_and_comes_at_most_each_15_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, now = Site(tmp_path / "orch.db"), [100.0]
    monkeypatch.setattr(kept_progress.time, "monotonic", lambda: now[0])
    keeper = ProgressKeeper(open_store=site.open)
    narrator = keeper.narrate("mine", "job 1", EngineLog("mine", 1))
    narrator.note("first")
    for second in range(40):
        now[0] = 100.0 + second
        narrator.waiting(Wait(on=WaitFor.SLICE, reason="'mine' is created", until=None), float(second))
    keeper.close()
    first, wait = site.read()
    assert first is not None and (first.kind, first.words) == (ProgressKind.NOTE, "first")
    assert wait is not None and (wait.kind, wait.seconds) == (ProgressKind.WAIT, 30.0)


def test_a_store_that_is_away_holds_nothing_up(tmp_path: Path) -> None:
    site = Site(tmp_path / "orch.db")
    site.away.set()
    keeper = ProgressKeeper(open_store=site.open)
    narrator = keeper.narrate("mine", "job 1", EngineLog("mine", 1))
    began = time.monotonic()
    for number in range(3000):
        narrator.note(f"note {number}")
    assert time.monotonic() - began < 20, "each call returns immediately"
    keeper.close(30.0)
    site.away.clear()
    narrator.note("it is back")
    keeper.close(30.0)
    assert [one.words for one in site.read() if one is not None] == ["it is back"]
