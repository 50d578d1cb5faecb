"""What stands in a `file://` bucket beside files: one table for the storage modules of orchestrator and trainer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from orchestrator.errors import OrchError
from orchestrator.storage.bucket import Bucket
from orchestrator.storage.checkpoints import find_newest_complete
from orchestrator.storage.epochs import read_claim
from trainer.checkpoint.file_lock import hold_lock
from trainer.checkpoint.store import Version, open_store
from trainer.errors import StorageError
from trainer.program.staging import Staging, find_staging_root

T = TypeVar("T")
SECRET = b"of another folder"


def within(act: Callable[[], T], seconds: float = 5) -> T:
    """Return what a call returns, in time: one that waits for a pipe never ends."""
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(act())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(seconds)
    for error in errors:
        raise error
    assert results, f"it waits after {seconds} s"
    return results[0]


def link(place: Path, outside: Path) -> None:
    place.symlink_to(outside / "secret")


def link_inside(place: Path, _outside: Path) -> None:
    (place.parent / "other").write_bytes(SECRET)
    place.symlink_to("other")


def dangling_link(place: Path, outside: Path) -> None:
    place.symlink_to(outside / "absent")


def pipe(place: Path, _outside: Path) -> None:
    os.mkfifo(place)


def unix_socket(place: Path, _outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(place.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/{place.name}")  # its path may be longer than a socket's may be
        finally:
            os.close(here)


def folder_link(place: Path, outside: Path) -> None:
    place.parent.rmdir()
    place.parent.symlink_to(outside)
    (outside / place.name).write_bytes(SECRET)


PLANTED = {
    "link": (link, "is a link"),
    "link inside": (link_inside, "is a link"),
    "dangling link": (dangling_link, "is a link"),
    "pipe": (pipe, "is a named pipe"),
    "socket": (unix_socket, "is a socket"),
    "folder that is a link": (folder_link, "is a link"),
}
READS: dict[str, Callable[[str, str], object]] = {
    "orchestrator get": lambda uri, path: Bucket.open(uri).get(path),
    "orchestrator get_bounded": lambda uri, path: Bucket.open(uri).get_bounded(path, 99),
    "orchestrator head": lambda uri, path: Bucket.open(uri).head(path),
    "orchestrator sha256": lambda uri, path: Bucket.open(uri).sha256(path),
    "orchestrator create": lambda uri, path: Bucket.open(uri).put_if_absent(path, b"new"),
    "trainer find": lambda uri, path: open_store(uri).find(path),
    "trainer read_into": lambda uri, path: open_store(uri).read_into(path, 0, memoryview(bytearray(1))),
    "trainer read_ranges": lambda uri, path: open_store(uri).read_ranges(path, [0], [1]),
    "trainer swap": lambda uri, path: open_store(uri).replace_if_unchanged(path, b"new", Version("0")),
    "trainer create": lambda uri, path: open_store(uri).create(path, b"new"),
}
WRITES: dict[str, Callable[[str, str], object]] = {
    "orchestrator put": lambda uri, path: Bucket.open(uri).put(path, b"new"),
    "orchestrator delete": lambda uri, path: Bucket.open(uri).delete(path),
    "trainer put": lambda uri, path: open_store(uri).put(path, b"new"),
    "trainer delete": lambda uri, path: open_store(uri).delete([path]),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(SECRET)
    return folder


@pytest.fixture
def planted(request: pytest.FixtureRequest, tmp_path: Path, outside: Path) -> str:
    """Return the URI of a bucket in which something stands at run/latest.json."""
    place = tmp_path / "bucket" / "run" / "latest.json"
    place.parent.mkdir(parents=True)
    PLANTED[request.param][0](place, outside)
    return f"file://{tmp_path}/bucket"


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    yield
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("planted", PLANTED, indirect=True)
@pytest.mark.parametrize("act", READS)
def test_nothing_but_a_regular_file_is_read_or_waited_for(
    planted: str, act: str, outside: Path, request: pytest.FixtureRequest
) -> None:
    why = PLANTED[request.node.callspec.params["planted"]][1]
    with unchanged(outside), pytest.raises((OrchError, StorageError), match=why):
        within(lambda: READS[act](planted, "run/latest.json"))


@pytest.mark.parametrize("planted", PLANTED, indirect=True)
@pytest.mark.parametrize("act", WRITES)
def test_a_write_replaces_what_stands_there_and_never_goes_through_it(
    planted: str, act: str, outside: Path, request: pytest.FixtureRequest
) -> None:
    with unchanged(outside):
        if request.node.callspec.params["planted"] == "folder that is a link":
            with pytest.raises((OrchError, StorageError), match="is a link"):
                within(lambda: WRITES[act](planted, "run/latest.json"))
            return
        within(lambda: WRITES[act](planted, "run/latest.json"))
    found = open_store(planted).find("run/latest.json")
    assert (found.data if found is not None else None) == (b"new" if act.endswith("put") else None)


@pytest.mark.parametrize("planted", PLANTED, indirect=True)
def test_a_listing_leaves_it_out(planted: str, outside: Path) -> None:
    expected = {"run/other"} if (Path(planted[7:]) / "run/other").exists() else set[str]()
    assert {info.path for info in Bucket.open(planted).list()} == expected
    assert {entry.path for entry in open_store(planted).list_objects("")} == expected


@pytest.mark.parametrize("name", ["epoch.json", "checkpoints/latest.json", "checkpoints/step-00000001/manifest.json"])
def test_no_reader_of_a_run_waits_for_a_pipe(tmp_path: Path, name: str) -> None:
    place = tmp_path / "run" / name
    place.parent.mkdir(parents=True)
    os.mkfifo(place)
    bucket, store = Bucket.open(f"file://{tmp_path}"), open_store(str(tmp_path / "run"))
    with pytest.raises(StorageError, match="is a named pipe"):
        within(lambda: store.find(name))
    try:
        within(lambda: (read_claim(bucket, "run"), find_newest_complete(bucket, "run")))
    except OrchError as error:
        assert "is a named pipe" in str(error)
    else:
        assert name.endswith("manifest.json"), "a listing leaves it out: the checkpoint is unfinished"


@pytest.mark.parametrize("plant", [link, dangling_link, pipe])
def test_a_lock_is_a_file_of_the_bucket(tmp_path: Path, outside: Path, plant: Callable[[Path, Path], None]) -> None:
    """Taking a lock empties its file and writes to it."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    for name in (".latest.json.lock", ".lock#0"):
        plant(bucket / name, outside)
    store = open_store(str(bucket))
    assert store.replace_if_unchanged("latest.json", b"1", None)
    found = store.find("latest.json")
    assert found is not None
    with unchanged(outside):
        with pytest.raises(StorageError):
            within(lambda: store.replace_if_unchanged("latest.json", b"2", found.version))
        with pytest.raises(OrchError):
            within(lambda: Bucket.open(f"file://{bucket}").put("other", b"1"))


