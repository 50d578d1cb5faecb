"""The versions that a client and a service exchange in the header Orch-Version. Light: standard library only.

Rule of compatibility: a service answers every client from the version that its route names on, and servers are
upgraded first. So a client that is too old gets 426, and a client that is newer than the service learns which is older.
"""

from __future__ import annotations

import re

HEADER = "Orch-Version"
OLDEST_CLIENT = "0.2.0"  # the first one that called a service
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:[.+a-z-][A-Za-z0-9.+-]{0,40})?")
Version = tuple[int, int, int]


def parse_version(text: str | None) -> Version | None:
    """Return a version as numbers, without what follows them, such as `.dev1`; None for another text."""
    found = _VERSION.fullmatch(text or "")
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else None


def is_older(text: str | None, than: str) -> bool:
    """Whether a version that was sent is older than another one; a text that is no version is not."""
    found, other = parse_version(text), parse_version(than)
    return found is not None and other is not None and found < other
