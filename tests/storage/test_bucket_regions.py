"""A bucket in another region than the environment says: every operation finds it, on the laptop and in the trainer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.s3 import ENVIRONMENT

from orch_fronts.aws.s3 import S3Server, WrongRegion, s3_server
from orchestrator.errors import StorageError
from orchestrator.storage.bucket import Bucket
from trainer.checkpoint.bucket_region import find_bucket_region, is_region_refusal, read_region_of_refusal
from trainer.checkpoint.store import Store, open_store

REFUSALS: tuple[WrongRegion, ...] = ("redirect", "malformed", "opt-in")
BUCKETS = {"west": "us-west-2", "east": "us-east-1"}


@pytest.fixture(params=REFUSALS)
def s3(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """Two buckets of two regions; AWS_REGION is not set."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "ORCH_BUCKET_REGION"):
        monkeypatch.delenv(name, raising=False)
    with s3_server(ENVIRONMENT["AWS_ACCESS_KEY_ID"]) as server:
        server.wrong_region = request.param
        for name, region in BUCKETS.items():
            server.create_bucket_in(region, name)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        yield server


OF_LAPTOP: dict[str, Callable[[Bucket, Path], object]] = {
    "check_access": lambda bucket, _: bucket.check_access(),
    "check_write": lambda bucket, _: bucket.check_access(write=True),
    "head": lambda bucket, _: bucket.head("there"),
    "get": lambda bucket, _: bucket.get("there"),
    "put": lambda bucket, _: bucket.put("new", b"1"),
    "put_if_absent": lambda bucket, _: bucket.put_if_absent("new", b"1"),
    "list": lambda bucket, _: list(bucket.list()),
    "list_dir": lambda bucket, _: bucket.list_dir(),
    "delete": lambda bucket, _: bucket.delete("there"),
    "sha256": lambda bucket, _: bucket.sha256("there"),
    "upload": lambda bucket, folder: bucket.upload_file(folder / "large", "new"),
    "download": lambda bucket, folder: bucket.download_file("there", folder / "copy"),
}
OF_TRAINER: dict[str, Callable[[Store], object]] = {
    "find": lambda store: store.find("there"),
    "put": lambda store: store.put("new", b"1" * (20 << 20)),
    "create": lambda store: store.create("new", b"1"),
    "list_objects": lambda store: store.list_objects(""),
    "list_folders": lambda store: store.list_folders(),
    "read_ranges": lambda store: store.read_ranges("there", [0], [1]),
    "read_into": lambda store: store.read_into("there", 0, memoryview(bytearray(2))),
    "delete": lambda store: store.delete(["there"]),
    "replace": lambda store: store.replace_if_unchanged("new", b"1", None),
}


def fill(bucket: str) -> None:
    """Put an object there with a client of the right region."""
    open_store(f"s3://{bucket}/x", environ={**os.environ, "AWS_REGION": BUCKETS[bucket]}).put("there", b"12")


@pytest.mark.parametrize("operation", OF_LAPTOP)
@pytest.mark.parametrize(("bucket", "region"), [("west", ""), ("west", "us-east-1"), ("east", "us-west-2")])
def test_each_operation_of_the_laptop_follows_the_bucket(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, operation: str, bucket: str, region: str
) -> None:
    fill(bucket)
    (tmp_path / "large").write_bytes(b"x" * (9 << 20))
    if region:
        monkeypatch.setenv("AWS_REGION", region)
    s3.seen.clear()
    opened = Bucket.open(f"s3://{bucket}/x")
    OF_LAPTOP[operation](opened, tmp_path)
    refused = len(s3.seen)
    opened.head("there")
    assert len(s3.seen) == refused + 1, "the region is found once"
    if operation == "download":
        assert (tmp_path / "copy").read_bytes() == b"12"
    if operation == "upload":
        assert len(s3.buckets[bucket]["x/new"].data) == 9 << 20


