"""`orch reap` on real local slices: ours without a record go, tracked and foreign ones stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.orch_process import Orch

from orchestrator.engine.state.keys import load_slice_keys
from orchestrator.paths import Paths
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.sweep import SweepVerdict, classify_slice
from orchestrator.providers.local.provider import LocalProvider
from orchestrator.slices import Candidate, OnDemand, OwnedSlice, SliceSpec, SliceState
from orchestrator.values import Text

pytestmark = pytest.mark.rotating

LOCAL = Candidate(provider="local", accelerator="cpu", hosts=1, chips_per_host=0, market=OnDemand())
FOUND = OwnedSlice(
    name="c-1", cluster="c", installation="us", state=SliceState.READY, created=1000.0, where="local", intent="uid-1"
)
INTENT = Intent(generation=1, name="c-1", candidate=LOCAL, state=IntentState.ACCEPTED, since=1000.0)


def stray(orch: Orch, name: str, installation: str, intent: str) -> None:
    """A slice that is not on record."""
    labels = (("orch-installation", Text.of(installation)), ("orch-cluster", Text.of(name.rpartition("-")[0])))
    spec = SliceSpec(
        cluster="x",
        name=name,
        token=Text.of(intent),
        candidate=LOCAL,
        labels=(*labels, ("orch-intent", Text.of(intent))),
    )
    LocalProvider(orch.state).create(spec, load_slice_keys(Paths(orch.state), name, 1))


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path)
    (tmp_path / "t.yaml").write_text("name: mine\nresources: {infra: 'local:1'}\nrun: 'true'\n")
    orch.ok("launch", "t.yaml")
    yield orch
    orch("down", "mine")
    for name in ("lost-1", "other-1", "mine-2"):
        LocalProvider(orch.state).end(name)


def installation_of(orch: Orch) -> str:
    from orchestrator.store.read import open_reader_at

    with open_reader_at(orch.state / "orch.db") as reader:
        return reader.installation() or ""


@pytest.mark.slow
@pytest.mark.promise("P5")
def test_orphans_go_and_tracked_and_foreign_slices_stay(orch: Orch) -> None:
    stray(orch, "lost-1", installation_of(orch), "unknown-1")
    stray(orch, "mine-2", "another-owner", "their-uid-1")  # looks like ours, is not
    stray(orch, "other-1", installation_of(orch)[:-1], "unknown-2")  # a label that is nearly ours
    shown = json.loads(orch.ok("reap", "--dry-run", "--grace", "0", "-o", "json"))
    standing = {one["name"]: one["standing"] for one in shown["places"][0]["slices"]}
    assert standing == {"mine-1": "tracked", "lost-1": "unknown"}
    assert orch("reap", "--grace", "3600", "--yes").stderr.endswith("no orphans (local answered)\n")
    assert orch("reap", "--grace", "0").returncode == 2  # no terminal to ask on
    assert "1 of 1 orphan ended" in orch("reap", "--grace", "0", "--yes").stderr
    provider = LocalProvider(orch.state)
    states = {name: provider.observe(name).state for name in ("lost-1", "mine-1", "mine-2", "other-1")}
    assert states == {
        "lost-1": SliceState.ABSENT,
        "mine-1": SliceState.READY,
        "mine-2": SliceState.READY,
        "other-1": SliceState.READY,
    }


@pytest.mark.promise("P5")
@pytest.mark.parametrize(
    ("found", "intent", "standing"),
    [
        (FOUND, INTENT, SweepVerdict.TRACKED),
        (FOUND, replace(INTENT, state=IntentState.PLANNED), SweepVerdict.TRACKED),
        (FOUND, replace(INTENT, state=IntentState.DELETED), SweepVerdict.LEFT_OVER),
        (FOUND, replace(INTENT, state=IntentState.REFUSED), SweepVerdict.LEFT_OVER),
        (replace(FOUND, state=SliceState.ENDING), replace(INTENT, state=IntentState.DELETED), SweepVerdict.LEFT_OVER),
        (replace(FOUND, state=SliceState.ENDING), INTENT, SweepVerdict.TRACKED),
        (replace(FOUND, state=SliceState.ABSENT), None, SweepVerdict.LEAVING),
        (FOUND, None, SweepVerdict.UNKNOWN),
        (replace(FOUND, created=1900.0), None, SweepVerdict.YOUNG),
        (replace(FOUND, installation="them"), INTENT, SweepVerdict.FOREIGN),
        (replace(FOUND, intent=""), INTENT, SweepVerdict.UNKNOWN),
    ],
)
def test_what_a_slice_in_the_cloud_is_to_us(found: OwnedSlice, intent: Intent | None, standing: SweepVerdict) -> None:
    known = {"uid-1": intent} if intent is not None else {}
    judged = classify_slice(found, known, "us", now=2000.0, grace=600.0)
    assert judged.verdict is standing
    assert judged.orphan == (standing in (SweepVerdict.LEFT_OVER, SweepVerdict.UNKNOWN))
