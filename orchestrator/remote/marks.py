"""Marks on a host: small files under ~/.orch/marks that record what it holds. Read and written in one round trip."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping

SETUP = "setup"

READ_MARKS_COMMAND = (
    'cd "$HOME/.orch/marks" 2>/dev/null || exit 0; '
    'for f in *; do [ -f "$f" ] && printf "%s\\t%s\\n" "$f" "$(cat "$f")"; done; exit 0'
)


def mark_name(label: str) -> str:
    """Return the file name of a label, which is free text."""
    return SETUP if label == SETUP else "t-" + hashlib.sha256(label.encode()).hexdigest()[:24]


def write_mark_command(label: str, digest: str) -> str:
    """Return the shell command that sets a mark atomically."""
    name = shlex.quote(mark_name(label))
    return (
        f'umask 077 && mkdir -p "$HOME/.orch/marks" && cd "$HOME/.orch/marks" && '
        f"printf %s {shlex.quote(digest)} > .{name}.$$ && mv .{name}.$$ {name}"
    )


def parse_marks(output: bytes) -> Mapping[str, str]:
    """Return the digests by file name that READ_MARKS_COMMAND printed."""
    lines = (line.split("\t", 1) for line in output.decode("utf-8", "replace").splitlines() if "\t" in line)
    return dict(lines)
