"""One contract for file://, s3:// and gs://: conditional writes, listing, ranges, errors."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from checkpoint_crash import race, server
from support.s3 import S3Server

from orch_fronts.google.gcs import GcsServer, gcs_server
from trainer.checkpoint import pointer
from trainer.checkpoint.manifest import CorruptCheckpoint, Latest, StepFolder
from trainer.checkpoint.store import Store, open_store
from trainer.errors import StorageError

Opened = Callable[[], Store]


@pytest.fixture(params=["file", "s3", "gs"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Return an opener of one empty folder; each call is another client."""
    if request.param == "file":
        return lambda: open_store(f"file://{tmp_path}/a folder/x", create=True)
    name = f"bucket-{uuid4().hex[:12]}"
    if request.param == "s3":
        s3: S3Server = request.getfixturevalue("s3")
        s3.create_bucket(name)
        return lambda: open_store(f"s3://{name}/a folder/x", environ=s3.environment)
    gcs: GcsServer = request.getfixturevalue("gcs")
    gcs.create_bucket(name)
    return lambda: open_store(f"gs://{name}/a folder/x", environ={"STORAGE_EMULATOR_HOST": gcs.url})


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.s3 import ENVIRONMENT

    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def test_what_is_put_is_found_listed_and_deleted(opened: Opened) -> None:
    store = opened()
    assert store.find("a/b.bin") is None
    store.put("a/b.bin", bytearray(b"12345678"))
    store.put("a/c.bin", b"")
    store.put("d/e/f.bin", b"x" * 100)
    found = opened().find("a/b.bin")
    assert found is not None
    assert found.data == b"12345678"
    assert {(e.path, e.size) for e in store.list_objects("")} == {("a/b.bin", 8), ("a/c.bin", 0), ("d/e/f.bin", 100)}
    assert {e.path for e in store.list_objects("a")} == {"a/b.bin", "a/c.bin"}
    assert sorted(store.list_folders()) == ["a", "d"]
    assert store.read_ranges("a/b.bin", [6, 0], [2, 3]) == [b"78", b"123"]
    store.delete(["a/b.bin", "a/c.bin", "a/never.bin"])
    assert store.list_folders() == ["d"]


def test_a_storage_server_gets_the_token_of_the_environment() -> None:
    with gcs_server("the-token", create=True) as server:
        environ = {"STORAGE_EMULATOR_HOST": server.url, "GOOGLE_BEARER_TOKEN": "the-token"}
        open_store("gs://bucket/x", environ=environ).put("a", b"1")
        with pytest.raises(StorageError):
            open_store("gs://bucket/x", environ={**environ, "GOOGLE_BEARER_TOKEN": "another"}).put("a", b"2")
        assert server.buckets["bucket"]["x/a"].data == b"1"


def test_create_takes_one_writer_and_forgives_a_repeated_one(opened: Opened) -> None:
    store = opened()
    assert store.create("m.json", b"first")
    assert store.create("m.json", b"first"), "the answer of the first try may have been lost"
    assert not store.create("m.json", b"second")
    found = store.find("m.json")
    assert found is not None
    assert found.data == b"first"


def test_swap_needs_the_state_that_was_read(opened: Opened) -> None:
    store = opened()
    assert store.replace_if_unchanged("p", b"one", None)
    assert not store.replace_if_unchanged("p", b"other", None)
    before = store.find("p")
    assert before is not None
    assert opened().replace_if_unchanged("p", b"two", before.version)
    assert not store.replace_if_unchanged("p", b"three", before.version)
    after = store.find("p")
    assert after is not None
    assert after.data == b"two"
    store.delete(["p"])
    assert not store.replace_if_unchanged("p", b"four", after.version)
    assert store.find("p") is None


