"""What goes wrong between us and a bucket: it either heals, or becomes one clear error with a next step."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from storage_places import Place, make_place
from support.s3 import ENVIRONMENT

from orch_fronts.aws.s3 import s3_server as own_s3_server
from orch_fronts.buckets import Refusal
from orch_fronts.google.gcs import GcsServer
from orchestrator.errors import AccessError, NotFoundError, OrchError, StorageError, UserError
from orchestrator.storage.address import Address, Scheme, split_object
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.faults import cloud_error, disk_error
from orchestrator.storage.folder import _try_lock

OPERATIONS: dict[str, Callable[[Bucket], object]] = {
    "check": lambda bucket: bucket.check_access(),
    "check-write": lambda bucket: bucket.check_access(write=True),
    "get": lambda bucket: bucket.get("k"),
    "put": lambda bucket: bucket.put("k", b""),
    "put_if_absent": lambda bucket: bucket.put_if_absent("k", b""),
    "list": lambda bucket: list(bucket.list()),
    "list_dir": lambda bucket: bucket.list_dir(),
    "delete": lambda bucket: bucket.delete("k"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_missing_bucket_is_named_with_the_command_that_makes_it(cloud: Place, operation: str) -> None:
    bucket = Bucket.open(f"{cloud.scheme}://no-such-bucket-here")
    with pytest.raises(NotFoundError) as caught:
        OPERATIONS[operation](bucket)
    assert "no-such-bucket-here" in caught.value.why
    assert "create" in caught.value.next_step


def test_a_conditional_write_into_a_missing_bucket_is_not_taken_for_a_lost_race(cloud: Place) -> None:
    version = cloud.bucket.put("k", b"1")
    with pytest.raises(NotFoundError):
        Bucket.open(f"{cloud.scheme}://no-such-bucket-here").replace_if("k", b"2", version)


@pytest.mark.parametrize(
    ("number", "why"),
    [(errno.EISDIR, "a folder is where a file is needed"), (errno.ENOTDIR, "a file is where a folder is needed"),
     (errno.EIO, os.strerror(errno.EIO))],
)  # fmt: skip
def test_each_failure_of_a_disk_has_its_words(number: int, why: str) -> None:
    error = disk_error("write /data/file", OSError(number, os.strerror(number), "/data/file"))
    assert error.what == "cannot write /data/file" and error.why.startswith(why)


@pytest.mark.parametrize(
    ("scheme", "command"), [("gs", "gcloud auth application-default login"), ("s3", "aws configure")]
)
def test_without_credentials_the_login_of_that_cloud_is_named(scheme: Scheme, command: str) -> None:
    refusal = RuntimeError("<Code>InvalidAccessKeyId</Code> status code: 401")
    error = cloud_error(Address(scheme=scheme, container="b", prefix=""), "read it", refusal)
    assert isinstance(error, AccessError) and command in error.next_step


def test_writes_leave_no_file_open(tmp_path: Path) -> None:
    bucket = Bucket.open(f"file://{tmp_path}")
    bucket.put("k", b"0")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        assert bucket.put_if_absent(f"new-{number}", b"1")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_missing_folder_bucket_is_reported_and_made_by_the_first_write(tmp_path: Path) -> None:
    bucket = Bucket.open(f"file://{tmp_path}/not/yet")
    for operation in ("check", "list", "list_dir", "get"):
        with pytest.raises(NotFoundError):
            OPERATIONS[operation](bucket)
    bucket.check_access(write=True)
    bucket.check_access()
    assert (tmp_path / "not/yet").is_dir()


def test_a_file_in_the_place_of_the_bucket_is_reported(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    bucket = Bucket.open(f"file://{tmp_path}/f")
    with pytest.raises(StorageError):
        bucket.check_access(write=True)
    with pytest.raises(NotFoundError, match="a file stands there"):
        bucket.check_access()


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs Linux's /sys, where no user may make a folder")
def test_a_folder_that_refuses_writing_is_a_permission_error() -> None:
    with pytest.raises(AccessError) as caught:
        Bucket.open("file:///sys/kernel/orch-bucket").check_access(write=True)
    assert caught.value.next_step


FULL_DISK = """
import os, sys
from pathlib import Path
from orchestrator.errors import StorageError
from orchestrator.storage.bucket import Bucket
disk = Path(sys.argv[1])
bucket = Bucket.open(f"file://{disk}/bucket")
bucket.put("pointer", b"kept")
Path(sys.argv[1], "big").write_bytes(b"")
for write in (lambda: bucket.put("pointer", os.urandom(2 << 20)),
              lambda: bucket.upload_file(Path(sys.argv[2]), "pointer"),
              lambda: Bucket.open(f"file://{Path(sys.argv[2]).parent}").download_file("source", disk / "here")):
    try:
        write()
    except StorageError as error:
        assert error.why == "the disk is full", error.why
        assert error.next_step.startswith("free some room"), error.next_step
    else:
        sys.exit("nothing was raised")
