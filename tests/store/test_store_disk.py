"""P9: after power loss, damage or a full disk the store is whole, or it refuses and says what to do."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.copied_store import untie
from test_store_audit import audit_of, tables_of

from orchestrator.errors import OrchError
from orchestrator.store.failures import DamagedStoreError, StoreError
from orchestrator.store.integrity import find_store_faults
from orchestrator.store.other_state import OtherStateError, find_refusal
from orchestrator.store.read import Reader
from orchestrator.store.records import EventRecord
from orchestrator.store.replay import rebuild_tables, verify_chain
from orchestrator.store.store import Store

pytestmark = pytest.mark.promise("P9")


def copy_of(folder: Path, to: Path) -> Path:
    """The files as a power loss leaves them, without the shared memory that lives only in the page cache."""
    to.mkdir()
    for name in ("orch.db", "orch.db-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, to / name)
    return to / "orch.db"


def remarks(database: Path) -> list[str]:
    with Store(database):
        pass  # recovers, as a command would
    return [event.what for event in audit_of(database)[0] if event.kind == "remark"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A store with 20 committed remarks, all still in the log, and the log's length after each was acknowledged."""
    folder = tmp_path_factory.mktemp("written") / "live"
    lengths: list[int] = []
    with Store(folder / "orch.db") as store:
        store.open_cluster("c", "")
        with contextlib.closing(sqlite3.connect(folder / "orch.db")) as raw:
            raw.execute("DELETE FROM meta WHERE key = 'tie'")  # the copies stand for this very file
            raw.commit()
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for number in range(20):
            store.event("c", "remark", f"remark {number}")
            lengths.append((folder / "orch.db-wal").stat().st_size)
        copy_of(folder, folder.with_name("copy"))
    return folder.with_name("copy"), lengths


def test_a_log_cut_at_any_byte_keeps_every_commit_before_the_cut(
    written: tuple[Path, list[int]], tmp_path: Path
) -> None:
    folder, lengths = written
    dice = random.Random(20)
    cuts = {0, 1, 31, 32, *lengths} | {length - 1 for length in lengths} | {length + 1 for length in lengths[:-1]}
    cuts |= {dice.randrange(lengths[-1]) for _ in range(60)}
    for cut in sorted(cuts):
        database = copy_of(folder, tmp_path / f"cut{cut}")
        os.truncate(database.with_name("orch.db-wal"), cut)
        seen = remarks(database)
        acknowledged = sum(length <= cut for length in lengths)
        assert seen[:acknowledged] == [f"remark {number}" for number in range(acknowledged)]
        assert len(seen) <= acknowledged + 1
        events, head = audit_of(database)
        assert verify_chain(events, head) is None


def test_a_log_whose_last_pages_are_torn_keeps_every_commit_before_them(
    written: tuple[Path, list[int]], tmp_path: Path
) -> None:
    folder, lengths = written
    dice = random.Random(21)
    for trial in range(40):
        database = copy_of(folder, tmp_path / f"torn{trial}")
        log = database.with_name("orch.db-wal")
        kept = dice.randrange(len(lengths) - 1)
        content = bytearray(log.read_bytes())
        at = dice.randrange(lengths[kept], len(content))  # behind what was acknowledged: not flushed in order
        content[at : at + 512] = dice.randbytes(min(512, len(content) - at))
        log.write_bytes(content)
        seen = remarks(database)
        assert seen[: kept + 1] == [f"remark {number}" for number in range(kept + 1)]


def test_a_file_whose_growth_was_cut_inside_a_page_is_completed_from_the_log(
    written: tuple[Path, list[int]], tmp_path: Path
) -> None:
    folder, lengths = written
    database = copy_of(folder, tmp_path / "growing")
    with database.open("ab") as file:
        file.write(b"\0" * 1000)
    assert len(remarks(database)) == len(lengths)


@pytest.fixture(scope="module")
def finished_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[EventRecord]]:
    """A closed store of some 300 events, all in the one file."""
    database = tmp_path_factory.mktemp("finished_store") / "orch.db"
    with Store(database) as store:
        for number in range(40):
            cluster = store.open_cluster(f"c{number}", "a summary of some length" * 4)
            for word in ("stopped", "up", "stopped", "down"):
                store.set_desired_state(cluster, word)
            store.event(cluster.name, "remark", "x" * 300)
    untie(database)
    return database, audit_of(database)[0]


