"""What only version 2alpha1 can ask for, on the simulated cloud: asked for there, looked at and ended by version 2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from google_bench import Bench
from google_cases import TOKEN, candidate, filled, keys, spec
from google_fake import Answer, Fault

from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.errors import AccessError, CapacityError, CloudError, OrchError
from orchestrator.providers.core.driver import SETTLE_SECONDS
from orchestrator.providers.google import client, session
from orchestrator.providers.google.alpha import AlphaApi
from orchestrator.providers.google.provider import TpuProvider
from orchestrator.providers.google.states import EXPIRY_GRACE
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.cloud import SimulatedCloud
from orchestrator.simulator.scenario import Durations, Held, Pool, Scenario, Zone
from orchestrator.slices import Candidate, FlexStart, Reservation, SliceKeys, SliceState, SliceView, Spot

ZONE = "us-west4-a"
HELD = (Held(name="r-1", zone=ZONE, accelerator="v5e", amount=64, unit="chips"),)
FLEX = candidate("v5litepod-16", FlexStart(4.0), project=PROJECT)


@dataclass(slots=True)
class World:
    """The simulated cloud behind its front, and providers as commands have them, one after another."""

    server: TpuServer
    access: InMemory
    clock: ManualClock
    state: Path
    keys: SliceKeys

    @property
    def cloud(self) -> SimulatedCloud:
        return self.access.cloud

    def provider(self) -> TpuProvider:
        return TpuProvider(client.open_api(session.open_session()), self.state / "google", self.clock.now)

    def create(self, of: Candidate) -> None:
        host_private, host_public = (part[: of.hosts] for part in self._pairs())
        mine = SliceKeys(
            user_public="ssh-ed25519 AAAA me",
            identity_file="/id",
            known_hosts="/known",
            host_private=host_private,
            host_public=host_public,
        )
        self.provider().create(spec(of), mine)

    def look(self) -> SliceView:
        return self.provider().observe("demo-1")

    def sent(self) -> list[str]:
        return [
            target.partition("?")[0].split("/")[1] for method, target, _ in self.server.requests if method == "POST"
        ]

    def _pairs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.keys.host_private, self.keys.host_public


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = ManualClock()
    pools = tuple(
        Pool(zone=ZONE, accelerator="v5e", amount=64, market=market, unit="chips")
        for market in ("flex-start", "spot", "on-demand")
    )
    scenario = Scenario(
        zones=(Zone(ZONE, "us-west4"),), durations=Durations(jitter=0.0), reservations=HELD, pools=pools
    )
    access = InMemory(scenario, clock)
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.delenv("CLOUDSDK_CORE_PROJECT", raising=False)
    with TpuServer(access) as server:
        monkeypatch.setenv(session.ENDPOINT, server.url)
        yield World(server, access, clock, tmp_path, keys(8))


@pytest.mark.parametrize(
    ("of", "market"),
    [
        (candidate(disk_gib=500, project=PROJECT), "on-demand"),
        (FLEX, "flex-start"),
        (candidate("v5litepod-8", FlexStart(1.0), slices=2, project=PROJECT), "flex-start"),
        (candidate(max_run_hours="2", project=PROJECT), "on-demand"),
        (candidate(market=Spot(), max_run_hours="2", disk_gib=200, project=PROJECT), "spot"),
        (candidate(tier="best-effort", project=PROJECT), "spot"),
        (candidate(tier="guaranteed", max_run_hours="2", project=PROJECT), "on-demand"),
        (candidate(market=Reservation("r-1"), reservation_bound="yes", project=PROJECT), "reservation:r-1"),
    ],
)
def test_what_the_newer_version_made_the_older_one_sees_and_ends(of: Candidate, market: str, world: World) -> None:
    world.create(of)
    assert world.sent() == ["v2alpha1"]
    assert world.look().state is SliceState.CREATING
    world.clock.advance(120)
    view = world.look()
    assert view.state is SliceState.READY, view
    assert [host.rank for host in view.hosts] == list(range(of.hosts))
    looks = world.cloud.live()
    assert {look.market for look in looks} == {market}
    disks = {str(look.extra["node"].get("bootDiskConfig")) for look in looks}
    assert disks == {str({"diskSizeGb": str(of.disk_gib)} if of.disk_gib else None)}
    assert [one.name for one in world.provider().owned("inst-0123456789abcdef")] == ["demo-1"]
    world.provider().end("demo-1")
    world.clock.advance(SETTLE_SECONDS + 30)
    assert world.look().state is SliceState.ABSENT
    assert world.cloud.live() == ()
    assert world.cloud.list_queued() == ()


def test_flex_start_ends_with_its_hours_and_says_so(world: World) -> None:
    world.create(FLEX)
    world.clock.advance(120)
    assert world.look().state is SliceState.READY
    world.clock.advance(4 * 3600)
    assert world.look().state is SliceState.ENDING
    world.clock.advance(60)
    view = world.look()
    assert (view.state, view.reason) == (SliceState.PREEMPTED, "suspended by service: its 4 h 0 min are over")
    world.provider().end("demo-1")
    world.clock.advance(60)
    assert world.look().state is SliceState.ABSENT


def test_request_waits_until_its_deadline_and_then_has_failed(world: World) -> None:
    """The first slice takes all the machines there are; the second waits its half hour in vain."""
    big = candidate("v5litepod-64", FlexStart(8.0), project=PROJECT)
    mine = SliceKeys(
        user_public="ssh-ed25519 AAAA me",
        identity_file="/id",
        known_hosts="/known",
        host_private=world.keys.host_private * 2,
        host_public=world.keys.host_public * 2,
    )
    world.provider().create(spec(big, "first-1", "first-token"), mine)
    world.clock.advance(120)
    asked = world.clock.now()
    world.create(candidate("v5litepod-16", FlexStart(1.0), project=PROJECT, valid_hours="0.5"))
    world.clock.advance(600)
    view = world.look()
    assert (view.state, view.reason) == (
        SliceState.CREATING,
        "waiting for resources for 10 min",
    )
    assert view.until == pytest.approx(asked + 1800, abs=5)
    world.clock.advance(1300)
    assert world.look().state is SliceState.FAILED
    world.provider().end("demo-1")
    world.clock.advance(60)
    assert world.look().state is SliceState.ABSENT
    assert [queued.name for queued in world.cloud.list_queued()] == ["first-1"]


def test_hosts_that_come_up_after_the_queue_still_have_its_deadline(bench: Bench) -> None:
    """Else the time they waited would be taken for the time they need to boot."""
    provider = bench.created(spec(candidate(market=Spot(), valid_hours="2")))
    (path,) = bench.fake.queued
    bench.fake.make_ready("demo-1")
    bench.fake.queued[path]["createTime"] = "2025-11-20T09:00:00Z"
    view = provider.observe("demo-1")
    assert (view.state, view.reason) == (SliceState.CREATING, "0 of 4 hosts have their SSH key")
    assert view.until == bench.clock + 3600


def test_lost_answer_is_settled_by_a_look_and_makes_one_request(bench: Bench) -> None:
    of = spec(candidate("v5litepod-8", FlexStart(1.0)))
    bench.fake.faults = [Fault("POST", acts=True, drops=True)]
    bench.created(of)
    assert len(bench.fake.queued) == 1
    assert bench.provider().observe("demo-1").state is SliceState.CREATING


@pytest.mark.parametrize("how", ["refused", "no TLS", "cut off"])
def test_create_of_which_nothing_whole_is_heard_may_have_acted(how: str, bench: Bench) -> None:
    provider, of = bench.provider(), spec(candidate("v5litepod-8", FlexStart(1.0)))
    urls = {
        "refused": "http://127.0.0.1:1",
        "no TLS": bench.fake.url.replace("http", "https"),
        "cut off": bench.fake.url,
    }
    provider._tpu.api._alpha = AlphaApi(replace(session.open_session(), endpoint=urls[how]))
    bench.fake.faults = [Fault("POST", cuts=True)]
    if how == "cut off":
        provider.create(of, bench.keyed(of))
        assert provider.observe("demo-1").state is SliceState.CREATING, "a look has found it"
        return
    with pytest.raises(CloudError, match="not known whether it acted"):
        provider.create(of, bench.keyed(of))
    assert provider.observe("demo-1").state is SliceState.UNCLEAR


def test_every_try_of_a_create_has_the_same_request_id(world: World) -> None:
    """So that a request that the library sends twice on a broken connection is one request."""
    for _ in range(2):
        world.provider()._tpu.api.create(_ready(world))
    sent = [target for method, target, _ in world.server.requests if method == "POST"]
    assert len(sent) == 2
    assert len({target.partition("requestId=")[2] for target in sent}) == 1
    world.clock.advance(120)
    assert len(world.cloud.list_queued()) == 1


@pytest.mark.parametrize(
    ("answer", "expected", "next_step"),
    [
        (Answer(429, "There is no more capacity in the zone"), CapacityError, "another zone"),
        (Answer(403, "Permission 'tpu.queuedResources.create' denied"), AccessError, "orch check gcp"),
        (Answer(403, "Cloud TPU API has not been used in project 1 before"), AccessError, "gcloud services enable"),
        (
            Answer(400, 'FLEX_START provisioning model is not supported for accelerator type "v6e-4" in location "z"'),
            CapacityError,
            "another zone",
        ),
        (Answer(429, "slow down", headers={"Retry-After": "7"}), CloudError, "again"),
    ],
)
def test_refusals_of_the_newer_version_are_told_apart_like_those_of_the_older(
    answer: Answer, expected: type[OrchError], next_step: str, bench: Bench
) -> None:
    bench.fake.faults = [Fault("POST", answer)]
    with pytest.raises(expected) as caught:
        bench.created(spec(candidate("v5litepod-8", FlexStart(1.0))))
    assert type(caught.value) is expected
    assert next_step in caught.value.next_step
    assert answer.words in caught.value.why
    assert bench.fake.count("POST") == 1


def test_operation_of_the_newer_version_tells_why_nothing_came(bench: Bench) -> None:
    """Version 2 cannot read its messages: it would take them for an answer that is not whole."""
    provider = bench.created(spec(candidate("v5litepod-8", disk_gib=200)))
    (path,) = bench.fake.operations
    kind = "type.googleapis.com/google.cloud.tpu.v2alpha1.OperationMetadata"
    words = "no more capacity in the zone"
    bench.fake.operations[path] = {
        "name": path,
        "metadata": {"@type": kind, "verb": "create"},
        "done": True,
        "error": {"code": 8, "message": words},
    }
    bench.fake.nodes.clear()
    view = provider.observe("demo-1")
    assert (view.state, words in view.reason) == (SliceState.FAILED, True), view
    bench.fake.operations[path] |= {"done": False, "error": {}}
    assert provider.observe("demo-1").state is SliceState.CREATING


def test_request_that_expired_without_a_word_has_failed(bench: Bench) -> None:
    """It stays in the queue as it was ("Manage queued resources", 2026)."""
    provider = bench.created(spec(candidate("v5litepod-8", FlexStart(1.0), valid_hours="2")))
    (path,) = bench.fake.queued
    bench.fake.queued[path] |= {
        "createTime": "2025-11-20T08:00:00Z",
        "state": {"state": "WAITING_FOR_RESOURCES"},
        "queueingPolicy": {},
    }
    view = provider.observe("demo-1")
    assert (view.state, view.until) == (SliceState.CREATING, bench.clock), "two hours, which Google no longer shows"
    bench.clock += EXPIRY_GRACE + 1
    view = provider.observe("demo-1")
    assert (view.state, view.reason) == (SliceState.FAILED, "expired: no machines became free within 2 h 0 min")
    provider.end("demo-1")
    assert bench.fake.queued == {}


def test_deadline_that_google_shows_as_a_time_is_understood(bench: Bench) -> None:
    provider = bench.created(spec(candidate(market=Spot())))
    (path,) = bench.fake.queued
    for policy in (
        {"validUntilTime": "2025-11-20T11:00:00Z"},
        {"validInterval": {"startTime": "2025-11-20T09:00:00Z", "endTime": "2025-11-20T11:00:00Z"}},
    ):
        bench.fake.queued[path] |= {"createTime": "2025-11-20T09:30:00Z", "queueingPolicy": policy}
        view = provider.observe("demo-1")
        assert view.reason == "creating for 30 min"
        assert view.until == bench.clock + 3600


def _ready(world: World) -> object:
    mine = SliceKeys(
        user_public="ssh-ed25519 AAAA me",
        identity_file="/id",
        known_hosts="/known",
        host_private=world.keys.host_private[:4],
        host_public=world.keys.host_public[:4],
    )
    return filled(spec(FLEX, token=TOKEN), mine)
