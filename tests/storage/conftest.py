"""One bucket of each kind, fresh for each test, on servers that live as long as the session."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.s3 import ENVIRONMENT, S3Server, s3_server

from orchestrator.simulator.aws.s3 import S3Server as OwnS3Server
from orchestrator.simulator.aws.s3 import s3_server as own_s3_server
from orchestrator.simulator.google.gcs import GcsServer, gcs_server
from orchestrator.storage.bucket import Bucket

KINDS = ("file", "s3", "own-s3", "gs")  # own-s3: of the simulated AWS, beside moto's
QUICK_KINDS = ("file", "own-s3", "gs")  # a thousand requests to moto take seconds


@dataclass(frozen=True)
class Place:
    """A fresh bucket: its URI, ours, and a way to damage an object behind our back."""

    scheme: str
    uri: str
    bucket: Bucket
    damage: Callable[[str, bytes], None]


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


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    name = f"b{uuid.uuid4().hex[:20]}"
    if kind == "own-s3":
        own: OwnS3Server = request.getfixturevalue("own_s3")
        for key, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL_S3": own.url}.items():
            monkeypatch.setenv(key, value)
        own.create_bucket(name)
        uri = f"s3://{name}"
        return Place("s3", uri, Bucket.open(uri), lambda path, data: own.corrupt(name, path, data))
    if kind == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        for key, value in s3.environment.items():
            monkeypatch.setenv(key, value)
        s3.create_bucket(name)

        def damage_s3(path: str, data: bytes) -> None:
            metadata = s3.client.head_object(Bucket=name, Key=path)["Metadata"]
            s3.client.put_object(Bucket=name, Key=path, Body=data, Metadata=metadata)

        return Place(kind, f"s3://{name}", Bucket.open(f"s3://{name}"), damage_s3)
    if kind == "gs":
        gcs: GcsServer = request.getfixturevalue("gcs")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        gcs.create_bucket(name)
        return Place(
            kind, f"gs://{name}", Bucket.open(f"gs://{name}"), lambda path, data: gcs.corrupt(name, path, data)
        )
    folder: Path = request.getfixturevalue("tmp_path") / name
    folder.mkdir()
    return Place(
        kind,
        f"file://{folder}",
        Bucket.open(f"file://{folder}"),
        lambda path, data: (folder / path).write_bytes(data) and None,
    )


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