def test_sixteen_racing_writers_have_one_winner_each_round_and_never_go_back(opened: Opened) -> None:
    stores = [opened() for _ in range(16)]
    seen: list[int] = []
    for step in (1, 2, 5, 6, 9):
        barrier, wins, failures = threading.Barrier(16), list[int](), list[BaseException]()

        def write(number: int, store: Store, step: int = step) -> None:
            try:
                barrier.wait()  # noqa: B023 - joined before the next round
                if pointer.advance_latest(store, StepFolder(step, 1, 1)):
                    wins.append(number)  # noqa: B023 - as above
            except BaseException as error:
                failures.append(error)  # noqa: B023 - as above

        threads = [threading.Thread(target=write, args=item) for item in enumerate(stores)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(wins) == 1
        seen.append(_latest(stores[0]))
    assert seen == [1, 2, 5, 6, 9]


@pytest.mark.promise("P17")
def test_sixteen_writers_of_sixteen_steps_end_at_the_highest_and_are_never_seen_lower(opened: Opened) -> None:
    stores = [opened() for _ in range(16)]
    reader, seen, failures, done = opened(), list[int](), list[BaseException](), threading.Event()

    def write(step: int, store: Store) -> None:
        try:
            pointer.advance_latest(store, StepFolder(step, 1, 1))
        except BaseException as error:
            failures.append(error)

    def watch() -> None:
        while not done.is_set():
            found = reader.find("latest.json")
            if found is not None:
                seen.append(Latest.from_json(found.data).step)

    watcher = threading.Thread(target=watch)
    threads = [threading.Thread(target=write, args=(step + 1, store)) for step, store in enumerate(stores)]
    watcher.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert failures == []
    assert _latest(reader) == 16
    assert seen == sorted(seen)


@pytest.mark.promise("P17")
def test_racing_processes_on_a_local_folder_have_one_winner_each_round(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/race"
    open_store(uri, create=True)
    context = server()
    barrier, results = context.Barrier(16), context.Queue()
    processes = [context.Process(target=race, args=(uri, barrier, results, 6)) for _ in range(16)]
    for process in processes:
        process.start()
    wins = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    rounds = [step for won in wins for step in won]
    assert sorted(rounds) == [1, 2, 3, 4, 5, 6]
    assert _latest(open_store(uri)) == 6


def test_pointer_that_is_no_json_is_an_error_for_readers_and_replaced_by_a_writer(opened: Opened) -> None:
    store = opened()
    store.put("latest.json", b"{half")
    with pytest.raises(CorruptCheckpoint):
        pointer.read_latest(store)
    assert pointer.advance_latest(store, StepFolder(3, 1, 1))
    assert _latest(store) == 3
    assert not pointer.advance_latest(store, StepFolder(2, 1, 1))


def test_missing_bucket_is_a_clear_error(s3: S3Server) -> None:
    store = open_store("s3://no-such-bucket-here/x", environ=s3.environment)
    with pytest.raises(StorageError, match="s3://no-such-bucket-here/x"):
        store.put("a", b"1")
    with pytest.raises(StorageError, match="cannot be listed"):
        store.list_folders()


def test_impossible_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be created"):
        open_store(f"file://{tmp_path}/file/below", create=True)
    with pytest.raises(StorageError, match="no such folder"):
        open_store(f"file://{tmp_path}/absent")
    with pytest.raises(StorageError, match="not a file://, s3:// or gs:// place"):
        open_store("ftp://host/x")


def test_hidden_files_of_the_local_lock_are_not_listed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), create=True)
    pointer.advance_latest(store, StepFolder(1, 1, 1))
    pointer.advance_latest(store, StepFolder(2, 1, 1))
    assert [entry.path for entry in store.list_objects("")] == ["latest.json"]


def _latest(store: Store) -> int:
    latest = pointer.read_latest(store)
    assert latest is not None
    return latest.step


def test_a_lock_that_a_stopped_process_holds_is_an_error_and_not_awaited_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path), create=True)
    pointer.advance_latest(store, StepFolder(1, 1, 1))
    monkeypatch.setattr("trainer.checkpoint.folder_store._LOCK_SECONDS", 0.1)
    with (tmp_path / ".latest.json.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match=r"latest\.json\.lock: held for .* kill or continue it"):
            pointer.advance_latest(store, StepFolder(2, 1, 1))
    assert pointer.advance_latest(store, StepFolder(2, 1, 1))
