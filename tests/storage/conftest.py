"""One bucket of each kind, fresh for each test, on servers that live as long as the session."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.s3 import S3Server, s3_server

from orchestrator.simulator.google.gcs import GcsServer, gcs_server
from orchestrator.storage.bucket import Bucket

SCHEMES = ("file", "s3", "gs")


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


def make_place(scheme: str, request: pytest.FixtureRequest) -> Place:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    name = f"b{uuid.uuid4().hex[:20]}"
    if scheme == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        for key, value in s3.environment.items():
            monkeypatch.setenv(key, value)
        s3.create_bucket(name)

        def damage_s3(path: str, data: bytes) -> None:
            metadata = s3.client.head_object(Bucket=name, Key=path)["Metadata"]
            s3.client.put_object(Bucket=name, Key=path, Body=data, Metadata=metadata)

        return Place(scheme, f"s3://{name}", Bucket.open(f"s3://{name}"), damage_s3)
    if scheme == "gs":
        gcs: GcsServer = request.getfixturevalue("gcs")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        gcs.create_bucket(name)
        return Place(
            scheme, f"gs://{name}", Bucket.open(f"gs://{name}"), lambda path, data: gcs.corrupt(name, path, data)
        )
    folder: Path = request.getfixturevalue("tmp_path") / name
    folder.mkdir()
    return Place(
        scheme,
        f"file://{folder}",
        Bucket.open(f"file://{folder}"),
        lambda path, data: (folder / path).write_bytes(data) and None,
    )


@pytest.fixture(params=SCHEMES)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def bucket(place: Place) -> Bucket:
    return place.bucket


@pytest.fixture(params=("s3", "gs"))
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
