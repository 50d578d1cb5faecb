"""`orch reap` on real local slices: those with a closed record go, all others stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.slice_names import slice_name

from orchestrator.engine.state.keys import make_slice_keys
from orchestrator.paths import Paths
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.sweep import SweepVerdict, classify_slice
from orchestrator.providers.local.provider import LocalProvider
from orchestrator.slices import Candidate, OnDemand, OwnedSlice, SliceSpec, SliceState
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store
from orchestrator.values import Text

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
    LocalProvider(orch.state).create(spec, make_slice_keys(Paths(orch.state), name, spec.token.reveal(), 1))


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path)
    (tmp_path / "t.yaml").write_text("name: mine\nresources: {infra: 'local:1'}\nrun: 'true'\n")
    orch.ok("launch", "t.yaml")
    yield orch
    orch("down", "mine")
    for name in ("old-1", "lost-1", "other-1", "mine-2"):
        LocalProvider(orch.state).end(name)


def installation_of(orch: Orch) -> str:
    from orchestrator.store.read import open_reader_at

    with open_reader_at(orch.state / "orch.db") as reader:
        return reader.installation() or ""


def close_record(orch: Orch, name: str, intent: str) -> None:
    """Record a slice as deleted."""
    with Store(orch.state / "orch.db") as store:
        cluster = store.open_cluster("old", "")
        lease = store.acquire("cluster:old", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, cluster, 1, name, LOCAL, intent, "")
        store.update_intent(lease, cluster, name, IntentState.DELETED)
        store.close_cluster(lease, cluster)
        store.release(lease)


@pytest.mark.slow
@pytest.mark.promise("P5")
def test_only_slices_with_a_closed_record_go(orch: Orch) -> None:
    stray(orch, "old-1", installation_of(orch), "closed-1")
    stray(orch, "lost-1", installation_of(orch), "unknown-1")
    stray(orch, "mine-2", "another-owner", "their-uid-1")  # looks like ours, is not
    stray(orch, "other-1", installation_of(orch)[:-1], "unknown-2")  # a label that is nearly ours
    close_record(orch, "old-1", "closed-1")
    dry = orch("reap", "--dry-run", "-o", "json")
    standing = {one["name"]: one["standing"] for one in json.loads(dry.stdout)["places"][0]["slices"]}
    mine = slice_name("mine", home=orch.state.parent)
    others = {"mine-2": "foreign", "other-1": "foreign"}
    assert standing == {mine: "tracked", "old-1": "left over", "lost-1": "unknown"} | others
    assert dry.returncode == 1 and "1 orphan would be ended" in dry.stderr
    assert orch("reap").returncode == 2  # no terminal to ask on
    done = orch("reap", "--yes")
    assert "1 of 1 orphan ended" in done.stderr and done.returncode == 1
    assert "1 slice with the label of this store, and no record here: left as it is" in done.stderr
    assert "2 slices of other installations: left as they are" in done.stderr and "next: orch recover" in done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split()[-1] == "VERDICT" and max(map(len, rows)) <= 80, rows
    assert rows.index("") == 6, "a line for each slice, and none of them is wrapped"
    assert "old-1: its record is closed" in done.stdout or "old-1: its record says" in done.stdout
    provider = LocalProvider(orch.state)
    states = {name: provider.observe(name).state for name in ("old-1", "lost-1", mine, "mine-2", "other-1")}
    ready = dict.fromkeys(("lost-1", mine, "mine-2", "other-1"), SliceState.READY)
    assert states == {"old-1": SliceState.ABSENT} | ready


def test_the_places_that_answered_and_the_others_are_printed(orch: Orch) -> None:
    done = orch("reap")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "no orphans")
    assert "asked: local\n" in done.stderr
    assert "not asked: aws: never used from here, and there are no credentials" in done.stderr
    (orch.folder / ".aws").mkdir()
    (orch.folder / ".aws" / "credentials").write_text("[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\n")
    done = orch("reap")  # the key has no secret: the cloud cannot be asked
    assert done.returncode != 0 and "could not be asked: aws: " in done.stderr
    assert done.stderr.splitlines()[-1] == "no orphans in the places that answered; the others may have some"


@pytest.mark.promise("P5")
@pytest.mark.parametrize(
    ("found", "intent", "verdict"),
    [
        (FOUND, INTENT, SweepVerdict.TRACKED),
        (FOUND, replace(INTENT, state=IntentState.PLANNED), SweepVerdict.TRACKED),
        (FOUND, replace(INTENT, state=IntentState.DELETED), SweepVerdict.LEFT_OVER),
        (FOUND, replace(INTENT, state=IntentState.REFUSED), SweepVerdict.LEFT_OVER),
        (replace(FOUND, state=SliceState.ENDING), replace(INTENT, state=IntentState.DELETED), SweepVerdict.LEFT_OVER),
        (replace(FOUND, state=SliceState.ENDING), INTENT, SweepVerdict.TRACKED),
        (replace(FOUND, state=SliceState.ABSENT), None, SweepVerdict.LEAVING),
        (FOUND, None, SweepVerdict.UNKNOWN),
        (replace(FOUND, intent=""), INTENT, SweepVerdict.UNKNOWN),
        (replace(FOUND, installation="them"), None, SweepVerdict.FOREIGN),
        (replace(FOUND, installation="them", created=899.0), None, SweepVerdict.EARLIER),
        (replace(FOUND, installation="them", created=0.0), None, SweepVerdict.EARLIER),
        (replace(FOUND, installation="them"), replace(INTENT, state=IntentState.DELETED), SweepVerdict.FOREIGN),
        (replace(FOUND, installation="them"), INTENT, SweepVerdict.TRACKED),  # it was taken over
    ],
)
def test_what_a_slice_in_the_cloud_is_to_us(found: OwnedSlice, intent: Intent | None, verdict: SweepVerdict) -> None:
    known = {"uid-1": intent} if intent is not None else {}
    judged = classify_slice(found, known, "us", began=900.0)
    assert judged.verdict is verdict
    assert judged.orphan == (verdict is SweepVerdict.LEFT_OVER)
    assert judged.lost == (verdict in (SweepVerdict.UNKNOWN, SweepVerdict.EARLIER))
