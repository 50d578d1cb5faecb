"""Small files to hosts, and files and folders back."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.evil_host import Member, answer_instead, chain_of_links, pack
from support.sshd import Farm, sshd_farm

from orchestrator.hosts import HostAddress
from orchestrator.remote.files import fetch_tree, put_files
from orchestrator.remote.fleet import Fleet


def test_files_are_written_with_their_mode_and_content_of_each_host(fleet: Fleet, shared_farm: Farm) -> None:
    big = os.urandom(2_000_000)
    result = put_files(
        fleet,
        {"~/put/secret": lambda host: b"secret of %d" % host.rank, "put/it's a name": big, "put/empty": b""},
        0o640,
    )
    assert result.ok, result.failed
    for rank, host in enumerate(shared_farm.hosts):
        folder = host.home / "put"
        assert (folder / "secret").read_bytes() == b"secret of %d" % rank
        assert (folder / "it's a name").read_bytes() == big
        assert (folder / "empty").read_bytes() == b""
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}
        assert len(list(folder.iterdir())) == 3


def test_a_secret_is_never_on_a_command_line_and_never_readable_by_others(fleet: Fleet, shared_farm: Farm) -> None:
    """While the content still comes, the file has its mode and no process shows the content."""
    seen: list[bytes] = []

    def content(host: HostAddress) -> bytes:
        return b"top-secret-value" * 200_000

    import threading

    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for host in shared_farm.hosts:
                for pid in host.user_pids():
                    try:
                        seen.append(Path(f"/proc/{pid}/cmdline").read_bytes())
                    except OSError:
                        continue
                for path in host.home.glob("hide/*"):
                    try:
                        seen.append(b"open" if path.stat().st_mode & 0o077 else b"shut")
                    except OSError:
                        continue

    thread = threading.Thread(target=watch)
    thread.start()
    assert put_files(fleet, {"hide/token": content}).ok
    done.set()
    thread.join()
    assert b"shut" in seen
    assert b"open" not in seen
    assert not any(b"top-secret-value" in line for line in seen)


def test_a_file_that_cannot_be_written_is_that_hosts_failure_and_the_old_one_stays(
    fleet: Fleet, shared_farm: Farm
) -> None:
    (shared_farm.hosts[1].home / "blocked").write_text("a file, no folder")
    result = put_files(fleet, {"blocked/x": b"1"}, ranks=[1, 2])
    assert [host.outcome.ok for host in result.hosts] == [False, True]
    assert "blocked" in result.hosts[0].outcome.last_line
    assert (shared_farm.hosts[1].home / "blocked").read_text() == "a file, no folder"
    (shared_farm.hosts[0].home / "is-folder").mkdir()
    assert "is a folder" in put_files(fleet, {"is-folder": b"1"}, ranks=[0]).hosts[0].outcome.last_line


def test_a_copy_from_hosts_passes_over_a_greeting(fleet: Fleet, shared_farm: Farm, tmp_path: Path) -> None:
    for rank, host in enumerate(shared_farm.hosts):
        (host.home / "data").write_bytes(b"\0\n%d" % rank * 1000)
    (shared_farm.hosts[1].home / ".bashrc").write_text("echo hello from the profile\n")
    (shared_farm.hosts[2].home / "data").unlink()
    result = fetch_tree(fleet, "~/data", lambda host: tmp_path / host.label)
    (shared_farm.hosts[1].home / ".bashrc").unlink()
    assert [outcome.rank for outcome in result.failed] == [2]
    assert "does not exist" in result.failed[0].last_line
    found = {host.address.rank: tmp_path / host.address.label / "data" for host in shared_farm.hosts[:2]}
    assert {rank: path.read_bytes() for rank, path in found.items()} == {0: b"\0\n0" * 1000, 1: b"\0\n1" * 1000}


def test_fetch_tree_copies_files_and_folders_as_they_stream(fleet: Fleet, shared_farm: Farm, tmp_path: Path) -> None:
    for rank, host in enumerate(shared_farm.hosts):
        (host.home / "out" / "deep").mkdir(parents=True)
        (host.home / "out" / "deep" / "log").write_bytes(os.urandom(500_000) + b"%d" % rank)
        (host.home / "out" / "run").write_text("x")
        (host.home / "out" / "run").chmod(0o755)
    result = fetch_tree(fleet, "out/", lambda host: tmp_path / host.label)
    assert result.ok, result.failed
    for host in shared_farm.hosts:
        mine = tmp_path / host.address.label / "out"
        assert (mine / "deep" / "log").read_bytes() == (host.home / "out" / "deep" / "log").read_bytes()
        assert (mine / "run").stat().st_mode & 0o100
    single = fetch_tree(fleet, "out/run", lambda host: tmp_path / "one", ranks=[0])
    assert single.ok
    assert (tmp_path / "one" / "run").read_text() == "x"


def test_fetch_tree_of_what_is_missing_fails_with_a_message(fleet: Fleet, tmp_path: Path) -> None:
    result = fetch_tree(fleet, "no/such", lambda host: tmp_path)
    assert {host.outcome.exit_code for host in result.hosts} == {1}
    assert "does not exist" in result.hosts[0].outcome.last_line


def test_links_are_left_out_unless_requested_and_inside(fleet: Fleet, shared_farm: Farm, tmp_path: Path) -> None:
    there = shared_farm.hosts[0].home / "linked"
    there.mkdir()
    (there / "file").write_text("x")
    (there / "twice").hardlink_to(there / "file")
    (there / "link").symlink_to("file")
    seen: list[str] = []
    plain = fetch_tree(
        fleet, "linked", lambda _host: tmp_path / "plain", ranks=[0], skip_link=lambda _host, name: seen.append(name)
    )
    assert plain.ok, plain.failed
    assert seen == ["linked/link"]
    assert sorted(path.name for path in (tmp_path / "plain/linked").iterdir()) == ["file", "twice"]
    assert fetch_tree(fleet, "linked", lambda _host: tmp_path / "wanted", ranks=[0]).ok
    assert (tmp_path / "wanted/linked/link").readlink() == Path("file")
    (there / "evil").symlink_to("/etc/passwd")
    refused = fetch_tree(fleet, "linked", lambda _host: tmp_path / "evil", ranks=[0])
    assert not refused.ok
    assert "link out of the folder" in refused.hosts[0].outcome.last_line


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize(
    "members",
    [
        chain_of_links("out/"),
        [("out", tarfile.SYMTYPE, "."), ("out/.ssh/authorized_keys", tarfile.REGTYPE, "evil")],
        [(".ssh/authorized_keys", tarfile.REGTYPE, "evil")],
        [("../.ssh/authorized_keys", tarfile.REGTYPE, "evil")],
        [("out/x", tarfile.LNKTYPE, "../.ssh/id"), ("out/x", tarfile.REGTYPE, "evil")],
    ],
)
def test_an_evil_host_writes_nothing_beside_what_was_requested(
    tmp_path: Path, members: list[Member], links: bool
) -> None:
    key = tmp_path / "home/.ssh/id"
    key.parent.mkdir(parents=True)
    key.write_text("mine")
    key.chmod(0o600)
    with sshd_farm(tmp_path / "farm", 1) as farm, Fleet(farm.addresses, deadline=20) as fleet:
        (farm.hosts[0].home / "out").mkdir()
        answer_instead(farm.hosts[0], "tar", pack(*members))
        skip = None if links else lambda _host, _name: None
        fetch_tree(fleet, "out", lambda _host: tmp_path / "home/dl", skip_link=skip)
    beside = [path for path in tmp_path.rglob("*") if "farm" not in path.parts and "dl" not in path.parts]
    assert sorted(str(path.relative_to(tmp_path)) for path in beside) == ["home", "home/.ssh", "home/.ssh/id"]
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("mine", 0o600)
    received = {path.relative_to(tmp_path / "home/dl").parts[0] for path in (tmp_path / "home/dl").rglob("*")}
    assert received <= {"out"}


def test_a_disk_that_is_full_here_is_a_failure_not_a_hang(fleet: Fleet, shared_farm: Farm, tmp_path: Path) -> None:
    (shared_farm.hosts[0].home / "huge").write_bytes(b"x" * 5_000_000)
    (tmp_path / "huge").mkdir()
    (tmp_path / "huge" / "in-the-way").touch()
    result = fetch_tree(fleet, "huge", lambda host: tmp_path, ranks=[0])
    assert not result.ok


@example(name="\\0", data=b"")
@example(name="a\\tb\n", data=b"x")
@given(
    name=st.text(alphabet=st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
    data=st.binary(max_size=200),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("folder", ["~/any", "any'2 \"$(touch oops)"])
def test_any_name_and_any_bytes_go_there_and_back(
    fleet: Fleet, shared_farm: Farm, tmp_path_factory: pytest.TempPathFactory, folder: str, name: str, data: bytes
) -> None:
    if name in (".", ".."):
        return
    assert put_files(fleet, {f"{folder}/{name}": data}, ranks=[0]).ok
    into = tmp_path_factory.mktemp("back")
    assert fetch_tree(fleet, f"{folder}/{name}", lambda _host: into, ranks=[0]).ok
    assert (into / name).read_bytes() == data
    assert not (shared_farm.hosts[0].home / "oops").exists()
