"""The storage of the command line through a network that fails: every operation, every kind of fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.flaky_proxy import Fault, FlakyProxy, flaky_proxy
from support.s3 import ENVIRONMENT

from orch_fronts.aws.s3 import s3_server
from orch_fronts.buckets import BucketServer
from orch_fronts.google.gcs import gcs_server
from orchestrator.received_files import ReceivingFolder
from orchestrator.storage.bucket import Bucket

FAULTS_IN_A_ROW = 1  # more take seconds: obstore's pauses


@dataclass(frozen=True)
class Flaky:
    bucket: Bucket
    server: BucketServer
    network: FlakyProxy


@pytest.fixture(params=["s3", "gs"])
def flaky(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Flaky]:
    with (
        gcs_server(create=True) if request.param == "gs" else s3_server(create=True) as server,
        flaky_proxy(server.url) as network,
    ):
        variable = "STORAGE_EMULATOR_HOST" if request.param == "gs" else "AWS_ENDPOINT_URL_S3"
        for name, value in {**ENVIRONMENT, variable: network.url}.items():
            monkeypatch.setenv(name, value)
        yield Flaky(Bucket.open(f"{request.param}://bucket/x"), server, network)


def download(bucket: Bucket, folder: Path) -> bytes:
    with ReceivingFolder(folder) as received:
        bucket.download_into(received, "copy", "there")
    return (folder / "copy").read_bytes()


OPERATIONS: dict[str, Callable[[Bucket, Path], object]] = {
    "check_access": lambda bucket, _: bucket.check_access(write=True),
    "exists": lambda bucket, _: bucket.exists("there"),
    "get": lambda bucket, _: bucket.get("there"),
    "get_bounded": lambda bucket, _: bucket.get_bounded("there", 1 << 20),
    "put": lambda bucket, _: bucket.put("new", b"1") and None,
    "put_if_absent": lambda bucket, _: bucket.put_if_absent("new", b"1"),
    "replace_if": lambda bucket, _: (
        (found := bucket.head("there")) is not None and bucket.replace_if("there", b"3", found.version)
    ),
    "list": lambda bucket, _: [info.path for info in bucket.list() if info.path != "new"],
    "list_dir": lambda bucket, _: [info.path for info in bucket.list_dir().objects if info.path != "new"],
    "delete": lambda bucket, _: bucket.delete("there"),
    "delete_all": lambda bucket, _: bucket.delete_all(["there", "new"]),
    "sha256": lambda bucket, _: bucket.sha256("there"),
    "upload": lambda bucket, folder: bucket.upload_file(folder / "large", "new"),
    "download": download,
}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_survives_faults_in_a_row(flaky: Flaky, tmp_path: Path, operation: str, fault: Fault) -> None:
    if operation == "upload":
        (tmp_path / "large").write_bytes(b"x" * (9 << 20))
    flaky.bucket.put("there", b"12" * 500)
    expected = OPERATIONS[operation](flaky.bucket, tmp_path)
    flaky.bucket.delete("new")
    flaky.bucket.put("there", b"12" * 500)
    left = iter(range(FAULTS_IN_A_ROW))
    flaky.network.fail(fault, only=lambda method, path: next(left, None) is not None)
    assert OPERATIONS[operation](flaky.bucket, tmp_path) == expected
    assert flaky.network.failed == FAULTS_IN_A_ROW or fault in (Fault.CUT, Fault.SLOW)
    flaky.network.recover()
    if operation == "upload":
        assert len(flaky.bucket.get("new")) == 9 << 20


def test_a_listing_of_several_pages_continues_behind_the_page_that_was_cut(flaky: Flaky) -> None:
    names = [f"{number:05d}" for number in range(2500)]
    flaky.bucket.put("first", b"1")
    objects = flaky.server.buckets["bucket"]
    stored = objects.pop("x/first")
    objects.update({f"x/{name}": stored for name in names})  # 2,500 requests would take long
    flaky.network.fail(Fault.CUT, share=0.5, seed=3)
    assert [info.path for info in flaky.bucket.list()] == names
    assert flaky.network.failed >= 1
    pages = [seen for seen in flaky.server.seen if seen.method == "GET" and "list-type" in seen.query]
    assert any(seen.query.get("start-after") for seen in pages), "not from the beginning"


@pytest.mark.parametrize("seed", range(3))
def test_one_of_many_conditional_writers_wins_in_a_bad_network(flaky: Flaky, seed: int) -> None:
    flaky.network.fail(Fault.BUSY, Fault.BROKEN_AFTER, Fault.LOST_AFTER, Fault.LOST, share=0.25, seed=seed)
    won = [flaky.bucket.put_if_absent("claim", f"writer {number}".encode()) for number in range(8)]
    flaky.network.recover()
    assert won.count(True) == 1
    assert flaky.bucket.get("claim") == f"writer {won.index(True)}".encode()