@pytest.mark.parametrize("keep", [0, 1, 15, 16, 99, 100, 4095, 4096, 5000, 8192, 20000, 0.5, 0.9, 0.999])
def test_a_file_that_was_cut_short_is_refused_with_what_to_do(
    finished_store: tuple[Path, list[EventRecord]], tmp_path: Path, keep: float
) -> None:
    source, expected = finished_store
    database = tmp_path / "orch.db"
    shutil.copy(source, database)
    os.truncate(database, int(keep if keep >= 1 or keep == 0 else source.stat().st_size * keep))
    if keep == 0:
        with Store(database) as store:  # an empty file is what a crash before the first commit leaves
            assert store.cluster("c1") is None
        return
    with pytest.raises(StoreError) as caught:
        Store(database)
    with pytest.raises(StoreError), Reader(database) as reader:
        assert len(list(reader.all_events())) == len(expected)
    said = "\n".join(caught.value.lines())
    assert str(database) in said
    assert "mv " in said


def test_a_damaged_copy_is_refused_for_its_damage_and_not_as_a_copy(tmp_path: Path) -> None:
    live, copy = tmp_path / "orch.db", tmp_path / "copy" / "orch.db"
    with Store(live) as store:
        for number in range(20):
            store.open_cluster(f"c{number}", "a summary of some length" * 40)
    copy.parent.mkdir()
    shutil.copy(live, copy)
    with pytest.raises(OtherStateError):
        Store(copy)
    content = bytearray(live.read_bytes())
    page = content.rindex(b"a summary of some length") // 4096 * 4096  # of a record: what opens the file is whole
    content[page : page + 4096] = random.Random(23).randbytes(4096)
    copy.write_bytes(content)
    with pytest.raises(DamagedStoreError) as caught:
        Store(copy)
    said = "\n".join(caught.value.lines())
    assert str(copy) in said and "mv " in said and "store restored" not in said
    with Reader(copy) as reader:
        shown = find_refusal(reader, copy)
    assert isinstance(shown, DamagedStoreError) and shown.lines() == caught.value.lines()


def test_a_page_that_no_command_would_read_is_missed_at_the_next_start(
    finished_store: tuple[Path, list[EventRecord]], tmp_path: Path
) -> None:
    database = tmp_path / "orch.db"
    content = bytearray(finished_store[0].read_bytes())
    middle = len(content) // 4096 // 2 * 4096
    content[middle : middle + 4096] = random.Random(23).randbytes(4096)
    database.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Store(database)


def test_overwritten_pages_are_refused_or_found_by_the_check_of_the_audit(
    finished_store: tuple[Path, list[EventRecord]], tmp_path: Path
) -> None:
    source, expected = finished_store
    dice = random.Random(22)
    size = source.stat().st_size
    refused = found = 0
    for trial in range(120):
        database = tmp_path / f"{trial}.db"
        content = bytearray(source.read_bytes())
        length = dice.choice([1, 16, 512, 4096])
        at = dice.randrange(0, size - length)
        content[at : at + length] = dice.randbytes(length)
        database.write_bytes(content)
        try:
            Store(database).__exit__()
            events, _ = audit_of(database)
            real = tables_of(database)
        except OrchError as error:
            assert error.next_step
            refused += 1
            continue
        if events != expected or real != rebuild_tables(expected):
            assert find_store_faults(database)
            found += 1
    assert refused > 20
    assert found > 0


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    database = tmp_path / "orch.db"
    with contextlib.closing(sqlite3.connect(database)) as raw:
        raw.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StoreError, match="belongs to another program"):
        Store(database)
    with contextlib.closing(sqlite3.connect(database)) as raw:
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == [("bookmarks",)]


def test_a_file_in_another_format_is_left_alone(tmp_path: Path) -> None:
    database = tmp_path / "orch.db"
    database.write_text("not a database" * 500)
    with pytest.raises(StoreError, match="damaged"):
        Store(database)
    assert database.read_text() == "not a database" * 500


