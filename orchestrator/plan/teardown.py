"""What happens to the machines when the program has ended.

Apart from `desired`, because commands that only read the store's records need nothing else of that.
"""

from __future__ import annotations

from enum import StrEnum


class TeardownPolicy(StrEnum):
    """What happens to the machines when the program has ended, with any result."""

    KEEP = "keep"
    DOWN = "down"
