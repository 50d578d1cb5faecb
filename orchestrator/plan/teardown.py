"""What happens to the machines when the program has ended.

In a module of its own: the store's records need it, and commands that only read them need nothing else of `desired`.
"""

from __future__ import annotations

from enum import StrEnum


class TeardownPolicy(StrEnum):
    """What happens to the machines when the program has ended, with any result."""

    KEEP = "keep"
    DOWN = "down"
