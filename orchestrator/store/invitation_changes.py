"""Changes of invitations: made, used once, taken back."""

from __future__ import annotations

from dataclasses import asdict, replace

from sqlalchemy import select

from orchestrator.errors import AccessError, ConflictError
from orchestrator.store.change import EventDetails, Guard, RowChange, insert_row, update_row
from orchestrator.store.schema import invitations, tokens
from orchestrator.store.session_records import InvitationRecord, from_row
from orchestrator.store.token_changes import TokenChanges
from orchestrator.store.token_records import TokenRecord


class InvitationChanges(TokenChanges):
    """The changes of invitations."""

    def add_invitation(self, invitation: InvitationRecord) -> InvitationRecord:
        """Record an invitation, and return it; of the same one again what is on record.

        Raises:
            ConflictError: An open one has this name, or the link was another one's.
        """
        before = next((one for one in self.invitations() if one.digest == invitation.digest), None)
        if before is not None:
            if replace(before, created=invitation.created, expires=invitation.expires) == invitation:
                return before
            raise ConflictError("this invitation was made before", "as another one, or it has ended", "make another")
        if any(one.name == invitation.name and one.counts_at(self._now()) for one in self.invitations()):
            what = f"there is an invitation called '{invitation.name}'"
            raise ConflictError(what, "a name is of one invitation", f"orch token revoke {invitation.name}")
        about = f"invitation '{invitation.name}' for {invitation.member}, {invitation.role}"
        made = self.change(insert_row(invitations, asdict(invitation), _details(about)), at=invitation.created)
        return invitation if made == (True,) else self.add_invitation(invitation)  # the same request was quicker

    def invitations(self) -> tuple[InvitationRecord, ...]:
        """Return all invitations, oldest first."""
        query = select(invitations).order_by(invitations.c.created, invitations.c.digest)
        return self._read_all(query, lambda row: from_row(InvitationRecord, row))

    def choose_computer_name(self, name: str) -> str:
        """Return a name for the token of a computer, which no token and no open invitation has."""
        now = self._now()
        return self.choose_token_name(name, [one.name for one in self.invitations() if one.counts_at(now)])

    def accept_invitation(self, digest: str, token: str) -> TokenRecord:
        """Make an invitation a token, once, and return it.

        Args:
            digest: Of the invitation.
            token: Digest of the new token.

        Raises:
            AccessError: The invitation was used or revoked, has expired, or never was.
        """
        at = self._now()
        invited = {one.digest: one for one in self.invitations() if one.counts_at(at)}
        found = invited.pop(digest, None)
        if found is None:
            raise _used_error()
        name = self.choose_token_name(found.name, [one.name for one in invited.values()])
        made = TokenRecord(
            digest=token, name=name, member=found.member, role=found.role, created=at,
            expires=at + found.token_days * 86_400.0, project=found.project,
        )  # fmt: skip
        changes = (
            end_invitation(found, "used", at),
            insert_row(tokens, asdict(made), EventDetails(cluster="", kind="token", what=_describe(made))),
        )
        if self.change(*changes, at=at, guards=(guard_open_invitation(found),)) is None:
            raise _used_error()
        return made


def end_invitation(found: InvitationRecord, state: str, at: float) -> RowChange:
    """Return the change that ends an open invitation."""
    details = _details(f"invitation '{found.name}' {state}")
    return update_row(invitations, {"digest": found.digest}, {"state": state, "ended": at}, details)


def guard_open_invitation(found: InvitationRecord) -> Guard:
    """Return what must be true while an invitation ends."""
    return Guard(table=invitations, key={"digest": found.digest}, values={"state": "open"})


def _used_error() -> AccessError:
    why = "an invitation opens the service once, in its time"
    return AccessError("this invitation was used before, or is too old", why, "ask who sent it for another")


def _describe(token: TokenRecord) -> str:
    return f"token '{token.name}' for {token.member}, {token.role}"


def _details(what: str) -> EventDetails:
    return EventDetails(cluster="", kind="invitation", what=what)
