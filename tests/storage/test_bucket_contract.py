"""One contract, all kinds of bucket: what Bucket promises, it promises on file://, s3:// and gs://."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storage_places import QUICK_KINDS, Place

from orchestrator.errors import NotFoundError, StorageError, UserError
from orchestrator.storage.address import check_key
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.objects import ObjectInfo, Version

HOSTILE = [
    "a b/c d",
    "ü/日本 語/€",
    "100%/50%25/%2F",
    "a+b&c=d;e",
    "q'uo\"te",
    "$(id)`id`",
    "a#b/c?d",
    "back\\slash",
    "<x>{y}|[z]^~*!",
    ".hidden/..dots/...",
    "-rf",
    "emoji-🚀",
]


def test_what_is_put_is_got_and_described(bucket: Bucket) -> None:
    version = bucket.put("runs/a/x.bin", b"\x00\xff" * 10)
    info = bucket.head("runs/a/x.bin")
    assert bucket.get("runs/a/x.bin") == b"\x00\xff" * 10
    assert info is not None
    assert (info.path, info.size, info.version) == ("runs/a/x.bin", 20, version)
    assert info.modified.utcoffset() is not None


def test_a_missing_object_is_reported(bucket: Bucket) -> None:
    assert bucket.head("no/such") is None
    assert not bucket.exists("no/such")
    with pytest.raises(NotFoundError, match="no/such"):
        bucket.get("no/such")
    with pytest.raises(NotFoundError):
        b"".join(bucket.read_chunks("no/such"))


def test_an_object_over_its_bound_is_not_read(bucket: Bucket) -> None:
    bucket.put("ten", b"0123456789")
    assert bucket.get_bounded("ten", 10) == b"0123456789"
    with pytest.raises(StorageError, match="more than the 9 bytes"):
        bucket.get_bounded("ten", 9)
    with pytest.raises(NotFoundError):
        bucket.get_bounded("no/such", 9)


def test_an_empty_object_is_an_object(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    bucket.upload_file(tmp_path / "empty", "e")
    info = bucket.download_file("e", tmp_path / "back")
    assert info.size == 0
    assert (tmp_path / "back").read_bytes() == b""


def test_put_if_absent_never_overwrites(bucket: Bucket) -> None:
    assert bucket.put_if_absent("k", b"first") is True
    assert bucket.put_if_absent("k", b"second") is False
    assert bucket.get("k") == b"first"
    bucket.delete("k")
    assert bucket.put_if_absent("k", b"third") is True


def test_replace_if_refuses_a_stale_version(bucket: Bucket) -> None:
    first = bucket.put("k", b"1")
    assert bucket.replace_if("k", b"22", first) is True
    assert bucket.replace_if("k", b"333", first) is False
    assert bucket.get("k") == b"22"


def test_replace_if_does_not_create(bucket: Bucket) -> None:
    version = bucket.put("k", b"1")
    bucket.delete("k")
    assert bucket.replace_if("k", b"2", version) is False
    assert not bucket.exists("k")


def test_replace_if_takes_a_version_from_a_listing(bucket: Bucket) -> None:
    bucket.put("k", b"1")
    listed = next(bucket.list()).version
    assert bucket.replace_if("k", b"2", listed) is True
    assert bucket.replace_if("k", b"3", listed) is False


def test_a_wrong_version_is_refused_not_an_error(bucket: Bucket) -> None:
    bucket.put("k", b"1")
    assert bucket.replace_if("k", b"2", Version('"0123456789abcdef0123456789abcdef"', "1")) is False


def test_of_sixteen_creators_exactly_one_wins_each_round(bucket: Bucket) -> None:
    with ThreadPoolExecutor(16) as pool:
        for turn in range(4):
            barrier = threading.Barrier(16)

            def create(me: int, turn: int = turn, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait(30)
                return bucket.put_if_absent(f"lock-{turn}", f"writer {me}".encode())

            won = list(pool.map(create, range(16)))
            assert won.count(True) == 1
            assert bucket.get(f"lock-{turn}") == f"writer {won.index(True)}".encode()


@pytest.mark.promise("P17")
def test_of_sixteen_writers_on_one_pointer_one_wins_each_round_and_it_only_moves_forward(bucket: Bucket) -> None:
    bucket.put("latest", b"0")
    seen = [0]
    with ThreadPoolExecutor(16) as pool:
        for step in range(1, 9):
            version = _version(bucket, "latest")
            barrier = threading.Barrier(16)

            def move(
                me: int, step: int = step, version: Version = version, barrier: threading.Barrier = barrier
            ) -> bool:
                barrier.wait(30)
                return bucket.replace_if("latest", f"{step * 100 + me}".encode(), version)

            assert list(pool.map(move, range(16))).count(True) == 1
            seen.append(int(bucket.get("latest")))
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("place", QUICK_KINDS, indirect=True)
def test_free_running_writers_lose_no_update(bucket: Bucket) -> None:
    """Eight threads count to 40 together through compare-and-swap: each success is one step."""
    bucket.put("counter", b"0")
    wins: list[int] = []

    def count(me: int) -> None:
        while True:
            version = _version(bucket, "counter")  # before the content: a newer content then fails the swap
            value = int(bucket.get("counter").split()[0])
            if value >= 40:
                return
            if bucket.replace_if("counter", f"{value + 1} by {me}".encode(), version):
                wins.append(value + 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert sorted(wins) == list(range(1, 41))


@pytest.mark.parametrize("place", QUICK_KINDS, indirect=True)
def test_a_thousand_and_more_objects_are_all_listed_in_byte_order(place: Place) -> None:
    names = [f"many/{i:04d}-é" for i in range(1005)] + ["many/A", "many/sub/x", "manyother"]
    _put_all(place.bucket, names)
    listed = [info.path for info in place.bucket.list("many")]
    assert listed == sorted((name for name in names if name != "manyother"), key=str.encode)
    level = place.bucket.list_dir("many")
    assert level.folders == ("many/sub",)
    assert len(level.objects) == 1006


@pytest.mark.parametrize("place", QUICK_KINDS, indirect=True)
def test_more_than_a_thousand_folders_are_all_listed(place: Place) -> None:
    names = [f"top/step-{i:08d}/manifest.json" for i in range(1003)]
    _put_all(place.bucket, names)
    assert place.bucket.list_dir("top").folders == tuple(name.rsplit("/", 1)[0] for name in names)


def test_listing_orders_folders_and_files_as_complete_names(bucket: Bucket) -> None:
    names = (
        ["a-b", "a/b", "a.b", "a/b-c", "a0", "a/b/c"]
        if bucket.address.scheme != "file"
        else ["a-b", "a/b", "a.b", "a0"]
    )
    for name in names:
        bucket.put(name, b"")
    assert [info.path for info in bucket.list()] == sorted(names, key=str.encode)


def test_a_prefix_is_a_folder_not_a_beginning(place: Place) -> None:
    for name in ("run/a", "run-2/b", "runs"):
        place.bucket.put(name, b"x")
    assert [info.path for info in place.bucket.list("run")] == ["run/a"]
    assert [info.path for info in place.bucket.list("nothing")] == []
    inner = Bucket.open(f"{place.uri}/run")
    assert [info.path for info in inner.list()] == ["a"]
    assert inner.get("a") == b"x"
    assert inner.list_dir().objects[0].path == "a"
    assert inner.uri_of("a") == f"{place.uri}/run/a"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_kept_to_the_letter(bucket: Bucket, name: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(name.encode())
    bucket.upload_file(source, name)
    assert [info.path for info in bucket.list()] == [name]
    assert bucket.get(name) == name.encode()
    bucket.download_file(name, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == name.encode()
    bucket.delete(name)
    assert list(bucket.list()) == []


_segment = st.text(st.characters(min_codepoint=32, exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_segment.filter(lambda s: "/" not in s), min_size=1, max_size=4))
def test_any_allowed_name_comes_back_from_a_listing(bucket: Bucket, segments: list[str]) -> None:
    name = "/".join(segments)
    try:
        check_key(name)
    except UserError:
        return
    bucket.put(name, b"here")
    assert [(info.path, info.size) for info in bucket.list()] == [(name, 4)]
    bucket.delete(name)


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", ".", "a/../b", "a/./b", "a\nb", "a\x00", "\x7f", "x" * 1025, "file#12", "\ud800"]
)
def test_names_that_not_every_store_can_hold_are_refused_before_anything_is_sent(bucket: Bucket, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: bucket.put(name, b""),
        lambda: bucket.get(name),
        lambda: bucket.delete(name),
        lambda: bucket.put_if_absent(name, b""),
    ]
    for call in calls:
        with pytest.raises(UserError, match="not an object name"):
            call()
    assert list(bucket.list()) == []


def test_a_big_file_is_complete_in_both_directions(bucket: Bucket, tmp_path: Path) -> None:
    content = os.urandom(1 << 20) * 21 + b"tail"
    (tmp_path / "big").write_bytes(content)
    up: list[int] = []
    down: list[int] = []
    bucket.upload_file(tmp_path / "big", "big", up.append)
    info = bucket.download_file("big", tmp_path / "deep/er/back", down.append)
    assert (tmp_path / "deep/er/back").read_bytes() == content
    assert (info.size, sum(up), sum(down)) == (len(content), len(content), len(content))
    assert len(up) > 1
    assert len(down) > 1
    assert _names(tmp_path / "deep/er") == ["back"]


def test_a_transfer_that_is_stopped_midway_leaves_nothing(bucket: Bucket, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(count: int) -> None:
        raise Stop

    (tmp_path / "big").write_bytes(os.urandom(20 << 20))
    with pytest.raises(Stop):
        bucket.upload_file(tmp_path / "big", "big", stop)
    assert not bucket.exists("big")
    bucket.upload_file(tmp_path / "big", "big")
    target = tmp_path / "out" / "big"
    target.parent.mkdir()
    target.write_bytes(b"old")
    with pytest.raises(Stop):
        bucket.download_file("big", target, stop)
    assert target.read_bytes() == b"old"
    assert _names(target.parent) == ["big"]


@pytest.mark.parametrize("size", [100, 20 << 20])
def test_a_file_that_changes_while_it_is_sent_is_refused_and_the_object_stays_as_it_was(
    bucket: Bucket, tmp_path: Path, size: int
) -> None:
    source = tmp_path / "log"
    source.write_bytes(b"x" * size)
    bucket.put("log", b"before")

    def grow(count: int) -> None:
        with source.open("ab") as writer:
            writer.write(b"more" * count)

    with pytest.raises(StorageError, match="changed while"):
        bucket.upload_file(source, "log", grow)
    assert bucket.get("log") == b"before"
    assert [info.path for info in bucket.list()] == ["log"]


def test_a_damaged_object_is_detected_and_the_file_here_stays(cloud: Place, tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"good" * 1000)
    cloud.bucket.upload_file(tmp_path / "part", "part")
    cloud.damage("part", b"evil" * 1000)
    target = tmp_path / "target"
    target.write_bytes(b"old")
    with pytest.raises(StorageError, match="damaged"):
        cloud.bucket.download_file("part", target)
    assert target.read_bytes() == b"old"
    assert _names(tmp_path) == ["part", "target"]


def test_deleting_is_idempotent_and_continues_past_missing_objects(bucket: Bucket) -> None:
    bucket.delete("never/was")
    for name in ("a/1", "a/2", "b"):
        bucket.put(name, b"")
    bucket.delete_all(["a/1", "gone", "a/2", "b"])
    assert list(bucket.list()) == []
    assert bucket.list_dir().folders == ()


def test_check_proves_reading_and_writing_and_leaves_nothing(bucket: Bucket) -> None:
    bucket.check_access()
    bucket.check_access(write=True)
    assert list(bucket.list()) == []


def test_sha256_is_that_of_the_content(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    bucket.upload_file(tmp_path / "f", "f")
    assert bucket.sha256("f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def _version(bucket: Bucket, path: str) -> Version:
    info = bucket.head(path)
    assert isinstance(info, ObjectInfo)
    return info.version


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _put_all(bucket: Bucket, names: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put(name, b"x"), names))
