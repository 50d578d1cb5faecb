"""When the answer of `ssh -G` may have changed: the files of a person's SSH configuration, with those they include."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

_SYSTEM = Path("/etc/ssh/ssh_config")
_DEEPEST = 16  # READCONF_MAX_DEPTH of OpenSSH (readconf.c, 9.9)
_INCLUDE = re.compile(r"^[ \t]*include[ \t=]+(.*)$", re.IGNORECASE | re.MULTILINE)
_HOST = re.compile(r"^[ \t]*host[ \t=]+([^#\n]*)", re.IGNORECASE | re.MULTILINE)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,253}")  # neither a pattern, nor quoted
_CHANGING = re.compile(
    r"^[ \t]*(?:match\b.*\b(?:exec|localnetwork)\b|canonicalizehostname\b)", re.IGNORECASE | re.MULTILINE
)


def config_stamp(user: Path) -> str:
    """Return a text that changes when the configuration may have changed; `user` is the person's own file.

    Where it depends on programs, networks or names, every process gets another text.
    """
    files = dict[Path, str]()
    for file in (user, _SYSTEM):
        _add_files(files, file, file.parent, 0)
    changing = any(_CHANGING.search(text) for text in files.values())
    stamps = [f"{file} {_stamp(file)}" for file in files] + [str(os.getpid()) if changing else ""]
    return hashlib.sha256("\n".join(stamps).encode("utf-8", "surrogateescape")).hexdigest()


def list_host_names(user: Path) -> tuple[str, ...]:
    """Return the names that `Host` lines of a person's own file and those that it includes give to one machine each."""
    files = dict[Path, str]()
    _add_files(files, user, user.parent, 0)
    words = [word for text in files.values() for found in _HOST.finditer(text) for word in found[1].split()]
    return tuple(dict.fromkeys(word for word in words if _PLAIN_NAME.fullmatch(word)))


def _add_files(files: dict[Path, str], file: Path, folder: Path, depth: int) -> None:
    if file in files or depth > _DEEPEST:
        return
    files[file] = text = _read(file)
    for included in _included(text, folder):
        _add_files(files, included, folder, depth + 1)


def _included(text: str, folder: Path) -> Iterator[Path]:
    """Yield the files of every Include, whether its Host or Match applies or not."""
    for found in _INCLUDE.finditer(text):
        with contextlib.suppress(ValueError, OSError):  # ssh reports what is no pattern
            for pattern in shlex.split(found[1], comments=True):
                written = os.path.expandvars(pattern)
                written = str(Path.home()) + written[1:] if written.startswith("~/") else written
                yield from sorted(Path("/").glob(str(folder / written).removeprefix("/")))


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8", errors="replace") if file.is_file() else ""
    except OSError:
        return ""


def _stamp(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:
        return "-"
    return f"{found.st_mtime_ns}.{found.st_size}"
