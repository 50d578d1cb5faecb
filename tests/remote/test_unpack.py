"""An archive from elsewhere stays in its folder, with tarfile's own filter and without it (Python before 3.11.4)."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from orchestrator.remote.unpack import unpack_archive


def archive(*members: tuple[str, bytes, str]) -> tarfile.TarFile:
    """name, type, link target or content."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as writer:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o6777
            if kind == tarfile.REGTYPE:
                info.size = len(text)
                writer.addfile(info, io.BytesIO(text.encode()))
            else:
                info.linkname = text
                writer.addfile(info)
    raw.seek(0)
    return tarfile.open(fileobj=raw, mode="r|")


@pytest.fixture(params=["filter", "ours"], autouse=True)
def old_and_new(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "ours":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no such filter")


def test_files_folders_and_links_inside_are_unpacked(tmp_path: Path) -> None:
    members = archive(("d", tarfile.DIRTYPE, ""), ("d/f", tarfile.REGTYPE, "x"), ("d/l", tarfile.SYMTYPE, "f"))
    unpack_archive(members, tmp_path / "to")
    assert (tmp_path / "to" / "d" / "l").read_text() == "x"
    assert (tmp_path / "to" / "d" / "f").stat().st_mode & 0o6022 == 0


@pytest.mark.parametrize(
    "members",
    [
        [("../out", tarfile.REGTYPE, "x")],
        [("l", tarfile.SYMTYPE, "../.."), ("l/out", tarfile.REGTYPE, "x")],
        [("l", tarfile.SYMTYPE, "/etc/passwd")],
        [("l", tarfile.LNKTYPE, "../out")],
        [("p", tarfile.FIFOTYPE, "")],
    ],
)
def test_what_would_leave_the_folder_or_is_no_file_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes, str]]
) -> None:
    with pytest.raises(tarfile.TarError):
        unpack_archive(archive(*members), tmp_path / "a" / "to")
    assert not (tmp_path / "a" / "out").exists()
    assert not (tmp_path / "out").exists()
