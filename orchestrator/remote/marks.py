"""Marks on a host: small files in its folder `marks` that record what it holds. Read and written in one round trip."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from orchestrator.remote.scripts import shell_command

SETUP = "setup"


def read_marks_command() -> str:
    """Return the shell command that prints the marks of a host."""
    return shell_command("marks-read.sh")


def mark_name(label: str) -> str:
    """Return the file name of a label, which is free text."""
    return SETUP if label == SETUP else "t-" + hashlib.sha256(label.encode()).hexdigest()[:24]


def write_mark_command(label: str, digest: str) -> str:
    """Return the shell command that sets a mark atomically."""
    return shell_command("mark-write.sh", mark_name(label), digest)


def parse_marks(output: bytes) -> Mapping[str, str]:
    """Return the digests by file name that `read_marks_command` printed."""
    lines = (line.split("\t", 1) for line in output.decode("utf-8", "replace").splitlines() if "\t" in line)
    return dict(lines)
