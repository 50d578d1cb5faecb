"""`orch reap` on real local slices: ours without a record go, tracked and foreign ones stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.orch_process import Orch

from orchestrator.engine.keys import slice_keys
from orchestrator.paths import Paths
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.sweep import Standing, judge
from orchestrator.providers.local.provider import LocalProvider
from orchestrator.slices import Candidate, OnDemand, OwnedSlice, SliceSpec, SliceState
from orchestrator.values import Text

LOCAL = Candidate("local", "cpu", 1, 0, OnDemand())
FOUND = OwnedSlice("c-1", "c", "us", SliceState.READY, 1000.0, "local", "uid-1")
INTENT = Intent(1, "c-1", LOCAL, IntentState.ACCEPTED, 1000.0)


def stray(orch: Orch, name: str, installation: str, intent: str) -> None:
    """A slice that nobody has on record."""
    labels = (("orch-installation", Text.of(installation)), ("orch-cluster", Text.of(name.rpartition("-")[0])))
    spec = SliceSpec("x", name, Text.of(intent), LOCAL, (*labels, ("orch-intent", Text.of(intent))))
    LocalProvider(orch.state).create(spec, slice_keys(Paths(orch.state), name, 1))


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
    stray(orch, "mine-2", "somebody-else", "their-uid-1")  # looks like ours, is not
    stray(orch, "other-1", installation_of(orch)[:-1], "unknown-2")  # a label that is nearly ours
    shown = json.loads(orch.ok("reap", "--dry-run", "--grace", "0", "-o", "json"))
    standing = {one["name"]: one["standing"] for one in shown["places"][0]["slices"]}
    assert standing == {"mine-1": "tracked", "lost-1": "unknown"}
    assert orch("reap", "--grace", "3600", "--yes").stderr.endswith("no orphans (local asked)\n")
    assert orch("reap", "--grace", "0").returncode == 2  # nobody to ask
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
        (FOUND, INTENT, Standing.TRACKED),
        (FOUND, replace(INTENT, state=IntentState.PLANNED), Standing.TRACKED),
        (FOUND, replace(INTENT, state=IntentState.GONE), Standing.LEFT_OVER),
        (FOUND, replace(INTENT, state=IntentState.REFUSED), Standing.LEFT_OVER),
        (replace(FOUND, state=SliceState.ENDING), replace(INTENT, state=IntentState.GONE), Standing.LEFT_OVER),
        (replace(FOUND, state=SliceState.ENDING), INTENT, Standing.TRACKED),
        (replace(FOUND, state=SliceState.ABSENT), None, Standing.LEAVING),
        (FOUND, None, Standing.UNKNOWN),
        (replace(FOUND, created=1900.0), None, Standing.YOUNG),
        (replace(FOUND, installation="them"), INTENT, Standing.FOREIGN),
        (replace(FOUND, intent=""), INTENT, Standing.UNKNOWN),
    ],
)
def test_what_a_slice_in_the_cloud_is_to_us(found: OwnedSlice, intent: Intent | None, standing: Standing) -> None:
    known = {"uid-1": intent} if intent is not None else {}
    judged = judge(found, known, "us", now=2000.0, grace=600.0)
    assert judged.standing is standing
    assert judged.orphan == (standing in (Standing.LEFT_OVER, Standing.UNKNOWN))
