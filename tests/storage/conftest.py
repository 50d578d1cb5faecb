"""One bucket of each kind, fresh for each test, on servers that live as long as the session."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from storage_places import KINDS, Place, make_place
from support.s3 import ENVIRONMENT, S3Server, s3_server

from orch_fronts.aws.s3 import S3Server as OwnS3Server
from orch_fronts.aws.s3 import s3_server as own_s3_server
from orch_fronts.google.gcs import GcsServer, gcs_server
from orchestrator.storage.bucket import Bucket


@pytest.fixture(scope="session")
def gcs() -> Iterator[GcsServer]:
    with gcs_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def own_s3() -> Iterator[OwnS3Server]:
    with own_s3_server(ENVIRONMENT["AWS_ACCESS_KEY_ID"]) as server:
        yield server


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No endpoint, credential or profile of the developer reaches a test."""
    for name in (
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "AWS_PROFILE",
        "AWS_SESSION_TOKEN",
        "STORAGE_EMULATOR_HOST",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_BASE_URL",
        "GOOGLE_BEARER_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def bucket(place: Place) -> Bucket:
    return place.bucket


@pytest.fixture(params=("s3", "own-s3", "gs"))
def cloud(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def own_gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    """A server of the test's own, to plant faults in; it has the bucket `faulty`."""
    with gcs_server(token="the-token") as server:
        server.create_bucket("faulty")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "the-token")
        yield server
