"""Slices that are made, observed and ended as an impersonated service account, over the real clients and a socket."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.google_cloud import tpu_candidate, tpu_zones

from orch_fronts.google.grants import Grants
from orch_fronts.google.server import PROJECT, TpuServer
from orchestrator.cloud_access import GOOGLE_API, GOOGLE_API_TOKEN
from orchestrator.errors import CredentialsError, UserError
from orchestrator.providers.google import choices, iap
from orchestrator.providers.google.gated import Gated
from orchestrator.providers.google.provider import open_provider
from orchestrator.remote.keys import make_host_key
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Scenario
from orchestrator.slices import Candidate, SliceKeys, SliceSpec, SliceState
from orchestrator.values import Text

VISION = "vision@local-project.iam.gserviceaccount.com"
SPEECH = "speech@local-project.iam.gserviceaccount.com"


class Cloud:
    """One project with a TPU zone; its time passes only when a test says so."""

    def __init__(self, server: TpuServer, clock: ManualClock, state: Path) -> None:
        self.server = server
        self.clock = clock
        self.state = state
        private, public = make_host_key()
        self.keys = SliceKeys(
            user_public=make_host_key()[1], identity_file="/nowhere/id", known_hosts="/nowhere/known",
            host_private=(private,), host_public=(public,),
        )  # fmt: skip

    def provider(self) -> Gated:
        """As another command would have it."""
        return open_provider(self.state)

    def bound(self, candidate: Candidate) -> Gated:
        """As the engine binds it to the account and identity on record."""
        return self.provider().within(f"gcp:{PROJECT}@loopback", candidate)

    def spec(self, candidate: Candidate, name: str = "c-1") -> SliceSpec:
        given = {"orch-installation": "inst-1", "orch-cluster": name.rpartition("-")[0], "orch-intent": f"t-{name}"}
        labels = tuple((key, Text.of(value)) for key, value in given.items())
        return SliceSpec(
            cluster=given["orch-cluster"], name=name, token=Text.of(f"t-{name}"), candidate=candidate, labels=labels
        )

    def callers(self) -> set[str]:
        """As whom it was called; the caller itself, "", only asks for tokens."""
        return {who for who, path in self.server.callers if "generateAccessToken" not in path}


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    clock = ManualClock()
    durations = Durations(create=3.0, end=2.0, jitter=0.0)
    access = InMemory(Scenario(zones=tpu_zones("us-central2-b"), durations=durations), clock)
    with TpuServer(access, token="own", grants=Grants(impersonates=frozenset({VISION, SPEECH}))) as server:
        monkeypatch.setenv(GOOGLE_API, server.url)
        monkeypatch.setenv(GOOGLE_API_TOKEN, "own")
        yield Cloud(server, clock, tmp_path / "state")


def candidate(account: str = VISION, **details: str) -> Candidate:
    named = {"impersonate": account} if account else {}
    return tpu_candidate("v4-8", **named, firewall="none", **details)


def test_every_call_of_a_slice_is_made_as_its_account(cloud: Cloud) -> None:
    one = candidate()
    cloud.provider().create(cloud.spec(one), cloud.keys)
    cloud.clock.advance(10.0)
    provider = cloud.bound(one)
    assert provider.observe("c-1", "t-c-1").state in (SliceState.READY, SliceState.CREATING)
    provider.end("c-1", "t-c-1")
    cloud.clock.advance(10.0)
    assert provider.observe("c-1", "t-c-1").state is SliceState.ABSENT
    assert cloud.callers() == {VISION}
    asked = [who for who, path in cloud.server.callers if "generateAccessToken" in path]
    assert set(asked) == {""}


def test_a_slice_of_the_server_itself_stays_its_own(cloud: Cloud) -> None:
    cloud.provider().create(cloud.spec(candidate("")), cloud.keys)
    cloud.bound(candidate("")).observe("c-1", "t-c-1")
    assert cloud.callers() == {""}
    cloud.server.callers.clear()
    cloud.bound(candidate()).observe("c-1", "t-c-1")
    assert cloud.callers() == {VISION}


def test_two_accounts_in_one_process_are_never_mixed(cloud: Cloud) -> None:
    provider = cloud.provider()
    wanted = {f"c-{number}": SPEECH if number % 2 else VISION for number in range(1, 7)}

    def make(name: str) -> None:
        provider.create(cloud.spec(candidate(wanted[name]), name), cloud.keys)
        provider.within(f"gcp:{PROJECT}@loopback", candidate(wanted[name])).observe(name, f"t-{name}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(make, wanted))
    seen: dict[str, set[str]] = {}
    for who, path in cloud.server.callers:
        if found := next((name for name in wanted if f"/nodes/{name}" in path or f"nodeId={name}" in path), ""):
            seen.setdefault(found, set()).add(who)
    assert seen == {name: {account} for name, account in wanted.items()}


def test_a_token_that_ends_soon_is_renewed(cloud: Cloud) -> None:
    cloud.server.tokens.seconds = 60  # google-auth renews what lasts less than 3 min 45 s
    cloud.provider().create(cloud.spec(candidate()), cloud.keys)
    cloud.bound(candidate()).observe("c-1", "t-c-1")
    assert len(cloud.server.tokens.given) > 1
    assert cloud.callers() == {VISION}


def test_a_refusal_says_which_account_who_asked_and_the_missing_binding(cloud: Cloud) -> None:
    other = "else@local-project.iam.gserviceaccount.com"
    with pytest.raises(CredentialsError) as caught:
        cloud.provider().create(cloud.spec(candidate(other)), cloud.keys)
    lines = caught.value.lines()
    assert len(lines) <= 5
    assert f"the service account {other} cannot be impersonated" in lines[0]
    assert "Permission 'iam.serviceAccounts.getAccessToken' denied on resource" in lines[1]
    assert "roles/iam.serviceAccountTokenCreator" in caught.value.next_step
    assert f"add-iam-policy-binding {other}" in caught.value.next_step


def test_an_account_that_stops_trusting_is_unclear_and_never_absent(cloud: Cloud) -> None:
    cloud.provider().create(cloud.spec(candidate()), cloud.keys)
    cloud.server.tokens.trusting.clear()
    view = cloud.bound(candidate()).observe("c-1", "t-c-1")
    assert view.state is SliceState.UNCLEAR
    assert VISION in view.reason


def test_what_is_found_as_an_account_is_taken_over_as_it(cloud: Cloud) -> None:
    cloud.provider().create(cloud.spec(candidate()), cloud.keys)
    cloud.clock.advance(10.0)
    place = cloud.provider().place_as((("project", PROJECT), ("impersonate", VISION)))
    bound = cloud.provider().at(place)
    cloud.server.callers.clear()
    (found,) = bound.owned("")
    assert bound.describe_owned(found).candidate.detail("impersonate") == VISION
    assert cloud.callers() == {VISION}


def test_the_tunnel_of_iap_impersonates_it_too() -> None:
    assert f"--impersonate-service-account={VISION}" in iap.proxy_command("vm-1", PROJECT, "us-central2-b", VISION)
    with pytest.raises(ValueError, match="IAP"):
        iap.proxy_command("vm-1", PROJECT, "us-central2-b", "a b@x")


def test_what_is_no_service_account_is_refused() -> None:
    with pytest.raises(UserError, match="impersonate is 'ada@example"):
        choices.read(candidate("ada@example.com"))