@pytest.mark.parametrize("operation", OF_TRAINER)
@pytest.mark.parametrize(("bucket", "region"), [("west", ""), ("west", "us-east-1"), ("east", "us-west-2")])
def test_each_operation_of_the_trainer_follows_the_bucket(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, operation: str, bucket: str, region: str
) -> None:
    fill(bucket)
    if region:
        monkeypatch.setenv("AWS_REGION", region)
    store = open_store(f"s3://{bucket}/x")
    OF_TRAINER[operation](store)
    s3.seen.clear()
    store.find("there")
    assert len(s3.seen) == 1, "the region is found once"


def test_the_region_that_the_launcher_names_is_for_the_bucket_of_the_run_alone(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("ORCH_CHECKPOINT_URI", "s3://west/run/checkpoints")
    monkeypatch.setenv("ORCH_BUCKET_REGION", "us-west-2")
    open_store("s3://west/run/checkpoints").put("a", b"1")
    open_store("s3://east/data").put("a", b"1")
    assert [(seen.method, seen.key) for seen in s3.seen] == [("PUT", "run/checkpoints/a"), ("PUT", "data/a")]


def test_a_wrong_region_that_the_launcher_names_is_followed_too(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_CHECKPOINT_URI", "s3://west/run/checkpoints")
    monkeypatch.setenv("ORCH_BUCKET_REGION", "eu-west-1")
    open_store("s3://west/run/checkpoints").put("a", b"1")
    assert s3.buckets["west"]["run/checkpoints/a"].data == b"1"


def test_a_service_that_names_no_region_is_an_error_with_the_next_step(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orch_fronts.aws.s3.S3Handler.refusal_headers", lambda _: {})
    if s3.wrong_region == "malformed":
        pytest.skip("its text names the region")
    with pytest.raises(StorageError) as caught:
        Bucket.open("s3://west/x").put("a", b"1")
    assert "another region" in caught.value.why
    assert "AWS_REGION" in caught.value.next_step


def test_an_unsigned_request_names_the_region(s3: S3Server) -> None:
    assert find_bucket_region("west", s3.url) == "us-west-2"
    assert find_bucket_region("east", s3.url) == "us-east-1"
    assert find_bucket_region("absent", s3.url) == ""
    assert find_bucket_region("west", "http://127.0.0.1:9") == ""


MALFORMED = "The authorization header is malformed; the region 'us-east-1' is wrong; expecting"
OF_FLATWARE = f"<Code>AuthorizationHeaderMalformed</Code><Message>{MALFORMED} 'eu-central-1'</Message>"
OF_SHOWDOC = f"Code: AuthorizationHeaderMalformed Message: {MALFORMED} 'ap-east-1'"
OF_S3RS = """<Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must be addressed using \
the specified endpoint. Please send all future requests to this endpoint.</Message>\
<Endpoint>ant-lab.s3-ap-northeast-1.amazonaws.com</Endpoint>"""
OF_BOTO = """An error occurred (IllegalLocationConstraintException) when calling the PutObject operation: The \
ap-east-1 location constraint is incompatible for the region specific endpoint this request was sent to."""


@pytest.mark.parametrize(
    ("text", "refused", "region"),
    [
        (f"{OF_FLATWARE}<Region>eu-central-1</Region>", True, "eu-central-1"),  # jsoma/flatware#10, 2016-04-27
        (OF_SHOWDOC, True, "ap-east-1"),  # star7th/showdoc#2126, 2024-01-04: without an element for the region
        (OF_S3RS, True, ""),  # yanganto/s3rs#18, 2019-01-17
        (OF_BOTO, True, ""),  # boto/boto3#3055, 2021
        ("status code: 400 Bad Request: <Error><Code>EntityTooSmall</Code></Error>", False, ""),
        ("status code: 400 Bad Request: \n\nDebug source:", True, ""),  # of HEAD, which has no body
        ("<Region>evil.example/?</Region> AuthorizationHeaderMalformed", True, ""),
    ],
)
def test_what_a_refusal_says(text: str, refused: bool, region: str) -> None:
    assert is_region_refusal(text) is refused
    assert read_region_of_refusal(text) == region
