"""For which member something is done: the service acts for the member who asked, and not for who started it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

# Belongs to one request or order: a thread pool copies it, and another thread does not see it.
_MEMBER: ContextVar[str] = ContextVar("member", default="")


def find_acting_member() -> str:
    """Return the member for whom this context acts; "" for who runs the process."""
    return _MEMBER.get()


@contextmanager
def acting_as(member: str) -> Generator[None]:
    """Act for a member until the end of the block."""
    token = _MEMBER.set(member)
    try:
        yield
    finally:
        _MEMBER.reset(token)