assert bucket.get("pointer") == b"kept"
assert sorted(os.listdir(disk / "bucket")) == ["pointer"], os.listdir(disk / "bucket")
assert sorted(os.listdir(disk)) == ["big", "bucket"], os.listdir(disk)
print("reported and clean")
"""


READ_ONLY = """
import sys
from orchestrator.errors import AccessError
from orchestrator.storage.bucket import Bucket
try:
    Bucket.open(f"file://{sys.argv[1]}/runs").check_access(write=True)
except AccessError as error:
    print(error.why, "|", error.next_step)
"""


def test_a_read_only_file_system_is_named_and_no_folder_that_is_not_there(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("needs unshare(1) and the right to make a mount namespace")
    script = 'mount -t tmpfs -o ro none "$1" && exec "$2" -c "$3" "$1"'
    argv = ["unshare", "-rm", "sh", "-c", script, "sh", str(tmp_path), sys.executable, READ_ONLY]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    expected = "the file system is mounted read-only | mount it for writing, or use another folder\n"
    assert result.stdout == expected, result.stderr


def test_a_full_disk_is_reported_and_the_old_object_stays(tmp_path: Path) -> None:
    mount = shutil.which("unshare"), shutil.which("mount")
    if None in mount or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("needs unshare(1) and the right to make a mount namespace, for a disk of one MiB")
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "source").write_bytes(os.urandom(2 << 20))
    script = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1" "$4"'
    argv = ["unshare", "-rm", "sh", "-c", script, "sh", str(disk), sys.executable, FULL_DISK, str(tmp_path / "source")]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert result.stdout == "reported and clean\n", result.stderr


def test_refused_and_forbidden_credentials_are_distinguished_from_a_missing_bucket(
    own_gcs: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    Bucket.open("gs://faulty").check_access(write=True)
    own_gcs.create_bucket("closed")
    own_gcs.forbidden.add("closed")
    for operation in OPERATIONS.values():
        with pytest.raises(AccessError) as caught:
            operation(Bucket.open("gs://closed"))
        assert caught.value.why == "Access denied."
        assert "closed" in caught.value.next_step
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "another")
    for operation in OPERATIONS.values():
        with pytest.raises(AccessError) as caught:
            operation(Bucket.open("gs://faulty"))
        assert "refused" in caught.value.why
        assert "gcloud auth" in caught.value.next_step


ANSWERS = [  # status and error code as the S3 API reference lists them ("Error responses", 2026)
    (403, "InvalidAccessKeyId", AccessError, "refused"),
    (403, "SignatureDoesNotMatch", AccessError, "refused"),
    (400, "ExpiredToken", AccessError, "refused"),
    (403, "AccessDenied", AccessError, "said no"),
    (404, "NoSuchBucket", NotFoundError, "there is no bucket"),
    (301, "PermanentRedirect", StorageError, "another region"),
    (400, "AuthorizationHeaderMalformed", StorageError, "another region"),
    (400, "EntityTooLarge", StorageError, "said no"),
]


@pytest.mark.parametrize(("status", "code", "kind", "why"), ANSWERS)
def test_each_refusal_of_s3_becomes_its_own_error(
    status: int, code: str, kind: type[OrchError], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _always(status, f"<Error><Code>{code}</Code><Message>said no</Message></Error>") as url:
        _use_s3(monkeypatch, url)
        for operation in ("list", "put", "get"):
            with pytest.raises(kind) as caught:
                OPERATIONS[operation](Bucket.open("s3://some-bucket"))
            assert why in caught.value.why
            assert type(caught.value) is kind


def test_a_secret_key_never_reaches_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    body = (
        "<Error><Code>InvalidAccessKeyId</Code><Message>no</Message><AWSAccessKeyId>AKCANARY</AWSAccessKeyId></Error>"
    )
    with _always(403, body) as url:
        _use_s3(monkeypatch, url, key="AKCANARY", secret="canary-secret")
        with pytest.raises(AccessError) as caught:
            Bucket.open("s3://some-bucket").get("k")
    assert "CANARY" not in "\n".join(caught.value.lines()).upper()


def test_an_endpoint_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.storage.connect._standard_retries", _impatient)
    _use_s3(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9 cannot be reached"):
        Bucket.open("s3://some-bucket").check_access()
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:9 cannot be reached"):
        Bucket.open("s3://some-bucket").put_if_absent("k", b"")


def test_a_profile_that_does_not_exist_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_PROFILE", "missing-profile")
    with pytest.raises(AccessError, match="missing-profile"):
        Bucket.open("s3://some-bucket")


def test_a_profile_in_the_credentials_file_is_used(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place("s3", request)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    folder = Path(os.environ["HOME"]) / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    bucket = Bucket.open(place.uri)
    bucket.put("k", b"x")
    assert bucket.get("k") == b"x"


def test_a_short_outage_heals(own_gcs: GcsServer) -> None:
    bucket = Bucket.open("gs://faulty")
    own_gcs.fail_next(2, 503)
    bucket.put("k", b"x")
    own_gcs.fail_next(2, 429)
    assert bucket.get("k") == b"x"
    own_gcs.fail_next(1, 500)
    assert [info.path for info in bucket.list()] == ["k"]


def test_a_long_outage_is_reported_with_the_status(own_gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.storage.connect._standard_retries", _impatient)
    bucket = Bucket.open("gs://faulty")
    own_gcs.fail_next(1000, 503)
    with pytest.raises(StorageError, match="503"):
        bucket.get("k")
    with pytest.raises(StorageError, match="503"):
        bucket.put_if_absent("k", b"x")


def test_a_download_that_is_cut_resumes_at_the_byte_where_it_stopped(own_gcs: GcsServer, tmp_path: Path) -> None:
    bucket = Bucket.open("gs://faulty")
    content = os.urandom(12 << 20)
    (tmp_path / "big").write_bytes(content)
    bucket.upload_file(tmp_path / "big", "big")
    own_gcs.seen.clear()
    own_gcs.cut_next(2, 5 << 20)
    bucket.download_file("big", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    starts = [request.headers.get("range", "").split("-")[0] for request in own_gcs.seen]
    assert starts == ["", f"bytes={5 << 20}", f"bytes={10 << 20}"]


def test_a_lost_answer_to_a_write_that_won_is_still_a_win(own_gcs: GcsServer) -> None:
    bucket = Bucket.open("gs://faulty")
    own_gcs.lose_answer(1, "PUT")
    assert bucket.put_if_absent("k", b"mine") is True
    info = bucket.head("k")
    assert info is not None
    own_gcs.lose_answer(1, "PUT")
    assert bucket.replace_if("k", b"mine again", info.version) is True
    assert bucket.get("k") == b"mine again"
    assert bucket.replace_if("k", b"stale", info.version) is False


def test_a_lost_answer_to_a_write_that_lost_is_still_a_loss(own_gcs: GcsServer) -> None:
    bucket = Bucket.open("gs://faulty")
    bucket.put("k", b"theirs")
    own_gcs.lose_answer(1, "PUT")
    assert bucket.put_if_absent("k", b"mine") is False
    own_gcs.fail_next(2, 503, "PUT")
    assert bucket.put_if_absent("k", b"mine") is False
    assert bucket.get("k") == b"theirs"


def test_a_killed_writer_leaves_the_old_object_and_no_lock(tmp_path: Path) -> None:
    """Twelve times a process writes in a loop and is killed at a random moment."""
    bucket = Bucket.open(f"file://{tmp_path}/bucket")
    bucket.put("pointer", b"A" * 300_000)
    code = (
        "import sys; from orchestrator.storage.bucket import Bucket\n"
        "b = Bucket.open(sys.argv[1]); print('go', flush=True)\n"
        "while True:\n  for c in b'AB': b.put('pointer', bytes([c]) * 300_000)"
    )
    for turn in range(12):
        with subprocess.Popen([sys.executable, "-c", code, bucket.uri], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            threading.Event().wait(0.003 * turn)
            writer.kill()
        content = bucket.get("pointer")
        assert len(content) == 300_000
        assert len(set(content)) == 1
        assert bucket.put_if_absent("pointer", b"") is False
        assert [info.path for info in bucket.list()] == ["pointer"]


def test_a_file_bucket_holds_nothing_but_its_objects(tmp_path: Path) -> None:
    """No lock, no temporary file and no empty folder, after writes that won, lost, failed or were undone."""
    root = tmp_path / "bucket"
    bucket = Bucket.open(f"file://{root}")
    version = bucket.put("a/b/kept", b"1")
    bucket.put_if_absent("a/b/kept", b"2")
    bucket.replace_if("a/b/kept", b"3", version)
    bucket.replace_if("a/b/kept", b"4", version)
    bucket.put("x/y/z", b"")
    bucket.delete("x/y/z")
    bucket.delete("x/never")
    with pytest.raises(StorageError):
        bucket.put("a/b", b"a folder stands there")
    assert sorted(path.relative_to(root).as_posix() for path in root.rglob("*")) == ["a", "a/b", "a/b/kept"]


def test_a_lock_on_a_file_that_was_removed_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a waiter's open and its flock the holder may remove the file: both would hold "the" lock."""
    lock, folder = tmp_path / ".lock#0", os.open(tmp_path, os.O_RDONLY)
    real = fcntl.flock

    def flock_late(descriptor: int, operation: int) -> None:
        lock.unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_late)
    assert _try_lock(folder) is None
    monkeypatch.setattr(
        fcntl, "flock", lambda descriptor, operation: (lock.unlink(), lock.touch(), real(descriptor, operation))
    )
    assert _try_lock(folder) is None
    monkeypatch.setattr(fcntl, "flock", real)
    descriptor = _try_lock(folder)
    assert descriptor is not None
    assert _try_lock(folder) is None
    os.close(descriptor)


