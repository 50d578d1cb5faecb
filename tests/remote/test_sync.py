"""A tree on real hosts: sent once, then only what changed, and never what is not ours."""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.sshd import Farm, Sshd, sshd_farm

from orchestrator.errors import UserError
from orchestrator.hosts import Failure
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.pack import Change, pack_change
from orchestrator.remote.scripts import shell_command
from orchestrator.remote.sync import SyncResult, sync_tree
from orchestrator.remote.tree import list_grown_files, read_tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for number in range(30):
        path = root / f"pkg{number % 4}" / f"module {number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"print({number})\n" * 50)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("pkg1")
    return root


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A destination of the test's own, for hosts are shared."""
    return f"~/work/{request.node.name[:60]}"


def at(host: Sshd, place: str) -> Path:
    return host.home / place.removeprefix("~/")


def content(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Everything below a folder: path to (kind and mode, content)."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = ("link", os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = ("run" if path.stat().st_mode & stat.S_IXUSR else "file", path.read_bytes())
    return found


def send(fleet: Fleet, source: Path, place: str) -> SyncResult:
    result = sync_tree(fleet, read_tree(source), place)
    assert result.result.ok, result.result.failed
    return result


def test_the_first_sync_brings_the_complete_tree_to_every_host(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    seen: list[tuple[int, int]] = []
    result = sync_tree(fleet, read_tree(source), place, on_progress=lambda done, total: seen.append((done, total)))
    assert result.result.ok, result.result.failed
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)
    assert [host.sent_files for host in result.hosts] == [32, 32, 32]
    assert result.sent_files == 96
    assert seen[-1] == (result.sent_bytes, result.sent_bytes)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_second_sync_sends_nothing_and_a_change_sends_only_itself(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    first = send(fleet, source, place)
    assert send(fleet, source, place).sent_bytes == 0
    (source / "pkg0" / "module 0.py").write_text("changed")
    (source / "brand" / "new").mkdir(parents=True)
    (source / "brand" / "new" / "file").write_text("new")
    (source / "run.sh").chmod(0o644)
    again = send(fleet, source, place)
    assert [host.sent_files for host in again.hosts] == [3, 3, 3]
    assert again.hosts[0].sent_bytes < first.hosts[0].sent_bytes * 4
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def modes(folder: Path) -> dict[str, tuple[str, int]]:
    """Return kind and mode, and of files the time, of all below a folder."""
    found: dict[str, tuple[str, int]] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        time = 0 if stat.S_ISDIR(status.st_mode) else int(status.st_mtime)
        found[path.relative_to(folder).as_posix()] = (stat.filemode(status.st_mode), time)
    return found


def test_kinds_modes_and_times_arrive_and_follow(fleet: Fleet, shared_farm: Farm, source: Path, place: str) -> None:
    (source / "private").mkdir(mode=0o700)
    (source / "private/key").write_text("k")
    (source / "private/key").chmod(0o400)
    (source / "empty/er").mkdir(parents=True)
    (source / "open").mkdir()
    (source / "open").chmod(0o777)
    os.utime(source / "run.sh", (5, 1_000_000_000))
    os.utime(source / "link", (5, 1_000_000_001), follow_symlinks=False)
    assert send(fleet, source, place).hosts[0].sent_files == 33
    at_all = [at(host, place) for host in shared_farm.hosts]
    assert all(modes(folder) == modes(source) for folder in at_all)
    (at_all[0] / "open/output").write_text("of the program")
    (at_all[1] / "private").chmod(0o755)
    (at_all[2] / "empty/er").rmdir()
    os.utime(source / "run.sh")
    sent = send(fleet, source, place)
    assert [host.sent_bytes > 0 for host in sent.hosts] == [False, True, True], "a time alone is no change"
    (at_all[0] / "open/output").unlink()
    os.utime(source / "run.sh", (5, 1_000_000_000))
    assert all(modes(folder) == modes(source) for folder in at_all)
    (source / "private").chmod(0o750)
    (source / "private/key").chmod(0o640)
    (source / "empty/er").rmdir()
    (source / "open").rmdir()
    (source / "open").write_text("a file now")
    (source / "pkg0/deep/er").mkdir(parents=True, mode=0o711)
    send(fleet, source, place)
    assert all(modes(folder) == modes(source) for folder in at_all)


def test_files_deleted_from_the_tree_are_deleted_and_foreign_files_stay(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    send(fleet, source, place)
    theirs = [at(host, place) / "pkg2" / "venv" / "bin" for host in shared_farm.hosts]
    for folder in theirs:
        folder.mkdir(parents=True)
        (folder / "python").write_text("theirs")
    for path in [*(source / "pkg2").iterdir(), *(source / "pkg3").iterdir(), source / "link"]:
        path.unlink()
    (source / "pkg2").rmdir()
    (source / "pkg3").rmdir()
    result = send(fleet, source, place)
    assert {host.deleted_files for host in result.hosts} == {15}
    for host, folder in zip(shared_farm.hosts, theirs, strict=True):
        assert (folder / "python").read_text() == "theirs"
        assert not (at(host, place) / "pkg3").exists()
        (folder / "python").unlink()
        assert content(at(host, place)) == content(source)


def test_a_file_of_theirs_in_a_new_destination_is_kept(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    for host in shared_farm.hosts:
        at(host, place).mkdir(parents=True)
        (at(host, place) / "theirs.txt").write_text("theirs")
    send(fleet, source, place)
    for host in shared_farm.hosts:
        assert (at(host, place) / "theirs.txt").read_text() == "theirs"


def test_files_changed_or_removed_on_a_host_are_restored(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    send(fleet, source, place)
    edited = at(shared_farm.hosts[1], place)
    (edited / "pkg0" / "module 0.py").write_text("edited")
    (edited / "run.sh").chmod(0o600)
    for path in (edited / "pkg1").iterdir():
        path.unlink()
    result = send(fleet, source, place)
    assert result.hosts[0].sent_bytes == result.hosts[2].sent_bytes == 0
    assert 10 <= result.hosts[1].sent_files <= 12  # two changed, eight gone, a link is always sent
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def test_a_file_changed_back_to_the_same_size_and_second_is_noticed(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    send(fleet, source, place)
    victim = at(shared_farm.hosts[0], place) / "run.sh"
    times = victim.stat()
    victim.write_text("#!/bin/XX\n"[: times.st_size])
    os.utime(victim, ns=(times.st_atime_ns, times.st_mtime_ns))
    send(fleet, source, place)
    assert victim.read_text() == (source / "run.sh").read_text()


def test_hosts_with_different_states_each_get_their_missing_files(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    sync_tree(fleet, read_tree(source), place, ranks=[0])
    (source / "second").write_text("2")
    sync_tree(fleet, read_tree(source), place, ranks=[1])
    (source / "third").write_text("3")
    result = send(fleet, source, place)
    assert [host.sent_files for host in result.hosts] == [2, 1, 34]
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def test_a_file_becomes_a_folder_and_a_folder_a_file(fleet: Fleet, shared_farm: Farm, source: Path, place: str) -> None:
    (source / "was-file").write_text("f")
    (source / "was-folder").mkdir()
    (source / "was-folder" / "x").write_text("x")
    send(fleet, source, place)
    (source / "was-file").unlink()
    (source / "was-file").mkdir()
    (source / "was-file" / "y").write_text("y")
    (source / "was-folder" / "x").unlink()
    (source / "was-folder").rmdir()
    (source / "was-folder").write_text("now a file")
    send(fleet, source, place)
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def test_an_empty_tree_and_one_file_are_trees_too(fleet: Fleet, shared_farm: Farm, tmp_path: Path, place: str) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    send(fleet, empty, place)
    assert at(shared_farm.hosts[0], place).is_dir()
    single = tmp_path / "data.bin"
    single.write_bytes(os.urandom(300_000))
    send(fleet, single, f"{place}/")
    assert (at(shared_farm.hosts[2], place) / "data.bin").read_bytes() == single.read_bytes()


def test_the_destination_of_one_file_is_that_file(fleet: Fleet, shared_farm: Farm, tmp_path: Path, place: str) -> None:
    """As in the dialect: `~/config.json: ./mine.json` makes the file, and leaves its neighbours alone."""
    host = shared_farm.hosts[1]
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(name)
        send(fleet, tmp_path / f"{name}.json", f"{place}/sent-{name}.json")
    assert content(at(host, place)) == {"sent-one.json": ("file", b"one"), "sent-two.json": ("file", b"two")}
    (tmp_path / "one.json").write_text("changed")
    sent = send(fleet, tmp_path / "one.json", f"{place}/sent-one.json")
    assert [each.sent_files for each in sent.hosts] == [1, 1, 1]
    assert send(fleet, tmp_path / "one.json", f"{place}/sent-one.json").sent_files == 0
    assert content(at(host, place)) == {"sent-one.json": ("file", b"changed"), "sent-two.json": ("file", b"two")}
    name = f"in the home folder of {tmp_path.name}"
    send(fleet, tmp_path / "two.json", f"~/{name}")
    assert (host.home / name).read_text() == "two"


def test_large_content_that_does_not_shrink_arrives_complete(
    fleet: Fleet, shared_farm: Farm, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.remote.pack._IN_MEMORY", 1_000_000)  # so that the stream is a mapped file
    source = tmp_path / "random"
    source.mkdir()
    for number in range(3):
        (source / f"part{number}").write_bytes(os.urandom(1_500_000 + number))
    send(fleet, source, place)
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def test_over_a_long_way_text_is_compressed(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "words").write_text("the same words again\n" * 20_000)
    near = send(fleet, source, f"{place}-near")
    monkeypatch.setattr("orchestrator.remote.connect._FAR", -1.0)
    far = send(fleet, source, place)
    assert far.hosts[0].sent_bytes < near.hosts[0].sent_bytes / 4
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def test_a_full_disk_on_one_host_is_its_failure_with_its_message_and_changes_nothing_there(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    """A file size limit of the login shell simulates the full disk: tar fails in the middle."""
    send(fleet, source, place)
    before = content(at(shared_farm.hosts[1], place))
    (source / "big").write_bytes(os.urandom(3_000_000))
    (source / "run.sh").write_text("#!/bin/sh\nnew\n")
    profile = shared_farm.hosts[1].home / ".bashrc"
    profile.write_text("trap '' XFSZ; ulimit -f 1000\n")
    try:
        result = sync_tree(fleet, read_tree(source), place)
    finally:
        profile.unlink()
    assert [host.outcome.verdict for host in result.result.hosts] == ["exit 0", "exit 1", "exit 0"]
    assert "big" in result.result.hosts[1].outcome.last_line
    assert result.hosts[1].sent_files == 0
    assert content(at(shared_farm.hosts[1], place)) == before
    send(fleet, source, place)
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def test_a_stream_that_ends_between_two_files_changes_nothing(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    """tar takes such a stream for whole; ours ends with a member that says so."""
    send(fleet, source, place)
    before = content(at(shared_farm.hosts[0], place))
    (source / "pkg0" / "module 0.py").write_text("new")
    (source / "pkg1" / "module 1.py").write_text("new")
    tree = read_tree(source)
    whole = pack_change(tree, Change(tree.files, ()), compress=False).stream
    key = hashlib.sha256(place.removeprefix("~/").encode()).hexdigest()[:16]
    command = shell_command("sync.sh", key, place.removeprefix("~/"))
    cut = bytes(whole).index(b"meta/complete")
    result = fleet.run(command, ranks=[0], stdin=f"apply {tree.digest}\n".encode() + bytes(whole[:cut]), timeout=60)
    assert result.hosts[0].outcome.exit_code == 1
    assert "incomplete" in result.hosts[0].outcome.last_line
    assert content(at(shared_farm.hosts[0], place)) == before
    send(fleet, source, place)
    assert content(at(shared_farm.hosts[0], place)) == content(source)


def test_killed_while_it_replaces_files_the_next_sync_completes_it(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    """A state as it is left between two renames: the seal is empty, some files are new, meta/ lists them."""
    send(fleet, source, place)
    folder = at(shared_farm.hosts[0], place)
    key = hashlib.sha256(place.removeprefix("~/").encode()).hexdigest()[:16]
    state = shared_farm.hosts[0].rank_folder / "sync" / key
    (state / "seal").write_text("")
    (folder / "half-sent.py").write_text("of a tree that was never whole here")
    meta = folder / (state / "incoming").read_text().strip() / "meta"
    meta.mkdir(parents=True)
    (meta / "owned").write_bytes(b"./half-sent.py\0./run.sh\0")
    (meta / "delete").write_bytes(b"")
    result = send(fleet, source, place)
    assert result.hosts[0].deleted_files == 1
    assert result.hosts[1].sent_bytes == 0
    assert content(folder) == content(source)


def test_a_destination_that_is_a_file_is_that_hosts_failure(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    at(shared_farm.hosts[2], place).parent.mkdir(parents=True, exist_ok=True)
    at(shared_farm.hosts[2], place).write_text("a file")
    result = sync_tree(fleet, read_tree(source), place)
    assert [host.outcome.ok for host in result.result.hosts] == [True, True, False]
    assert "not a folder" in result.result.hosts[2].outcome.last_line
    assert result.result.first_failure is not None
    assert result.result.first_failure.rank == 2


def test_two_parallel_syncs_to_one_place_end_in_one_complete_tree(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    tree = read_tree(source)
    results: list[SyncResult] = []
    threads = [threading.Thread(target=lambda: results.append(sync_tree(fleet, tree, place))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in (outcome for result in results for outcome in result.result.failed):
        assert "another sync" in outcome.last_line
    send(fleet, source, place)
    for host in shared_farm.hosts:
        assert content(at(host, place)) == content(source)


def test_hosts_that_share_a_folder_sync_to_it_in_parallel(
    fleet: Fleet, shared_farm: Farm, source: Path, tmp_path: Path
) -> None:
    """Hosts of one computer share its disk: an absolute destination is one folder for all of them."""
    for folder in range(8):
        place = tmp_path / f"shared {folder}"
        if folder % 2:
            place.mkdir()
            (place / "theirs").write_text("theirs")
        send(fleet, source, str(place))
        assert content(place) == content(source) | ({"theirs": ("file", b"theirs")} if folder % 2 else {})
        assert not list(tmp_path.rglob("*.orch-incoming*"))
    (source / "run.sh").unlink()
    (source / "pkg0" / "module 0.py").write_text("changed")
    send(fleet, source, str(place))
    assert content(place) == content(source) | {"theirs": ("file", b"theirs")}


def test_a_host_killed_midway_is_lost_and_the_next_sync_completes_it(farm: Farm, source: Path) -> None:
    (source / "big").write_bytes(os.urandom(40_000_000))
    tree = read_tree(source)
    with Fleet(farm.addresses, deadline=5) as fleet:
        assert fleet.reachable(timeout=10).ok
        killed = threading.Event()

        def progress(done: int, total: int) -> None:
            if done > total / 4 and not killed.is_set():
                killed.set()
                farm.hosts[1].kill()

        result = sync_tree(fleet, tree, "code", on_progress=progress)
        assert [host.outcome.verdict for host in result.result.hosts] == ["exit 0", "lost"]
        farm.hosts[1].start()
        again = sync_tree(fleet, tree, "code")
    assert again.result.ok, again.result.failed
    assert content(farm.hosts[1].home / "code") == content(source)


def test_an_unreachable_host_does_not_stop_the_others(farm: Farm, source: Path) -> None:
    farm.hosts[0].kill()
    with Fleet(farm.addresses, deadline=3) as fleet:
        result = sync_tree(fleet, read_tree(source), "code")
    assert [host.outcome.verdict for host in result.result.hosts] == ["refused", "exit 0"]
    assert result.result.hosts[0].outcome.failure is Failure.REFUSED
    assert content(farm.hosts[1].home / "code") == content(source)


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Fleet]]:
    with sshd_farm(tmp_path_factory.mktemp("one"), 1) as farm, Fleet(farm.addresses) as fleet:
        yield farm.hosts[0], fleet


NAME = st.sampled_from(["a", "b", "-x", "c d", "e\nf", "$(touch oops)", "ü", "'q'", '"', "*", "x" * 120])
PATH = st.lists(NAME, min_size=1, max_size=3).map("/".join)
STEP = st.dictionaries(PATH, st.tuples(st.sampled_from(["file", "run", "link"]), st.binary(max_size=30)), max_size=6)


@given(st.lists(STEP, min_size=1, max_size=3), st.booleans())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_any_history_the_host_holds_exactly_the_last_tree(
    one_host: tuple[Sshd, Fleet],
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[dict[str, tuple[str, bytes]]],
    touched: bool,
) -> None:
    import shutil

    host, fleet = one_host
    place = f"w/{tmp_path_factory.mktemp('p').name}"
    source = tmp_path_factory.mktemp("s")
    for step in steps:
        shutil.rmtree(source)
        source.mkdir()
        for path, (kind, data) in step.items():
            target = source / path
            if any(parent.is_file() or parent.is_symlink() for parent in target.parents) or target.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if kind == "link":
                target.symlink_to("x" + data.hex())
            else:
                target.write_bytes(data)
                target.chmod(0o755 if kind == "run" else 0o644)
        result = sync_tree(fleet, read_tree(source), place)
        assert result.result.ok, result.result.failed
        assert content(host.home / place) == content(source)
        for path in (host.home / place).rglob("*"):
            if touched and path.is_file() and not path.is_symlink():
                path.write_bytes(b"touched on the host")
    assert not (host.home / "oops").exists()


def test_a_file_that_grows_is_sent_as_it_was_and_an_edited_one_is_named(
    fleet: Fleet, shared_farm: Farm, source: Path, place: str
) -> None:
    log = source / "launch.log"
    log.write_text("planned\n")
    tree = read_tree(source)
    with log.open("a") as more:
        more.write("later\n")
    assert list_grown_files(tree) == (log,)
    assert sync_tree(fleet, tree, place).result.ok
    assert {(at(host, place) / "launch.log").read_text() for host in shared_farm.hosts} == {"planned\n"}
    (source / "run.sh").write_text("#!/bin/sh\nexit\n")
    planned = read_tree(source)
    (source / "run.sh").write_text("#!/bin/zsh\nexit 1\n")
    with pytest.raises(UserError, match=r"/run\.sh changed while it was being sent"):
        sync_tree(fleet, planned, place)


def test_a_file_that_grows_as_fast_as_it_is_read_has_an_end(source: Path) -> None:
    log, done = source / "launch.log", threading.Event()
    log.write_bytes(b"x" * (4 << 20))

    def grow() -> None:
        with log.open("ab") as more:
            while not done.is_set() and more.tell() < 1 << 28:
                more.write(b"y" * (1 << 20))

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        tree = read_tree(source)
    finally:
        done.set()
        thread.join()
    (file,) = (one for one in tree.files if one.path == "launch.log")
    with log.open("rb") as content_now:
        assert hashlib.sha256(content_now.read(file.size)).hexdigest() == file.sha256


def test_a_host_is_not_blamed_for_the_time_in_which_files_are_packed(farm: Farm, source: Path) -> None:
    tree, slow = read_tree(source), source / "run.sh"
    content_of_it = slow.read_bytes()
    slow.unlink()
    os.mkfifo(slow)  # whose reader waits for the one who writes

    def write() -> None:
        time.sleep(4)
        slow.write_bytes(content_of_it)

    thread = threading.Thread(target=write)
    with Fleet(farm.addresses[:1], deadline=3) as fleet:
        assert fleet.reachable(timeout=10).ok
        thread.start()
        result = sync_tree(fleet, tree, "code")
    thread.join()
    assert result.result.ok, result.result.failed
    assert (farm.hosts[0].home / "code/run.sh").read_bytes() == content_of_it
