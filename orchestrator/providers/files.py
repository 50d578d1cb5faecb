"""Write a file so that a reader never sees half of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str, mode: int = 0o600, *, flush: bool = True) -> None:
    """Write by rename: a reader, or we after a crash, finds the old content or the new.

    With `flush` it waits for the disk, so that one of the two survives a power cut.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), mode)  # the umask may have taken bits away
        if flush:
            os.fsync(file.fileno())
    temporary.replace(path)
