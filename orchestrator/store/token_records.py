"""The records of API tokens: only the digest of a token is kept."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from orchestrator.store.records import Row

TOKEN_ROLES = ("viewer", "member", "owner")
_PREFIX = "orch_"  # how tokens begin, so that scanners of secrets find them


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """A token with which a member, or a program of theirs, calls the service.

    Attributes:
        digest: SHA-256 of the token, which has 256 random bits.
        name: What it is for.
        member: For whom it acts.
        role: One of TOKEN_ROLES.
        expires: In epoch seconds.
        revoked: When it was taken back; None for a token that counts until it expires.
    """

    digest: str
    name: str
    member: str
    role: str
    created: float
    expires: float
    revoked: float | None = None

    def counts_at(self, now: float) -> bool:
        """Whether the token opens anything at this time."""
        return self.revoked is None and now < self.expires


def make_token() -> str:
    """Return a new token."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest_token(token: str) -> str:
    """Return the digest under which a token is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_from_row(row: Row) -> TokenRecord:
    """Return a row of `tokens`, whose columns are named as the fields."""
    return TokenRecord(**{name: row[name] for name in TokenRecord.__dataclass_fields__})
