"""The records of how people enter the service: sessions, invitations, sign-ins by a provider, waiting computers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from orchestrator.store.records import Row

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A browser's session.

    Attributes:
        digest: SHA-256 of its cookie, which has 256 random bits.
        member: Whose it is.
        role: What an identity provider's sign-in allows; "" for a session that has the role of its token.
        token: Digest of the token that opened it; "" for none. The session ends with that token.
        identity: The sign-in that opened it; "" for none. The session ends when that is revoked.
        begun: In epoch seconds.
        used: When it was last used, at most ten minutes ago: not written at every request.
        ended: When its member signed out; None for one that ends by itself.
    """

    digest: str
    member: str
    begun: float
    used: float
    role: str = ""
    token: str = ""
    identity: str = ""
    ended: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InvitationRecord:
    """An invitation: whoever opens its link first gets a token.

    Attributes:
        digest: SHA-256 of its secret.
        name: Of the token that it becomes.
        token_days: How long that token counts.
        expires: Of the invitation, in epoch seconds.
        state: "open", "used" or "revoked".
        ended: When it was used or revoked.
        project: Of that token; "" for every project.
    """

    digest: str
    name: str
    member: str
    role: str
    token_days: int
    created: float
    expires: float
    state: str = "open"
    ended: float | None = None
    project: str = ""

    def counts_at(self, now: float) -> bool:
        """Whether it opens anything at this time."""
        return self.state == "open" and now < self.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInRecord:
    """Which member a person of an identity provider is.

    Attributes:
        identity: See `digest_identity`.
        issuer: The address of the provider.
        subject: Its unchanging id of the person. An e-mail address is none: it can pass to another person.
        member: The name in this service, unique among sign-ins.
        revoked: When an owner took it back; None for one that counts.
    """

    identity: str
    issuer: str
    subject: str
    member: str
    created: float
    revoked: float | None = None

    @property
    def name(self) -> str:
        """The name in lists, such as ada@login.example.org."""
        return f"{self.member}@{urlsplit(self.issuer).netloc}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCode:
    """A secret that works once, within minutes.

    Attributes:
        digest: SHA-256 of the secret.
        kind: "link" opens a session of a token; "identity" is a person of a provider who has no name here yet; "spent"
            is a token of an issuer that was exchanged, and opens nothing.
        details: JSON: what it opens.
        until: In epoch seconds.
    """

    digest: str
    kind: str
    details: str
    until: float


def digest_identity(issuer: str, subject: str) -> str:
    """Return the key of a person of an identity provider."""
    return hashlib.sha256(f"{issuer}\0{subject}".encode()).hexdigest()


def from_row(kind: type[_R], row: Row) -> _R:
    """Return a row as a record whose fields are named as the columns."""
    names = (one.name for one in fields(cast(Any, kind)))
    return kind(**{name: row[name] for name in names})
