"""Sync: what differs is sent, what arrived is not sent again, and nothing half-done is ever visible."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_places import Place

from orch_fronts.google.gcs import GcsServer
from orchestrator.errors import NotFoundError, StorageError, UserError
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.sync import Progress, plan_download, plan_upload, run_sync

TREE = {
    "a.txt": b"alpha",
    "empty": b"",
    "deep/er/b.bin": bytes(range(256)) * 50,
    "deep/sp ace/ü%+#?.txt": b"hostile",
    ".hidden/c": b"c",
}


def test_a_tree_goes_up_and_comes_down_the_same(place: Place, tmp_path: Path) -> None:
    _write(tmp_path / "src", TREE)
    plan = plan_upload(tmp_path / "src", place.bucket, "data/set")
    assert {transfer.path for transfer in plan.transfers} == TREE.keys()
    assert plan.size == sum(map(len, TREE.values()))
    run_sync(plan)
    run_sync(plan_download(place.bucket, "data/set", tmp_path / "dst"))
    assert _read(tmp_path / "dst") == TREE


def test_a_second_sync_sends_nothing_either_way(place: Place, tmp_path: Path, gcs: GcsServer) -> None:
    _write(tmp_path / "src", TREE)
    run_sync(plan_upload(tmp_path / "src", place.bucket))
    run_sync(plan_download(place.bucket, "", tmp_path / "dst"))
    gcs.seen.clear()
    up = plan_upload(tmp_path / "src", place.bucket)
    down = plan_download(place.bucket, "", tmp_path / "dst")
    run_sync(up)
    run_sync(down)
    assert (up.transfers, up.unchanged, down.transfers, down.unchanged) == ((), len(TREE), (), len(TREE))
    assert all(request.method in ("GET", "HEAD") for request in gcs.seen)


def test_a_change_of_the_same_size_is_seen_both_ways(place: Place, tmp_path: Path) -> None:
    _write(tmp_path / "src", TREE)
    run_sync(plan_upload(tmp_path / "src", place.bucket))
    run_sync(plan_download(place.bucket, "", tmp_path / "dst"))
    (tmp_path / "src/a.txt").write_bytes(b"omega")
    up = plan_upload(tmp_path / "src", place.bucket)
    assert [(transfer.path, transfer.reason) for transfer in up.transfers] == [("a.txt", "content")]
    run_sync(up)
    down = plan_download(place.bucket, "", tmp_path / "dst")
    assert [(transfer.path, transfer.reason) for transfer in down.transfers] == [("a.txt", "content")]
    run_sync(down)
    assert (tmp_path / "dst/a.txt").read_bytes() == b"omega"


def test_a_local_edit_of_the_same_size_and_time_is_undone_by_a_download(cloud: Place, tmp_path: Path) -> None:
    _write(tmp_path / "src", {"f": b"right"})
    run_sync(plan_upload(tmp_path / "src", cloud.bucket))
    run_sync(plan_download(cloud.bucket, "", tmp_path / "dst"))
    found = (tmp_path / "dst/f").stat()
    (tmp_path / "dst/f").write_bytes(b"wrong")
    os.utime(tmp_path / "dst/f", ns=(found.st_atime_ns, found.st_mtime_ns))
    run_sync(plan_download(cloud.bucket, "", tmp_path / "dst"))
    assert (tmp_path / "dst/f").read_bytes() == b"right"


def test_objects_of_other_programs_are_fetched_once(cloud: Place, tmp_path: Path) -> None:
    cloud.bucket.put("theirs", b"no checksum beside it")
    assert cloud.bucket.sha256("theirs") == ""
    run_sync(plan_download(cloud.bucket, "", tmp_path))
    assert plan_download(cloud.bucket, "", tmp_path).transfers == ()
    os.utime(tmp_path / "theirs", (1, 1))
    assert [transfer.path for transfer in plan_download(cloud.bucket, "", tmp_path).transfers] == ["theirs"]


def test_without_delete_nothing_is_removed_and_with_it_exactly_the_rest(place: Place, tmp_path: Path) -> None:
    _write(tmp_path / "src", {"keep": b"1", "sub/keep": b"2"})
    for name in ("keep", "extra", "sub/extra"):
        place.bucket.put(f"p/{name}", b"old")
    place.bucket.put("outside", b"safe")
    run_sync(plan_upload(tmp_path / "src", place.bucket, "p"))
    assert place.bucket.exists("p/extra")
    plan = plan_upload(tmp_path / "src", place.bucket, "p", delete=True)
    assert plan.deletes == ("extra", "sub/extra")
    run_sync(plan)
    assert [info.path for info in place.bucket.list()] == ["outside", "p/keep", "p/sub/keep"]
    _write(tmp_path / "dst", {"mine": b"x", "keep": b"other"})
    run_sync(plan_download(place.bucket, "p", tmp_path / "dst"))
    assert (tmp_path / "dst/mine").exists()
    run_sync(plan_download(place.bucket, "p", tmp_path / "dst", delete=True))
    assert _read(tmp_path / "dst") == {"keep": b"1", "sub/keep": b"2"}


def test_an_empty_source_never_deletes_everything(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _write(tmp_path / "full", {"a": b"1"})
    with pytest.raises(UserError, match="would remove all 1 files"):
        plan_download(bucket, "", tmp_path / "full", delete=True)
    bucket.put("a", b"1")
    with pytest.raises(UserError, match="would remove all 1 files"):
        plan_upload(tmp_path / "empty", bucket, delete=True)
    with pytest.raises(NotFoundError):
        plan_upload(tmp_path / "typo", bucket, delete=True)


SLOW_SYNC = """
import sys, time
from pathlib import Path
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.sync import plan_download, plan_upload, run_sync
bucket, folder = Bucket.open(sys.argv[2]), Path(sys.argv[3])
plan = plan_upload(folder, bucket) if sys.argv[1] == "up" else plan_download(bucket, "", folder)
def slow(progress):
    time.sleep(0.02)
    print(progress.files_done, flush=True)