def test_what_a_killed_process_left_is_removed_through_no_link(tmp_path: Path, outside: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    (bucket / ".saves").symlink_to(outside)
    with pytest.raises(StorageError, match="is a link"):
        find_staging_root(f"file://{bucket}", {})
    root = tmp_path / "saves"
    for name, plant in (("linked", link), ("piped", pipe)):
        (root / name).mkdir(parents=True)
        plant(root / name / ".lock", outside)
    with unchanged(outside):
        within(lambda: Staging(root, "run", print)).remove()
    assert {path.name for path in root.iterdir()} == {".lock", "linked", "piped"}, "not known to be of a process"


def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "large" / "disk").mkdir(parents=True)
    (tmp_path / "bucket").symlink_to("large/disk")
    Bucket.open(f"file://{tmp_path}/bucket").put("run/a", b"1")
    store = open_store(f"file://{tmp_path}/bucket/run")
    assert store.create("b", b"2") and store.list_folders() == []
    assert sorted(path.name for path in (tmp_path / "large/disk/run").iterdir()) == ["a", "b"]
    with hold_lock(tmp_path / "bucket" / "lock", seconds=1):
        pass


def test_no_name_leads_above_the_folder_or_is_longer_than_an_objects_may_be(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "above").write_bytes(SECRET)
    store = open_store(str(tmp_path / "bucket"))
    for path in ("../above", "a/../../above", ".."):
        with pytest.raises(StorageError):
            store.find(path)
    with pytest.raises(StorageError, match="too long"):
        store.put("a/" * 600 + "b", b"")
