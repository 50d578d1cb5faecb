"""Changes of sign-ins: which member a person of an identity provider is, bound once, and taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import select

from orchestrator.errors import AccessError, ConflictError, NotFoundError
from orchestrator.store.change import EventDetails, Guard, RowChange, insert_row, update_row
from orchestrator.store.invitation_changes import InvitationChanges, end_invitation, guard_open_invitation
from orchestrator.store.schema import clusters, invitations, sign_ins, tokens, trust_rules
from orchestrator.store.session_records import InvitationRecord, SignInRecord
from orchestrator.store.token_records import TOKEN_ROLES, TokenRecord
from orchestrator.store.trust_changes import TrustChanges, revoke_rule
from orchestrator.store.trust_records import TrustRule


class SignInChanges(InvitationChanges, TrustChanges):
    """The changes of sign-ins, and those that concern everything with which a member enters."""

    def bind_sign_in(self, record: SignInRecord, *, proven: bool) -> None:
        """Record which member a person of an identity provider is.

        Args:
            record: The person and the name that they chose.
            proven: Whether a session of that member proves that the name is theirs: then it may be in use, and
                replaces an earlier sign-in of the member.

        Raises:
            ConflictError: The name is another member's, or the person has one already.
        """
        for _ in self._tries(f"the name '{record.member}'"):
            guard = self._guard_all()
            changes = self._plan_sign_in(record, proven=proven)
            if self.change(*changes, at=record.created, guards=(guard,)) is not None:
                return

    def _plan_sign_in(self, record: SignInRecord, *, proven: bool) -> tuple[RowChange, ...]:
        known = self.sign_ins()
        before = next((one for one in known if one.member == record.member), None)
        if before is not None and before.identity != record.identity and not (proven and before.revoked is not None):
            raise _taken_error(record.member)
        if not proven and record.member in self.member_names():
            raise _taken_error(record.member)
        details = _details(f"{record.member} signs in by {record.issuer}")
        if before is not None and before.identity == record.identity:
            return (update_row(sign_ins, {"identity": record.identity}, {"revoked": None}, details),)
        if any(one.identity == record.identity for one in known):
            raise _taken_error(record.member)
        added = insert_row(sign_ins, asdict(record), details)
        if before is None:
            return (added,)
        retired = {"member": f"{before.member} (until {before.revoked:.0f})"}  # its name passes to the new one
        return (update_row(sign_ins, {"identity": before.identity}, retired, details), added)

    def member_names(self) -> frozenset[str]:
        """Return every name that a member has or had: no one else may choose it."""
        columns = (tokens.c.member, invitations.c.member, sign_ins.c.member, trust_rules.c.member, clusters.c.owner)
        names = (
            self._read_all(select(column).distinct(), lambda row: str(next(iter(row.values())))) for column in columns
        )
        return frozenset(name for some in names for name in some) | {self.user}

    def revoke_entry(self, name: str, scope: EntryScope | None = None) -> str:
        """Take back the token, rule, invitation and sign-in of a name; return what they were.

        Args:
            name: Theirs.
            scope: Which are taken back; None for all. The others do not exist for who asks.

        Raises:
            NotFoundError: None of this name counts.
            AccessError: One of them is above who asks.
        """
        for at in self._tries(f"'{name}'"):
            found = [one for one in self._list_entries(at, scope) if one.name == name]
            if not found:
                raise NotFoundError(f"no token, rule, invitation or sign-in called '{name}' counts", "", "orch token")
            _refuse_above(found, scope)
            guards = tuple(one.guard for one in found)
            if self.change(*(one.change for one in found), at=at, guards=guards) is not None:
                return " and ".join(one.what for one in found)
        raise AssertionError  # _tries ends with an error

    def revoke_member(self, member: str, scope: EntryScope | None = None) -> int:
        """Take back everything with which a member enters; return how much it was.

        Raises:
            NotFoundError: There is nothing.
            AccessError: Some of it is above who asks.
        """
        for at in self._tries(f"what lets {member} in"):
            found = [one for one in self._list_entries(at, scope) if one.member == member]
            if not found:
                raise NotFoundError(f"nothing lets '{member}' in", "", "orch token")
            _refuse_above(found, scope)
            guards = tuple(one.guard for one in found)
            if self.change(*(one.change for one in found), at=at, guards=guards) is not None:
                return len(found)
        raise AssertionError  # _tries ends with an error

    def _list_entries(self, at: float, scope: EntryScope | None) -> list[_Entry]:
        """Return everything that lets someone in now, within a scope."""
        of_tokens = [_of_token(one, at) for one in self.counting_tokens()]
        of_rules = [_of_rule(one, at) for one in self.trust_rules() if one.counts_at(at)]
        of_invitations = [_of_invitation(one, at) for one in self.invitations() if one.counts_at(at)]
        of_sign_ins = [_of_sign_in(one, at) for one in self.sign_ins() if one.revoked is None]
        found = of_tokens + of_rules + of_invitations + of_sign_ins
        return [one for one in found if scope is None or scope.has(one.member, one.project)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryScope:
    """Which tokens, rules, invitations and sign-ins someone may see and take back.

    Attributes:
        member: Only what lets this member in; "" for every member.
        project: Only what is for this project alone; "" for everything.
        role: What has a higher one is not taken back.
        parents: The subjects of what is not taken back, either: who asks ends with it.
    """

    member: str = ""
    project: str = ""
    role: str = "owner"
    parents: tuple[str, ...] = ()

    def has(self, member: str, project: str) -> bool:
        """Whether what lets a member into a project is within the scope."""
        return self.member in ("", member) and self.project in ("", project)

    def is_above(self, role: str, subject: str) -> bool:
        """Whether who asks may see something, and not take it back."""
        return TOKEN_ROLES.index(role) > TOKEN_ROLES.index(self.role) or subject in self.parents


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """What lets a member in, and how it is taken back while it still counts."""

    name: str
    member: str
    project: str
    role: str
    subject: str
    what: str
    change: RowChange
    guard: Guard


def _refuse_above(found: Sequence[_Entry], scope: EntryScope | None) -> None:
    above = next((one for one in found if scope is not None and scope.is_above(one.role, one.subject)), None)
    if above is not None:
        why = "it has a higher role than your token, or your token ends with it"
        raise AccessError(f"{above.what} is not taken back by your token", why, "ask an owner, or use that one")


def _of_token(one: TokenRecord, at: float) -> _Entry:
    key, what = {"digest": one.digest}, f"token '{one.name}' of {one.member}"
    details = EventDetails(cluster="", kind="token", what=f"token '{one.name}' revoked")
    change = update_row(tokens, key, {"revoked": at}, details)
    guard = Guard(table=tokens, key=key, values={"revoked": None})
    return _Entry(
        name=one.name, member=one.member, project=one.project, role=one.role, subject=f"token {one.digest}", what=what,
        change=change, guard=guard,
    )  # fmt: skip


def _of_rule(one: TrustRule, at: float) -> _Entry:
    change, guard = revoke_rule(one, at)
    what = f"rule '{one.name}' of {one.member}"
    return _Entry(
        name=one.name, member=one.member, project=one.project, role=one.role, subject=one.subject, what=what,
        change=change, guard=guard,
    )  # fmt: skip


def _of_invitation(one: InvitationRecord, at: float) -> _Entry:
    what = f"invitation '{one.name}' of {one.member}"
    change, guard = end_invitation(one, "revoked", at), guard_open_invitation(one)
    return _Entry(
        name=one.name, member=one.member, project=one.project, role=one.role, subject=f"invitation {one.digest}",
        what=what, change=change, guard=guard,
    )  # fmt: skip


def _of_sign_in(one: SignInRecord, at: float) -> _Entry:
    key, what = {"identity": one.identity}, f"the sign-in of {one.member}"
    change = update_row(sign_ins, key, {"revoked": at}, _details(f"{what} by {one.issuer} revoked"))
    guard = Guard(table=sign_ins, key=key, values={"revoked": None})
    return _Entry(
        name=one.name, member=one.member, project="", role="owner",  # the provider says it at each sign-in
        subject=f"sign_in {one.identity}", what=what, change=change, guard=guard,
    )  # fmt: skip


def _taken_error(member: str) -> ConflictError:
    why = "if it is yours: open an invitation of the service's owner first, then sign in again"
    return ConflictError(f"the name '{member}' is taken", why, "choose another name")


def _details(what: str) -> EventDetails:
    return EventDetails(cluster="", kind="sign-in", what=what)
