"""What is not adopted, and says why; what is never ended though it carries our labels. No hosts stand behind these."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from adopt_bench import PARENT, THEIR_KEY, ZONE, Maker, orch
from support.google_cloud import google_provider
from support.zones import EVERY_TYPE

from orch_fronts.google.grants import Grants
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.clock import RealClock
from orchestrator.errors import ConflictError, NotFoundError, UserError
from orchestrator.exits import Exit
from orchestrator.plan.observed import Intent, IntentState
from orchestrator.plan.sweep import SweepVerdict, classify_slice
from orchestrator.providers.google.adoption import with_ours, without_ours
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.google.record import Records
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.scenario import Durations, Scenario, Zone
from orchestrator.slices import Candidate, OnDemand, SliceKeys, SliceSpec, SliceState, Spot
from orchestrator.values import Text

AT_ONCE = Durations(create=0, end=0, queue=0, stop=0, start=0, detect=0, jitter=0)
TOKEN = "0123456789abcdef-1"


@pytest.fixture(scope="module")
def server() -> Iterator[TpuServer]:
    access = InMemory(Scenario(durations=AT_ONCE, zones=(Zone(ZONE, "us-west4"),), pools=EVERY_TYPE), RealClock())
    with TpuServer(access) as server:
        yield server


@pytest.fixture
def maker(server: TpuServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Maker]:
    for name in list(os.environ):
        if name.startswith(("ORCH_", "GOOGLE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ORCH_GCP_ENDPOINT", server.url)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "orch"))
    maker = Maker.at(server)
    yield maker
    for one in maker.client.list_queued_resources(parent=PARENT):
        maker.client.delete_queued_resource({"name": one.name, "force": True})
    for node in maker.client.list_nodes(parent=PARENT):
        if node.state.name != "DELETING" and not node.queued_resource:
            maker.client.delete_node(name=node.name)


@pytest.fixture
def provider(server: TpuServer, maker: Maker, tmp_path: Path) -> TpuProvider:
    return google_provider(server.url, tmp_path)


def keys(folder: Path) -> SliceKeys:
    (folder / "id.pub").write_text("ssh-ed25519 OURS orch\n")
    return SliceKeys(
        user_public="ssh-ed25519 OURS orch", identity_file=str(folder / "id"), known_hosts=str(folder / "known_hosts")
    )


def spec_of(candidate: Candidate, token: str = TOKEN, name: str = "mine-1") -> SliceSpec:
    labels = {"orch-installation": "ours", "orch-cluster": "mine", "orch-intent": token}
    return SliceSpec(
        cluster="mine",
        name=name,
        token=Text.of(token),
        candidate=candidate,
        labels=tuple((key, Text.of(one)) for key, one in labels.items()),
    )


def adopted(provider: TpuProvider, folder: Path, name: str) -> SliceSpec:
    spec = spec_of(provider.find(name, ZONE).candidate)
    provider.create(spec, keys(folder))
    assert provider.observe("mine-1").state is SliceState.READY
    return spec


def foreign(maker: Maker) -> None:
    maker.make("it", labels={"orch-installation": "theirs", "orch-cluster": "run7", "orch-intent": "theirs-1"})


def one_of_two(maker: Maker) -> None:
    maker.queue("two", "it", count=2)


REFUSED: dict[str, tuple[Callable[[Maker], None], str, str, int]] = {
    "another orch's": (foreign, "it", "installation theirs, cluster 'run7'", Exit.USAGE),
    "not there": (lambda _: None, "it", f"there is no TPU VM 'it' in {ZONE}", Exit.NOT_FOUND),
    "one of several slices": (one_of_two, "it-0", "one of several slices of two", Exit.USAGE),
    "behind OS Login": (
        lambda maker: maker.make("it", metadata={"enable-oslogin": "TRUE"}),
        "it",
        "accepts SSH by OS Login only",
        Exit.USAGE,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_reason_and_untouched(maker: Maker, server: TpuServer, case: str) -> None:
    make, name, words, status = REFUSED[case]
    make(maker)
    before = [dict(node.labels) for node in maker.client.list_nodes(parent=PARENT)]
    count = len(server.requests)
    said = orch("adopt", name, "--zone", ZONE)
    assert said.status == status and words in said.err, said
    assert len(said.err.splitlines()) <= 5
    assert {method for method, _, _ in server.requests[count:]} <= {"GET"}
    assert [dict(node.labels) for node in maker.client.list_nodes(parent=PARENT)] == before
    assert not (Path(os.environ["ORCH_HOME"]) / "state" / "orch.db").exists(), "nothing was put on record"


def test_one_that_is_not_made_yet_is_refused(maker: Maker, server: TpuServer) -> None:
    slow = InMemory(Scenario(durations=replace(AT_ONCE, create=60.0), zones=(Zone(ZONE, "us-west4"),)), RealClock())
    with TpuServer(slow) as other, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_GCP_ENDPOINT", other.url)
        Maker.at(other).make("it", wait=False)
        said = orch("adopt", "it", "--zone", ZONE)
    assert said.status == Exit.USAGE and "'it' is creating" in said.err


def test_what_google_does_not_allow_leaves_nothing_on_record(maker: Maker) -> None:
    allowed = Grants(permissions=Grants().permissions - {"tpu.nodes.update"})
    access = InMemory(Scenario(durations=AT_ONCE, zones=(Zone(ZONE, "us-west4"),)), RealClock())
    with TpuServer(access, grants=allowed) as other, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_GCP_ENDPOINT", other.url)
        Maker.at(other).make("it")
        said = orch("adopt", "it", "--zone", ZONE)
        assert "orch-intent" not in Maker.at(other).labels("it")
    assert said.status == Exit.PERMISSION and "tpu.nodes.update" in said.err
    assert json.loads(orch("status", "-o", "json").out)["clusters"] == []


def test_what_it_is_becomes_the_candidate(maker: Maker, provider: TpuProvider) -> None:
    topology = {"type_": "V4", "topology": "2x2x2"}
    fields: dict[str, Any] = {
        "accelerator_type": "",
        "accelerator_config": topology,
        "scheduling_config": {"spot": True},
    }
    maker.make("v4", runtime_version="tpu-ubuntu2204-base", network_config={"enable_external_ips": True}, **fields)
    found = provider.find("v4", ZONE).candidate
    assert (found.accelerator, found.hosts, found.chips_per_host, found.market) == ("v4-16", 2, 4, Spot())
    assert (found.detail("topology"), found.detail("internal_ips")) == ("2x2x2", "")
    maker.make("inside")
    found = provider.find("inside", ZONE, user="me").candidate
    assert (found.accelerator, found.market, found.where) == ("v5litepod-8", OnDemand(), f"gcp/us-west4/{ZONE}")
    assert (found.detail("internal_ips"), found.detail("user"), found.adopted) == ("yes", "me", "inside")
    with pytest.raises(NotFoundError):
        provider.find("nothing", ZONE)
    with pytest.raises(UserError, match="not a user name"):
        provider.find("inside", ZONE, user="root; id")


def test_a_node_of_a_queued_resource_ends_with_it(maker: Maker, provider: TpuProvider, tmp_path: Path) -> None:
    maker.queue("waited", "it", spot={})
    spec = adopted(provider, tmp_path, "it")
    assert spec.candidate.market == Spot()
    assert provider.find("it", ZONE).notes[0] == "it belongs to the queued resource 'waited', which is ended with it"
    assert [one.name for one in provider.owned("ours")] == ["mine-1"]
    with pytest.raises(UserError, match="cannot be stopped"):
        provider.stop("mine-1")
    provider.end("mine-1")
    maker.until("it", "ABSENT")
    assert provider.observe("mine-1").state is SliceState.ABSENT
    assert maker.queued("waited") is None


def test_another_queued_resource_of_the_same_name_is_left_alone(
    maker: Maker, provider: TpuProvider, tmp_path: Path
) -> None:
    maker.queue("waited", "it")
    adopted(provider, tmp_path, "it")
    maker.client.delete_queued_resource({"name": f"{PARENT}/queuedResources/waited", "force": True})
    maker.until("it", "ABSENT")
    maker.queue("waited", "another")
    assert provider.observe("mine-1").state is SliceState.ABSENT
    provider.end("mine-1")
    assert maker.state("another") == "READY" and maker.queued("waited") is not None


@pytest.mark.parametrize("queued", [False, True])
def test_whoever_takes_our_labels_off_has_it_back(
    maker: Maker, provider: TpuProvider, tmp_path: Path, queued: bool
) -> None:
    maker.queue("waited", "it") if queued else maker.make("it")
    adopted(provider, tmp_path, "it")
    maker.client.update_node(
        node={"name": f"{PARENT}/nodes/it", "labels": {"team": "ml"}}, update_mask={"paths": ["labels"]}
    )
    maker.until("it", "READY")
    provider.end("mine-1")
    assert maker.state("it") == "READY"
    assert provider.observe("mine-1").state is SliceState.ABSENT


def test_a_second_token_does_not_take_what_the_first_has(maker: Maker, provider: TpuProvider, tmp_path: Path) -> None:
    maker.make("it")
    spec = adopted(provider, tmp_path, "it")
    with pytest.raises(ConflictError, match="made for another request"):
        provider.create(spec_of(spec.candidate, "fedcba9876543210-1"), keys(tmp_path))
    with pytest.raises(UserError, match="managed already"):
        provider.create(replace(spec_of(spec.candidate, "fedcba9876543210-1"), name="other-1"), keys(tmp_path))
    assert maker.labels("it")["orch-intent"] == TOKEN
    assert provider.observe("mine-1").state is SliceState.READY


def test_keys_that_hosts_reported_are_recorded_before_they_count_as_checked(
    maker: Maker, provider: TpuProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in between, orch asks the hosts again, and does not trust the next key that it is shown."""
    maker.make("it")
    provider.create(spec_of(provider.find("it", ZONE).candidate), keys(tmp_path))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Records, "write", interrupt)
        provider.observe("mine-1")
    records = Records(tmp_path / "google")
    killed = records.read("mine-1")
    assert killed is not None
    assert (killed.host_public, records.is_checked(killed)) == ((), False)
    assert [provider.observe("mine-1").state for _ in range(2)] == [SliceState.READY] * 2
    learned = records.read("mine-1")
    assert learned is not None
    assert (len(learned.host_public), records.is_checked(learned)) == (1, True)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_without_a_record_it_is_not_ended_from_here(
    maker: Maker, server: TpuServer, provider: TpuProvider, tmp_path: Path
) -> None:
    """Another computer of the same team: the name alone does not say whose it is."""
    maker.make("it")
    adopted(provider, tmp_path, "it")
    other = google_provider(server.url, tmp_path / "other")
    with pytest.raises(UserError, match="adopted from another computer"):
        other.end("mine-1")
    assert maker.state("it") == "READY"


