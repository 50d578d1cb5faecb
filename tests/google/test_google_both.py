"""Two halves behind one provider: which of them is asked about a slice, and that none is forgotten.

Both halves are real providers here, each with a server of its own; the second sits where Compute Engine's does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.auth.credentials import AnonymousCredentials
from google_cases import INSTALLATION, PROJECT, candidate, keys, spec
from google_fake import Fake, fake_api

from orchestrator.errors import NotFoundError
from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.google.both import COMPUTE, TPU, Both
from orchestrator.providers.google.client import open_api
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.google.session import Session
from orchestrator.providers.records import FolderRecords
from orchestrator.slices import SliceKeys, SliceState

ONE = candidate("v5litepod-8")


@dataclass(slots=True)
class Pair:
    tpu: Fake
    compute: Fake
    state: Path
    keys: SliceKeys
    clock: float = 1_763_632_800.0
    opened: int = 0

    def half(self, folder: str) -> TpuProvider:
        fake = self.tpu if folder == TPU else self.compute
        api = open_api(Session(AnonymousCredentials(), PROJECT, fake.url))
        return TpuProvider(api, self.state / folder, lambda: self.clock)

    def both(self) -> Both:
        def compute() -> TpuProvider:
            self.opened += 1
            return self.half(COMPUTE)

        return Both(lambda kind: FolderRecords(self.state / kind), self.half(TPU), compute)

    def make(self, folder: str, name: str = "demo-1", token: str = "t-1") -> None:
        self.half(folder).create(spec(ONE, name, token), self.keys)

    def left(self) -> tuple[int, int]:
        return len(self.tpu.nodes), len(self.compute.nodes)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with fake_api() as tpu, fake_api() as compute:
        yield Pair(tpu, compute, tmp_path, keys(1))


def test_what_the_tpu_api_has_never_opens_the_other_half(pair: Pair) -> None:
    both = pair.both()
    both.create(spec(ONE), pair.keys)
    assert both.observe("demo-1").state is SliceState.CREATING
    pair.tpu.make_ready("demo-1")
    both.stop("demo-1")
    both.end("demo-1")
    assert (pair.left(), pair.opened) == ((0, 0), 0)


def test_what_compute_engine_has_is_looked_at_stopped_and_ended_there(pair: Pair) -> None:
    pair.make(COMPUTE)
    assert pair.both().observe("demo-1").state is SliceState.CREATING
    pair.compute.make_ready("demo-1")
    pair.both().stop("demo-1")
    assert pair.compute.count(":stop") == 1
    pair.both().end("demo-1")
    assert pair.left() == (0, 0)
    assert pair.tpu.calls == [], "the TPU API is not even asked"


def test_an_older_slice_of_the_same_name_hides_no_living_one(pair: Pair) -> None:
    """Its record is kept for a week: a later slice of this name may be with the other half."""
    pair.make(TPU, token="older-1")
    pair.half(TPU).end("demo-1")
    pair.clock += SETTLE_SECONDS + 1
    pair.make(COMPUTE, token="newer-1")
    both = pair.both()
    assert both.observe("demo-1").state is SliceState.CREATING
    pair.compute.make_ready("demo-1")
    both.stop("demo-1")
    assert pair.compute.count(":stop") == 1
    both.end("demo-1")
    assert pair.left() == (0, 0)


def test_without_a_record_both_are_searched(pair: Pair) -> None:
    pair.make(TPU, "demo-1")
    pair.make(COMPUTE, "demo-2")
    for file in (*(pair.state / TPU).glob("*.json"), *(pair.state / COMPUTE).glob("*.json")):
        file.unlink()
    both = pair.both()
    assert [both.observe(name).state for name in ("demo-1", "demo-2")] == [SliceState.CREATING] * 2
    both.end("demo-1")
    both.end("demo-2")
    assert pair.left() == (0, 0)
    assert both.observe("demo-1").state is SliceState.ABSENT


def test_a_half_that_cannot_be_asked_is_no_absence(pair: Pair) -> None:
    pair.tpu.zones = ["us-west4-a"]
    pair.tpu.unreachable = ["projects/p/locations/us-west4-a"]
    assert pair.both().observe("demo-1").state is SliceState.UNCLEAR


def test_all_that_is_ours_is_listed_from_both(pair: Pair) -> None:
    pair.make(TPU, "demo-1")
    pair.make(COMPUTE, "demo-2")
    assert {one.name for one in pair.both().owned(INSTALLATION)} == {"demo-1", "demo-2"}


def test_stopping_what_nobody_has_says_so(pair: Pair) -> None:
    with pytest.raises(NotFoundError):
        pair.both().stop("demo-1")
