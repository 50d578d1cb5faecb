"""Killed by SIGKILL at every point where it could matter, once or twice, every verb ends as if nothing had happened."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash_matrix import Counts, Place, matrix
from crash_verbs import VERBS
from support.postgres import postgres_server
from support.proof import report

BY_NAME = {verb.name: verb for verb in VERBS}
CREATING = [BY_NAME["launch"], BY_NAME["resume"], BY_NAME["recover"]]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In memory where there is such a place: the disk's own speed is not what is tested."""
    monkeypatch.setenv("ORCH_HOME", "")
    monkeypatch.setenv("ORCH_STORE", "")
    memory = Path("/dev/shm")  # a folder of our own is made in it
    root = Path(tempfile.mkdtemp(prefix="orch-matrix-", dir=memory if os.access(memory, os.W_OK) else None))
    gc.collect()
    gc.freeze()  # children that are forked share what is there
    yield root
    gc.unfreeze()
    shutil.rmtree(root, ignore_errors=True)


def tell(what: str, counts: Counts, say: Callable[[str], None]) -> None:
    say(f"crash matrix on {what}: {counts}")
    assert counts.violations == [], "\n".join(counts.violations[:20])


@pytest.mark.promise("P1")
@pytest.mark.timeout(120)
def test_a_launch_killed_where_something_lasting_changes_goes_on_when_it_is_given_again(folder: Path) -> None:
    tell("sqlite, launch", matrix(Place(folder), [BY_NAME["launch"]], points="distinct"), print)


@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.timeout(120)
def test_the_matrix_sees_a_second_slice_when_tokens_are_not_honoured(folder: Path) -> None:
    counts = matrix(Place(folder, honour_tokens=False), [BY_NAME["launch"]], points="distinct")
    assert any("had two slices" in what for what in counts.violations), counts
    assert any("no record wants" in what or "are on record" in what for what in counts.violations), counts


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.promise("P25")
@pytest.mark.timeout(900)
def test_every_verb_killed_anywhere_once_or_twice_leaks_nothing(folder: Path) -> None:
    counts = matrix(Place(folder), VERBS, doubles=1.0)
    off = matrix(Place(folder / "off", honour_tokens=False), CREATING, points="distinct")
    report(f"crash matrix on sqlite: {counts}; tokens off: {len(off.violations)} violations")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    assert off.violations


@pytest.mark.slow
@pytest.mark.promise("P1")
@pytest.mark.promise("P2")
@pytest.mark.promise("P29")
@pytest.mark.timeout(900)
def test_every_verb_killed_anywhere_leaks_nothing_on_a_server_either(folder: Path) -> None:
    """A seeded half of the double kills: the server is slower, and the engine is the same."""
    with postgres_server() as server:
        url = server.new_store()
        counts = matrix(Place(folder, server=url), VERBS, doubles=0.5)
        off = matrix(Place(folder / "off", False, url), CREATING, points="distinct")
    half = "a seeded half of the doubles"
    report(f"crash matrix on postgresql: {counts} ({half}); tokens off: {len(off.violations)} violations")
    assert counts.violations == [], "\n".join(counts.violations[:20])
    assert off.violations
