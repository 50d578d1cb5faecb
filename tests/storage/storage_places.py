"""Buckets of each kind, each with a way to damage what lies in it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.s3 import ENVIRONMENT, S3Server

from orch_fronts.aws.s3 import S3Server as OwnS3Server
from orch_fronts.google.gcs import GcsServer
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