def test_a_sweep_never_ends_what_was_adopted(maker: Maker, provider: TpuProvider, tmp_path: Path) -> None:
    maker.make("it")
    spec = adopted(provider, tmp_path, "it")
    (found,) = provider.owned("ours")
    assert (found.adopted, found.name, found.intent) == (True, "mine-1", TOKEN)
    intent = Intent(generation=1, name="mine-1", candidate=spec.candidate, state=IntentState.ACCEPTED, since=0.0)
    assert classify_slice(found, {TOKEN: intent}, "ours", 1e10).verdict is SweepVerdict.TRACKED
    closed = classify_slice(found, {TOKEN: replace(intent, state=IntentState.DELETED)}, "ours", 1e10)
    for one in (closed, classify_slice(found, {}, "ours", 1e10)):
        assert one.verdict is SweepVerdict.ADOPTED and not one.orphan
    made = replace(found, adopted=False)
    gone = {TOKEN: replace(intent, state=IntentState.DELETED)}
    assert classify_slice(made, gone, "ours", 1e10).orphan, "the same one, if orch had made it"


def test_an_older_record_is_still_read(provider: TpuProvider, tmp_path: Path) -> None:
    folder = tmp_path / "google"
    folder.mkdir(exist_ok=True)
    old = {"name": "old-1", "token": "t-1", "project": PROJECT, "zone": ZONE, "kind": "node", "slices": 1}
    more = {"hosts_per_slice": 1, "internal_ips": False, "identity_file": "", "known_hosts": "", "host_public": []}
    (folder / "old-1.json").write_text(json.dumps({**old, **more, "asked": 0, "changed": 0, "phase": "accepted"}))
    assert provider.observe("old-1").state is SliceState.ABSENT


