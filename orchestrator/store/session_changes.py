"""Changes of sessions and of secrets that work once: begun, used, ended."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, select, update

from orchestrator.store.batches import insert_or_nothing
from orchestrator.store.change import EventDetails, Guard, insert_row, update_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import entry_codes, sessions
from orchestrator.store.session_records import EntryCode, SessionRecord, from_row


class SessionChanges(Ledger):
    """The changes of sessions."""

    def begin_session(self, session: SessionRecord) -> None:
        """Record a session."""
        how = "an identity provider" if session.identity else "a token"
        details = _details(f"{session.member} signed in by {how}")
        self.change(insert_row(sessions, asdict(session), details), at=session.begun)

    def note_session_use(self, digest: str) -> None:
        """Record that a session was used now. This is no event."""
        self._database.write(update(sessions).where(sessions.c.digest == digest).values(used=self._now()))

    def end_session(self, digest: str) -> None:
        """End a session; one that does not exist, or has ended, is left as it is."""
        found = self.find_session(digest)
        if found is None or found.ended is not None:
            return
        at = self._now()
        change = update_row(sessions, {"digest": digest}, {"ended": at}, _details(f"{found.member} signed out"))
        self.change(change, at=at, guards=(Guard(table=sessions, key={"digest": digest}, values={"ended": None}),))

    def find_session(self, digest: str) -> SessionRecord | None:
        """Return the session of a digest, or None."""
        query = select(sessions).where(sessions.c.digest == digest)
        return self._read_first(query, lambda row: from_row(SessionRecord, row))

    def keep_entry_code(self, code: EntryCode) -> None:
        """Keep a secret that works once, and forget those whose time is over."""
        with self._database.writing() as tx:
            tx.execute(delete(entry_codes).where(entry_codes.c.until < self._now()))
            tx.execute(insert_or_nothing(tx, entry_codes, asdict(code)))
            tx.commit()

    def take_entry_code(self, digest: str, kind: str) -> EntryCode | None:
        """Return a secret's record, and forget it; None for one that was used, is too old, or never was."""
        which = (entry_codes.c.digest == digest) & (entry_codes.c.kind == kind)
        with self._database.writing() as tx:
            row = tx.execute(delete(entry_codes).where(which).returning(*entry_codes.c)).mappings().first()
            found = None if row is None else from_row(EntryCode, row)
            tx.commit()
        return found if found is not None and self._now() <= found.until else None


def _details(what: str) -> EventDetails:
    return EventDetails(cluster="", kind="session", what=what)
