"""What hosts and buckets send stays below the folder that it was copied to, whatever they send."""

from __future__ import annotations

import io
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.evil_host import Member, chain_of_links, pack

from orchestrator.received_files import ReceivingFolder, ReceivingLimits, RefusedEntryError
from orchestrator.remote.archive import unpack_archive


def archive(*members: Member, mode: int = 0o6777) -> io.BytesIO:
    return io.BytesIO(pack(*members, mode=mode))


def unpack(folder: Path, raw: io.BytesIO, limits: ReceivingLimits | None = None, **more: object) -> None:
    with ReceivingFolder(folder, limits) as receiving:
        unpack_archive(raw, receiving, **more)  # type: ignore[arg-type]  # passed on as they are


def tree(folder: Path) -> dict[str, str]:
    """Return every path below the folder, links not followed."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): oct(stat.S_IFMT(path.lstat().st_mode)) for path in found}


def test_files_folders_and_links_inside_are_written(tmp_path: Path) -> None:
    members = archive(("d", tarfile.DIRTYPE, ""), ("d/f", tarfile.REGTYPE, "x"), ("d/l", tarfile.SYMTYPE, "../d/f"))
    unpack(tmp_path / "to", members)
    assert (tmp_path / "to/d/l").read_text() == "x"
    assert (tmp_path / "to/d/f").stat().st_mode & 0o7777 == 0o755, "no bits from the host but the program's"
    assert (tmp_path / "to/d/f").stat().st_mtime == 1_600_000_000


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, "x")],
        [("/tmp/out", tarfile.REGTYPE, "x")],
        [("a//out", tarfile.REGTYPE, "x")],
        [("a/../../out", tarfile.REGTYPE, "x")],
        [("l", tarfile.SYMTYPE, "../.."), ("l/out", tarfile.REGTYPE, "x")],
        [("l", tarfile.SYMTYPE, "."), ("l/out", tarfile.REGTYPE, "x")],
        [("l", tarfile.SYMTYPE, "/etc/passwd")],
        [("d", tarfile.SYMTYPE, "."), ("e", tarfile.SYMTYPE, "d/../..")],
        [("l", tarfile.LNKTYPE, "../out")],
        [("l", tarfile.LNKTYPE, "/etc/passwd")],
        [("p", tarfile.FIFOTYPE, "")],
        [("p", tarfile.CHRTYPE, "")],
        chain_of_links(),
    ],
)
def test_what_would_leave_the_folder_or_is_no_file_is_refused(tmp_path: Path, members: list[Member]) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises((RefusedEntryError, OSError)):
        unpack(tmp_path / "a/to", archive(*members))
    beside = {name for name in tree(tmp_path) if not name.startswith("a/to/")}
    assert beside == {"a", "a/to"}
    assert not Path("/tmp/out").exists()


names = st.lists(st.sampled_from(["a", "b", "..", ".", "", "l", "x" * 250]), min_size=1, max_size=5).map("/".join)
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(names, kinds, names), max_size=8), st.booleans())
def test_no_archive_writes_beside_its_folder(
    tmp_path_factory: pytest.TempPathFactory, members: list[Member], links: bool
) -> None:
    place = tmp_path_factory.mktemp("any")
    (place / "key").write_text("secret")
    (place / "key").chmod(0o600)
    for start in range(len(members)):  # also after a refused entry: the sender may try again
        try:
            unpack(place / "here/to", archive(*members[start:]), skip_link=None if links else lambda _name: None)
        except (RefusedEntryError, OSError):
            continue
        break
    beside = {name for name in tree(place) if not name.startswith("here/to/")}
    assert beside <= {"key", "here", "here/to"}
    assert (place / "key").read_text() == "secret" and (place / "key").stat().st_mode & 0o777 == 0o600
    root = (place / "here/to").resolve()
    inside = [path.resolve() for path in (place / "here/to").rglob("*") if path.is_symlink() and path.exists()]
    assert all(path.is_relative_to(root) for path in inside)


def test_links_that_are_left_out_are_named(tmp_path: Path) -> None:
    seen: list[str] = []
    unpack(tmp_path / "to", archive(("l", tarfile.SYMTYPE, "/etc"), ("f", tarfile.REGTYPE, "x")), skip_link=seen.append)
    assert (seen, list(tree(tmp_path / "to"))) == (["l"], ["f"])


def test_only_the_requested_name_is_accepted(tmp_path: Path) -> None:
    unpack(tmp_path / "to", archive(("out", tarfile.DIRTYPE, ""), ("out/f", tarfile.REGTYPE, "x")), top="out")
    with pytest.raises(RefusedEntryError, match="only 'out' was requested"):
        unpack(tmp_path / "to", archive((".bashrc", tarfile.REGTYPE, "x")), top="out")


def test_a_file_that_was_private_stays_private(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("mine")
    (tmp_path / "key").chmod(0o600)
    unpack(tmp_path, archive(("key", tarfile.REGTYPE, "new"), mode=0o644))
    assert (tmp_path / "key").read_text() == "new"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


def test_a_link_of_the_users_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "to").mkdir()
    (tmp_path / "to/f").symlink_to("../precious")
    unpack(tmp_path / "to", archive(("f", tarfile.REGTYPE, "new")))
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "to/f").read_text() == "new" and not (tmp_path / "to/f").is_symlink()


@pytest.mark.parametrize(
    ("limits", "members"),
    [
        (ReceivingLimits(entries=2), [(f"f{number}", tarfile.REGTYPE, "") for number in range(3)]),
        (ReceivingLimits(bytes=3), [("f", tarfile.REGTYPE, "four")]),
        (ReceivingLimits(depth=3), [("a/b/c/d", tarfile.REGTYPE, "")]),
        (ReceivingLimits(name_bytes=9), [("0123456789", tarfile.REGTYPE, "")]),
    ],
)
def test_count_size_depth_and_length_are_bounded(
    tmp_path: Path, limits: ReceivingLimits, members: list[Member]
) -> None:
    with pytest.raises(RefusedEntryError):
        unpack(tmp_path / "to", archive(*members), limits)
    assert not list((tmp_path / "to").rglob(".orch-*")), "no part of a file is left"


def with_size(raw: bytes, field: bytes) -> bytes:
    """Change the size in the first header."""
    header = bytearray(raw[:512])
    header[124:136] = field
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + raw[512:]


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: raw[:600],
        lambda raw: raw[:511],
        lambda raw: b"\xff" + raw[1:],
        lambda raw: with_size(raw, b"\x80" + b"\xff" * 11),
        lambda raw: with_size(raw, b"-0000000001\0"),
        lambda raw: with_size(raw, b"\xff" * 12),
        lambda raw: with_size(raw, b"77777777777\0"),
    ],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    whole = archive(("f", tarfile.REGTYPE, "x" * 1000)).getvalue()
    with pytest.raises((RefusedEntryError, OSError)):
        unpack(tmp_path / "to", io.BytesIO(change(whole)))
    assert tree(tmp_path / "to") == {}


def test_a_name_of_any_length_is_not_read_into_memory(tmp_path: Path) -> None:
    raw = bytearray(archive(("n" * 200, tarfile.REGTYPE, "x")).getvalue())
    with pytest.raises(RefusedEntryError, match="name that is too long"):
        unpack(tmp_path / "to", io.BytesIO(with_size(bytes(raw), b"70000000000\0")))


def test_long_and_odd_names_arrive(tmp_path: Path) -> None:
    names = ["n" * 200, "a/" * 60 + "x", "\udcff\udcfe", "new\nline", "-rf", "ü" * 80]
    unpack(tmp_path / "to", archive(*((name, tarfile.REGTYPE, "x") for name in names)))
    assert all((tmp_path / "to" / name).read_text() == "x" for name in names)
