"""Take back what lets members into the service."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from orchestrator.documents.entries import Entry, list_entries
from orchestrator.store.read import Reader
from orchestrator.store.sign_in_changes import EntryScope
from orchestrator.store.store import Store


def revoke_entries(
    open_reader: Callable[[], AbstractContextManager[Reader]],
    open_store: Callable[[], AbstractContextManager[Store]],
    *,
    name: str,
    member: str,
    now: float,
    seen: EntryScope,
    scope: EntryScope,
) -> list[Entry]:
    """Take back what has a name, or everything of a member, and return it.

    Args:
        open_reader: Opens the store for reading.
        open_store: Opens it for the change.
        name: The name; "" for everything of the member.
        member: The member; "" for a name.
        now: Epoch seconds.
        seen: The entries that exist for who asks.
        scope: Those that they may take back.

    Raises:
        OrchError: There is nothing of this name or member, or who asks may not take it back.
    """

    def list_named() -> list[Entry]:
        with open_reader() as reader:
            found = [one for one in list_entries(reader, now) if seen.has(one.member, one.project)]
        return [one for one in found if name in ("", one.name) and member in ("", one.member)]

    before = [one for one in list_named() if one.counts_at(now)]
    with open_store() as store:
        if name:
            store.revoke_entry(name, scope)
        else:
            store.revoke_member(member, scope)
    return [one for one in list_named() if replace(one, revoked=None) in before]