FILL = """
import pathlib, resource, signal, sys
from orchestrator.store.failures import StoreError
from orchestrator.store.store import Store
database, limit = pathlib.Path(sys.argv[1]), int(sys.argv[2])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
acknowledged = 0
try:
    with Store(database) as store:
        for acknowledged in range(1, 100_000):
            store.event("c", "remark", f"remark {acknowledged - 1} " + "x" * 2000)
except StoreError as error:
    print(acknowledged - 1)
    print(*error.lines(), sep="\\n")
"""


def filled(database: Path, limit: int) -> tuple[int, str]:
    """How many remarks were acknowledged before the disk was full, and the error."""
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(database), str(limit)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    count, _, said = done.stdout.partition("\n")
    return int(count), said


@pytest.mark.parametrize("limit", [40_000, 120_000, 400_000])
def test_a_file_that_may_not_grow_loses_no_commit_that_was_acknowledged(tmp_path: Path, limit: int) -> None:
    database = tmp_path / "orch.db"
    Store(database).__exit__()
    acknowledged, said = filled(database, limit)
    assert "free space" in said
    seen = remarks(database)
    assert len(seen) in (acknowledged, acknowledged + 1)
    assert [line.split()[1] for line in seen] == [str(number) for number in range(len(seen))]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "tiny"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_reported_and_the_store_continues_when_there_is_space_again(tiny_disk: Path) -> None:
    database = tiny_disk / "orch.db"
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 1_200_000)
    acknowledged, said = filled(database, 0)
    assert acknowledged > 10
    assert "error[store]" in said
    assert "free space" in said
    with Reader(database) as reader:  # light commands still read
        assert len([event for event in reader.all_events() if event.kind == "remark"]) in (
            acknowledged,
            acknowledged + 1,
        )
    ballast.unlink()
    seen = remarks(database)
    assert len(seen) in (acknowledged, acknowledged + 1)
    with Store(database) as store:
        store.event("c", "remark", "after")
    events, head = audit_of(database)
    assert verify_chain(events, head) is None


def as_nobody(program: str, database: Path) -> str:
    """Run a program as a user without rights; its output."""
    command = [sys.executable, "-c", textwrap.dedent(program), str(database)]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", *command]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def open_to_all(folder: Path, mode: int) -> Iterator[None]:
    """Other users may enter the folders above, and have `mode` in this one."""
    closed = [parent for parent in folder.parents if parent.stat().st_mode & 0o001 == 0]
    modes = {parent: parent.stat().st_mode for parent in closed}
    for parent in closed:
        parent.chmod(0o711)
    folder.chmod(mode)
    try:
        yield
    finally:
        folder.chmod(0o755)
        for parent, before in modes.items():
            parent.chmod(before)


READ = """
    import pathlib, sys
    from orchestrator.store.read import Reader
    with Reader(pathlib.Path(sys.argv[1])) as reader:
        print([cluster.name for cluster in reader.clusters()])
"""
CHANGE = """
    import pathlib, sys
    from orchestrator.errors import OrchError
    from orchestrator.store.store import Store
    try:
        with Store(pathlib.Path(sys.argv[1])) as store:
            store.open_cluster("new", "")
    except OrchError as error:
        print(*error.lines(), sep="\\n")
"""


@pytest.mark.parametrize("still_open", [False, True])
def test_in_a_folder_that_is_not_writable_light_commands_read_and_others_name_the_next_step(
    tmp_path: Path, still_open: bool
) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    database = folder / "orch.db"
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(database))
        store.open_cluster("c", "")
        if not still_open:
            stack.close()
        for file in folder.iterdir():
            file.chmod(0o444)
        with open_to_all(folder, 0o555):
            assert as_nobody(READ, database) == "['c']\n"
            said = as_nobody(CHANGE, database)
    assert "read-only" in said
    assert f"make {folder} writable for you, or set ORCH_HOME" in said


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    with open_to_all(folder, 0o555):
        said = as_nobody(CHANGE, folder / "state" / "orch.db")
    assert "cannot create" in said
    assert "ORCH_HOME" in said


def test_a_store_that_another_process_keeps_locked_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.store.connection.BUSY_SECONDS", 0.2)
    database = tmp_path / "orch.db"
    Store(database).__exit__()
    blocker = sqlite3.connect(database, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with Store(database) as store, pytest.raises(StoreError, match="writing for too long"):
        store.open_cluster("c", "")
    blocker.close()