LINE = "orch:ssh-ed25519 OURS orch"


@pytest.mark.parametrize(
    "there",
    [
        {},
        {"ssh-keys": THEIR_KEY},
        {"ssh-keys": f"{THEIR_KEY}\nyou:ssh-rsa AAAAB3 you\n", "startup-script": "echo 'a\nb'"},
        {"ssh-keys": f"{LINE} of an older time\n{THEIR_KEY}"},
    ],
)
def test_our_line_is_there_once_and_goes_without_a_trace(there: dict[str, str]) -> None:
    labels, metadata = with_ours({"team": "ml", "orch-intent-2": "old"}, there, {"orch-intent": TOKEN}, LINE)
    assert labels == {"team": "ml", "orch-intent": TOKEN}
    assert metadata["ssh-keys"].splitlines().count(LINE) == 1
    assert sum("OURS" in line for line in metadata["ssh-keys"].splitlines()) == 1
    assert with_ours(labels, metadata, {"orch-intent": TOKEN}, LINE) == (labels, metadata)
    theirs = [line for line in there.get("ssh-keys", "").splitlines() if "OURS" not in line]
    back = {key: value for key, value in there.items() if key != "ssh-keys"}
    assert without_ours(labels, metadata, LINE) == (
        {"team": "ml"},
        back | ({"ssh-keys": "\n".join(theirs)} if theirs else {}),
    )