def test_a_download_keeps_the_objects_time(own_gcs: GcsServer, tmp_path: Path) -> None:
    bucket = Bucket.open("gs://faulty")
    bucket.put("k", b"x")
    objects = own_gcs.buckets["faulty"]
    objects["k"] = dataclasses.replace(objects["k"], modified=1_700_000_000.0)
    bucket.download_file("k", tmp_path / "k")
    assert (tmp_path / "k").stat().st_mtime == 1_700_000_000.0


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "bucket",
        "http://x/y",
        "file://relative",
        "file://",
        "file:///a/../b",
        "s3://",
        "gs:///x",
        "s3://-x",
        "gs://a//b",
    ],
)
def test_a_malformed_uri_is_a_usage_error_that_shows_it(uri: str) -> None:
    with pytest.raises(UserError) as caught:
        Bucket.open(uri)
    assert repr(uri) in caught.value.what or "a//b" in uri
    assert caught.value.next_step


def test_an_address_survives_being_written_and_read() -> None:
    for uri in ("gs://name", "s3://name/a/b c%20", "file:///x/y z", "file:///"):
        assert Address.parse(uri).uri == uri
    assert Address.parse("s3://name/a/").prefix == "a"
    assert Address.parse("file:///a//b/./c/").uri == "file:///a/b/c"
    assert split_object("gs://name/a/b") == ("gs://name/a", "b")
    assert split_object("gs://name/b") == ("gs://name", "b")
    assert split_object("file:///b") == ("file:///", "b")
    with pytest.raises(UserError):
        split_object("gs://name")


def _use_s3(monkeypatch: pytest.MonkeyPatch, url: str, key: str = "k", secret: str = "s") -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def _impatient() -> dict[str, object]:
    return {"max_retries": 1}


@contextmanager
def _always(status: int, body: str) -> Iterator[str]:
    """A server that gives every request one answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_PUT = do_POST = do_GET  # noqa: N815 - the base class looks for these names

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def test_a_delete_of_several_that_is_not_allowed_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 answers such a request with 200, and says of each key by itself that it was refused."""

    def admit(action: str, resource: str, context: Mapping[str, str]) -> None:
        del resource, context
        if action == "s3:DeleteObject":
            raise Refusal(403, "AccessDenied", "Access Denied")

    with own_s3_server(ENVIRONMENT["AWS_ACCESS_KEY_ID"], create=True, admit=admit) as server:
        for key, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL_S3": server.url}.items():
            monkeypatch.setenv(key, value)
        bucket = Bucket.open("s3://mine")
        bucket.put("k", b"1")
        with pytest.raises(AccessError):
            bucket.delete("k")