run_sync(plan, slow)
"""


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_sync_that_is_killed_resumes_with_the_files_that_are_missing(
    place: Place, tmp_path: Path, direction: str
) -> None:
    tree = {f"f{i:03d}": os.urandom(2000) for i in range(60)}
    _write(tmp_path / "src", tree)
    if direction == "down":
        run_sync(plan_upload(tmp_path / "src", place.bucket))
    folder = tmp_path / ("src" if direction == "up" else "dst")
    argv = [sys.executable, "-c", SLOW_SYNC, direction, place.uri, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 20:
                process.send_signal(signal.SIGKILL)
                break
    if direction == "up":
        arrived = {info.path: info.size for info in place.bucket.list()}
        plan = plan_upload(tmp_path / "src", place.bucket)
    else:
        arrived = {name: len(data) for name, data in _read(folder).items() if not name.endswith(".part")}
        plan = plan_download(place.bucket, "", folder)
    assert 20 <= len(arrived) < 60
    assert set(arrived.values()) == {2000}
    assert {transfer.path for transfer in plan.transfers} == tree.keys() - arrived.keys()
    run_sync(plan)
    run_sync(plan_download(place.bucket, "", tmp_path / "check"))
    assert _read(tmp_path / "check") == tree


def test_leftovers_of_a_killed_download_are_removed_when_they_are_old(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("a", b"1")
    folder = tmp_path / "folder"
    folder.mkdir()
    old, young = folder / ".orch-0123456789abcdef.part", folder / ".orch-fedcba9876543210.part"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert plan_upload(folder, bucket).transfers == ()
    run_sync(plan_download(bucket, "", folder))
    assert sorted(path.name for path in folder.iterdir()) == [young.name, "a"]


def test_the_first_failure_stops_the_sync_and_is_raised(own_gcs: GcsServer, tmp_path: Path) -> None:
    _write(tmp_path, {f"f{i}": b"x" for i in range(40)})
    bucket = Bucket.open("gs://faulty")
    plan = plan_upload(tmp_path, bucket, delete=True)
    own_gcs.fail_next(1000, 400, "PUT")
    with pytest.raises(StorageError, match="400"):
        run_sync(plan)
    assert sum(request.method == "PUT" for request in own_gcs.seen) < 40


def test_a_failure_stops_the_other_copies_midway(bucket: Bucket, tmp_path: Path) -> None:
    names = [f"{number}" for number in range(40)]
    (tmp_path / "src").mkdir()
    for name in names:
        (tmp_path / "src" / name).write_bytes(bytes(6 << 20))
    calls: list[str] = []

    def fail_once(now: Progress) -> None:
        calls.append(now.path)
        if len(calls) == 1:
            raise ZeroDivisionError
        time.sleep(0.05)

    with pytest.raises(ZeroDivisionError):
        run_sync(plan_upload(tmp_path / "src", bucket), fail_once)
    assert len(list(bucket.list())) < len(names) // 2  # those that were under way may have ended


def test_a_failed_copy_keeps_the_deletions_from_happening(own_gcs: GcsServer, tmp_path: Path) -> None:
    bucket = Bucket.open("gs://faulty")
    bucket.put("old-name", b"x")
    _write(tmp_path, {"new-name": b"x"})
    plan = plan_upload(tmp_path, bucket, delete=True)
    assert plan.deletes == ("old-name",)
    own_gcs.fail_next(1000, 400, "PUT")
    with pytest.raises(StorageError):
        run_sync(plan)
    assert bucket.exists("old-name")


def test_progress_ends_at_the_total_and_never_goes_back(bucket: Bucket, tmp_path: Path) -> None:
    _write(tmp_path, TREE)
    seen: list[Progress] = []
    run_sync(plan_upload(tmp_path, bucket), seen.append)
    counts = [(now.files_done, now.bytes_done) for now in seen]
    assert counts == sorted(counts)
    assert counts[-1] == (len(TREE), sum(map(len, TREE.values())))
    assert (seen[0].files, seen[0].bytes) == counts[-1]


def test_a_damaged_object_stops_a_download_and_no_part_of_it_stays(cloud: Place, tmp_path: Path) -> None:
    _write(tmp_path / "src", {"f": b"good"})
    run_sync(plan_upload(tmp_path / "src", cloud.bucket))
    cloud.damage("f", b"evil")
    with pytest.raises(StorageError, match="damaged"):
        run_sync(plan_download(cloud.bucket, "", tmp_path / "dst"))
    assert _read(tmp_path / "dst") == {}


def test_entries_that_are_not_files_are_named_and_skipped(bucket: Bucket, tmp_path: Path) -> None:
    _write(tmp_path, {"real": b"1", "dir/inner": b"2"})
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short}/s")
        os.link(f"{short}/s", tmp_path / "socket")
        plan = plan_upload(tmp_path, bucket)
    assert plan.skipped == ("broken", "loop", "socket")
    run_sync(plan)
    assert [info.path for info in bucket.list()] == ["dir/inner", "link", "real"]


def test_links_that_lead_out_of_the_folder_are_neither_sent_nor_deleted(bucket: Bucket, tmp_path: Path) -> None:
    _write(tmp_path / "src", {"real": b"1", "old": b"2"})
    _write(tmp_path, {"private": b"secret"})
    (tmp_path / "src" / "inside").symlink_to("real")
    (tmp_path / "src" / "out").symlink_to(tmp_path / "private")
    (tmp_path / "src" / "hop").symlink_to("out")
    bucket.put("out", b"of an earlier sync")
    bucket.put("stray", b"")
    plan = plan_upload(tmp_path / "src", bucket, delete=True)
    assert (plan.outside, plan.kept, plan.deletes) == (("hop", "out"), ("out",), ("stray",))
    run_sync(plan)
    assert [info.path for info in bucket.list()] == ["inside", "old", "out", "real"]
    assert b"".join(bucket.read_chunks("out")) == b"of an earlier sync"
    plan = plan_upload(tmp_path / "src", bucket, copy_links=True)
    assert plan.outside == () and [one.path for one in plan.transfers] == ["hop", "out"]
    run_sync(plan)
    assert b"".join(bucket.read_chunks("hop")) == b"secret"


def test_a_download_compares_files_through_links(bucket: Bucket, tmp_path: Path) -> None:
    _write(tmp_path, {"kept": b"1"})
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst" / "a").symlink_to(tmp_path / "kept")
    run_sync(plan_upload(tmp_path / "dst", bucket, copy_links=True))
    plan = plan_download(bucket, "", tmp_path / "dst")
    assert (plan.transfers, plan.unchanged, plan.outside) == ((), 1, ())


def test_a_file_name_that_no_object_can_have_is_reported_before_anything_is_sent(
    bucket: Bucket, tmp_path: Path
) -> None:
    _write(tmp_path, {"fine": b"1", "new\nline": b"2"})
    with pytest.raises(UserError, match="control character"):
        plan_upload(tmp_path, bucket)
    assert list(bucket.list()) == []


def test_a_consoles_folder_marker_does_not_become_a_file(own_gcs: GcsServer, tmp_path: Path) -> None:
    bucket = Bucket.open("gs://faulty")
    bucket.put("dir", b"")
    bucket.put("dir/file", b"x")
    run_sync(plan_download(bucket, "", tmp_path / "out"))
    assert _read(tmp_path / "out") == {"dir/file": b"x"}
    bucket.put("dir", b"content")
    with pytest.raises(StorageError, match="both an object and a folder"):
        plan_download(bucket, "", tmp_path / "out2")


_name = st.text("abc ü%+.-", min_size=1, max_size=5).filter(lambda name: name.strip(".") != "")
_trees = st.dictionaries(
    st.lists(_name, min_size=1, max_size=3).map(lambda parts: "/".join(f"{p}" for p in parts)),
    st.binary(max_size=30),
    max_size=8,
)


@settings(max_examples=30, deadline=None)
@given(first=_trees, second=_trees)
def test_after_a_sync_with_delete_both_sides_are_equal(first: dict[str, bytes], second: dict[str, bytes]) -> None:
    first, second = _storable(first), _storable(second)
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder, "here"), Path(folder, "there")
        _write(here, first or {"x": b""})
        _write(there, second)
        run_sync(plan_upload(here, Bucket.open(f"file://{there}"), delete=True))
        assert _read(there) == _read(here)
        assert plan_upload(here, Bucket.open(f"file://{there}"), delete=True).transfers == ()
        _write(Path(folder, "back"), second)
        run_sync(plan_download(Bucket.open(f"file://{there}"), "", Path(folder, "back"), delete=True))
        assert _read(Path(folder, "back")) == _read(here)


MEMORY = """
import resource, sys
from pathlib import Path
from orchestrator.storage.bucket import Bucket
bucket, source, target = Bucket.open(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
small = source.with_name("small"); small.write_bytes(b"x" * (9 << 20))
bucket.upload_file(small, "small"); bucket.download_file("small", target)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bucket.upload_file(source, "big"); bucket.download_file("big", target)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_memory_does_not_grow_with_the_file(place: Place, tmp_path: Path) -> None:
    """160 MiB through a client in a separate process: far less than that in memory."""
    with (tmp_path / "big").open("wb") as writer:
        for _ in range(160):
            writer.write(os.urandom(1 << 20))
    argv = [sys.executable, "-c", MEMORY, place.uri, str(tmp_path / "big"), str(tmp_path / "back")]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 80
    assert (tmp_path / "back").read_bytes() == (tmp_path / "big").read_bytes()


def _write(folder: Path, tree: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _read(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _storable(tree: dict[str, bytes]) -> dict[str, bytes]:
    """Without names of which one is the folder of another."""
    return {name: data for name, data in tree.items() if not any(other.startswith(f"{name}/") for other in tree)}
