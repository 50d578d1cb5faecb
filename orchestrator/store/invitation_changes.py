"""Changes of invitations: made, used once, taken back."""

from __future__ import annotations

from dataclasses import asdict, replace

from orchestrator.errors import AccessError, ConflictError
from orchestrator.store.change import EventDetails, Guard, RowChange, insert_row, update_row
from orchestrator.store.schema import invitations
from orchestrator.store.session_records import InvitationRecord
from orchestrator.store.token_changes import TokenChanges, insert_token
from orchestrator.store.token_records import TokenRecord


class InvitationChanges(TokenChanges):
    """The changes of invitations."""

    def add_invitation(self, invitation: InvitationRecord) -> InvitationRecord:
        """Record an invitation, and return it; of the same one again what is on record.

        Raises:
            ConflictError: An open one has this name, or the link was another one's.
        """
        about = f"invitation '{invitation.name}' for {invitation.member}, {invitation.role}"
        for at in self._tries(f"the name '{invitation.name}'"):
            guard = self._guard_all()
            known = self.invitations()
            before = next((one for one in known if one.digest == invitation.digest), None)
            if before is not None:
                if replace(before, created=invitation.created, expires=invitation.expires) == invitation:
                    return before
                why = "as another one, or it has ended"
                raise ConflictError("this invitation was made before", why, "make another")
            if any(one.name == invitation.name and one.counts_at(at) for one in known):
                what = f"there is an invitation called '{invitation.name}'"
                raise ConflictError(what, "a name is of one invitation", f"orch token revoke {invitation.name}")
            change = insert_row(invitations, asdict(invitation), _details(about))
            if self.change(change, at=invitation.created, guards=(guard,)) is not None:
                return invitation
        raise AssertionError  # _tries ends with an error

    def add_computer_token(self, token: TokenRecord) -> TokenRecord:
        """Record the token of a computer under a name that no token and no open invitation has, and return it."""
        for at in self._tries(f"the name '{token.name}'"):
            guard = self._guard_all()
            invited = [one.name for one in self.invitations() if one.counts_at(at)]
            made = replace(token, name=self.choose_token_name(token.name, invited))
            if self.change(insert_token(made), at=token.created, guards=(guard,)) is not None:
                return made
        raise AssertionError  # _tries ends with an error

    def accept_invitation(self, digest: str, token: str) -> TokenRecord:
        """Make an invitation a token, once, and return it.

        Args:
            digest: Of the invitation.
            token: Digest of the new token.

        Raises:
            AccessError: The invitation was used or revoked, has expired, or never was.
        """
        for at in self._tries("this invitation"):
            guard = self._guard_all()
            invited = {one.digest: one for one in self.invitations() if one.counts_at(at)}
            found = invited.pop(digest, None)
            if found is None:
                why = "an invitation opens the service once, in its time"
                raise AccessError("this invitation was used before, or is too old", why, "ask who sent it for another")
            made = TokenRecord(
                digest=token, name=self.choose_token_name(found.name, [one.name for one in invited.values()]),
                member=found.member, role=found.role, created=at, expires=at + found.token_days * 86_400.0,
                project=found.project,
            )  # fmt: skip
            if self.change(end_invitation(found, "used", at), insert_token(made), at=at, guards=(guard,)) is not None:
                return made
        raise AssertionError  # _tries ends with an error


def end_invitation(found: InvitationRecord, state: str, at: float) -> RowChange:
    """Return the change that ends an open invitation."""
    details = _details(f"invitation '{found.name}' {state}")
    return update_row(invitations, {"digest": found.digest}, {"state": state, "ended": at}, details)


def guard_open_invitation(found: InvitationRecord) -> Guard:
    """Return what must be true while an invitation ends."""
    return Guard(table=invitations, key={"digest": found.digest}, values={"state": "open"})


def _details(what: str) -> EventDetails:
    return EventDetails(cluster="", kind="invitation", what=what)
