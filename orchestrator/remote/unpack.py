"""Unpacking of an untrusted archive: nothing may be written outside the folder.

tarfile's "data" filter does this since Python 3.11.4; before that (Debian 12 has 3.11.2) it is done here.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path


def unpack_archive(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack into `folder`. Raises tarfile.TarError for paths and links that leave it, and for devices and pipes."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder, members=_harmless(archive, folder.resolve()))  # noqa: S202  # _harmless checks every member


def _harmless(archive: tarfile.TarFile, folder: Path) -> Iterator[tarfile.TarInfo]:
    """Yield each checked member in order, so that links unpacked before it are followed."""
    for member in archive:
        place = folder / member.name
        if member.name.startswith("/") or not place.resolve().is_relative_to(folder):
            raise tarfile.ExtractError(f"{member.name!r} would leave the folder")
        if member.issym() or member.islnk():
            base = place.parent if member.issym() else folder
            if member.linkname.startswith("/") or not (base / member.linkname).resolve().is_relative_to(folder):
                raise tarfile.ExtractError(f"{member.name!r} is a link that leaves the folder")
        elif not (member.isreg() or member.isdir()):
            raise tarfile.ExtractError(f"{member.name!r} is neither a file nor a folder")
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        member.mode = (member.mode & 0o755) | (0o700 if member.isdir() else 0o600)
        yield member
