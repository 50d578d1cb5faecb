"""Buckets that are reached as a role or a service account: whose keys sign, one identity never as another."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from orch_fronts.aws.roles import Roles
from orch_fronts.aws.s3 import S3Server
from orch_fronts.aws.server import AwsServer
from orch_fronts.buckets import serve_buckets
from orch_fronts.google.gcs import gcs_server
from orch_fronts.google.grants import Grants
from orch_fronts.google.server import TpuServer
from orchestrator.cloud_access import BucketAccess, CloudAccess
from orchestrator.errors import CredentialsError
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Scenario
from orchestrator.storage import identities
from orchestrator.storage.bucket import Bucket

VISION, SPEECH = "arn:aws:iam::111111111111:role/vision", "arn:aws:iam::222222222222:role/speech"
ACCOUNT = "vision@local-project.iam.gserviceaccount.com"
OWN, SECRET = "orch-simulated", "orch-simulated-of-tests"


class Clouds:
    """The services of both clouds on this computer, each with the caller's own key."""

    def __init__(self, stack: ExitStack) -> None:
        access = InMemory(Scenario(), ManualClock())
        self.roles = Roles({VISION: "for-vision", SPEECH: ""})
        self.aws = stack.enter_context(AwsServer(access, secret=SECRET, roles=self.roles))
        self.s3 = stack.enter_context(serve_buckets(S3Server(OWN, secret=SECRET, create=True, roles=self.roles)))
        self.google = stack.enter_context(
            TpuServer(access, token=SECRET, grants=Grants(impersonates=frozenset({ACCOUNT})))
        )
        self.gcs = stack.enter_context(gcs_server(SECRET, create=True, tokens=self.google.tokens))

    def access(self, *, s3: tuple[tuple[str, str], ...] = (), gs: tuple[tuple[str, str], ...] = ()) -> CloudAccess:
        return CloudAccess(
            google_api=self.google.url,
            aws_api=self.aws.url,
            cloud_storage=BucketAccess(endpoint=self.gcs.url, token=SECRET, identity=gs),
            s3=BucketAccess(endpoint=self.s3.url, region="us-east-1", identity=s3),
            caller="orch-inst-ada",
        )


@pytest.fixture
def clouds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    for name, value in {"AWS_ACCESS_KEY_ID": OWN, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    with ExitStack() as stack:
        yield Clouds(stack)


def test_a_bucket_is_read_and_written_as_the_role(clouds: Clouds) -> None:
    bucket = Bucket.open("s3://runs", clouds.access(s3=(("role_arn", VISION), ("external_id", "for-vision"))))
    bucket.put("a", b"1")
    assert bucket.get("a") == b"1"
    (key,) = clouds.roles.given.values()
    assert clouds.s3.callers == {key.key}
    assert (key.role, key.session) == (VISION, "orch-inst-ada")


def test_without_an_identity_the_computer_asks_as_itself(clouds: Clouds) -> None:
    Bucket.open("s3://runs", clouds.access()).put("a", b"1")
    assert clouds.s3.callers == {OWN}
    assert clouds.roles.given == {}


def test_two_roles_in_one_process_are_never_mixed(clouds: Clouds) -> None:
    given = {"vision": (("role_arn", VISION), ("external_id", "for-vision")), "speech": (("role_arn", SPEECH),)}

    def work(number: int) -> None:
        name = ("vision", "speech")[number % 2]
        Bucket.open(f"s3://{name}", clouds.access(s3=given[name])).put(f"{number}", b"1")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(12)))
    assert {one.role for one in clouds.roles.given.values()} == {VISION, SPEECH}
    by_bucket: dict[str, set[str]] = {}
    for key, path in clouds.s3.calls:
        by_bucket.setdefault(path.split("/")[1], set()).add(clouds.roles.given[key].role)
    assert by_bucket == {"vision": {VISION}, "speech": {SPEECH}}


def test_a_refused_role_is_explained_and_asks_nothing_of_the_bucket(clouds: Clouds) -> None:
    bucket = Bucket.open("s3://runs", clouds.access(s3=(("role_arn", VISION), ("external_id", "wrong"))))
    with pytest.raises(CredentialsError) as caught:
        bucket.get("a")
    assert f"the role {VISION} cannot be assumed" in caught.value.what
    assert '"sts:ExternalId": "wrong"' in caught.value.next_step
    assert clouds.s3.callers == set()


def test_a_bucket_of_google_is_reached_as_the_service_account(clouds: Clouds) -> None:
    bucket = Bucket.open("gs://runs", clouds.access(gs=(("impersonate", ACCOUNT),)))
    bucket.put("a", b"1")
    assert bucket.get("a") == b"1"
    assert clouds.gcs.callers == {ACCOUNT}


def test_a_refused_service_account_is_explained(clouds: Clouds) -> None:
    clouds.google.tokens.trusting.clear()
    bucket = Bucket.open("gs://runs", clouds.access(gs=(("impersonate", ACCOUNT),)))
    with pytest.raises(CredentialsError) as caught:
        bucket.get("a")
    assert f"the service account {ACCOUNT} cannot be impersonated" in caught.value.what
    assert "roles/iam.serviceAccountTokenCreator" in caught.value.next_step
    assert clouds.gcs.callers == set()


def test_keys_are_given_out_for_less_than_they_last(clouds: Clouds) -> None:
    provider = identities.role_credentials(clouds.access(s3=(("role_arn", SPEECH),)))
    given: Any = provider()
    (key,) = clouds.roles.given.values()
    assert given["expires_at"] < key.ends
