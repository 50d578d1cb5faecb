"""What lets members into the service: tokens, invitations, sign-ins of an identity provider, rules for CI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.formatting import format_utc
from orchestrator.store.token_parents import KnownEntries, counts_with_parents

if TYPE_CHECKING:
    from orchestrator.store.read import Reader
    from orchestrator.store.session_records import InvitationRecord, SignInRecord
    from orchestrator.store.token_records import TokenRecord
    from orchestrator.store.trust_records import TrustRule


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What lets a member in. role: None where the identity provider says it at each sign-in."""

    kind: str
    name: str
    member: str
    role: str | None
    created: float
    project: str = ""
    issuer: str | None = None
    claims: Mapping[str, str] | None = None
    expires: float | None = None
    revoked: float | None = None
    used: float | None = None
    is_open: bool = True  # False where what it ends with does not count any more

    def counts_at(self, now: float) -> bool:
        """Whether it lets anyone in at this time."""
        return self.is_open and self.revoked is self.used is None and (self.expires is None or now < self.expires)

    def to_json(self, now: float) -> dict[str, object]:
        """Return it as documents have it."""
        times = {"created": self.created, "expires": self.expires, "revoked": self.revoked, "used": self.used}
        shown = {name: None if at is None else format_utc(at) for name, at in times.items()}
        about: dict[str, object] = {"kind": self.kind, "name": self.name, "member": self.member, "role": self.role}
        about |= {"project": self.project or None, "issuer": self.issuer}
        about["claims"] = dict(self.claims) if self.claims is not None else None
        return about | shown | {"counts": self.counts_at(now)}


def read_entries(store: Reader, now: float) -> dict[str, Any]:
    """Return the document of data/tokens.schema.json for everything that lets someone in, or did."""
    return entries_as_json(list_entries(store, now), now)


def list_entries(store: Reader, now: float) -> tuple[Entry, ...]:
    """Return everything that lets someone in, or did; of the tokens that a rule has given only those that count."""
    known = KnownEntries.read(store)
    found = [
        replace(entry_of_token(one), is_open=counts or not one.counts_at(now))
        for one in known.tokens.values()
        for counts in [counts_with_parents(known, one, now)]
        if counts or not one.parent.startswith("trust_rule ")
    ]
    found += [*map(entry_of_invitation, store.invitations())]
    return (*found, *map(_of_sign_in, store.sign_ins()), *map(_of_rule, store.trust_rules()))


def entries_as_json(entries: Iterable[Entry], now: float) -> dict[str, Any]:
    """Return the document of entries."""
    return {"version": 1, "kind": "tokens", "now": format_utc(now), "tokens": [one.to_json(now) for one in entries]}


def entry_of_token(one: TokenRecord) -> Entry:
    """Return a token as an entry."""
    return Entry(
        kind="token", name=one.name, member=one.member, role=one.role, created=one.created, expires=one.expires,
        revoked=one.revoked, project=one.project,
    )  # fmt: skip


def entry_of_invitation(one: InvitationRecord) -> Entry:
    """Return an invitation as an entry."""
    return Entry(
        kind="invitation", name=one.name, member=one.member, role=one.role, created=one.created, expires=one.expires,
        revoked=one.ended if one.state == "revoked" else None, used=one.ended if one.state == "used" else None,
        project=one.project,
    )  # fmt: skip


def _of_sign_in(one: SignInRecord) -> Entry:
    kind = "sign-in"
    return Entry(kind=kind, name=one.name, member=one.member, role=None, created=one.created, revoked=one.revoked)


def _of_rule(one: TrustRule) -> Entry:
    return Entry(
        kind="rule", name=one.name, member=one.member, role=one.role, created=one.created, expires=one.expires,
        revoked=one.revoked, project=one.project, issuer=one.issuer, claims=one.claims,
    )  # fmt: skip
