"""The records of API tokens: only the digest of a token is kept."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

from orchestrator.errors import UserError
from orchestrator.project import check_project
from orchestrator.store.records import Row

_NAME = re.compile(r"[\w.@+][\w.@+-]{0,59}")  # of any script
TOKEN_ROLES = ("viewer", "member", "owner")
RESERVED_MEMBERS = ("me",)  # `--owner me` is whoever asks
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
        project: Whose records it sees and changes; "" for every project.
        parent: The subject of the row with which it ends, such as `token DIGEST`; "" for none.
    """

    digest: str
    name: str
    member: str
    role: str
    created: float
    expires: float
    revoked: float | None = None
    project: str = ""
    parent: str = ""

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
    names = TokenRecord.__dataclass_fields__
    return TokenRecord(**{name: row[name] for name in names})


def check_entry_names(name: str, member: str, project: str = "", example: str = "--project NAME") -> None:
    """Refuse names that cannot be written in other commands, or look like others. Raises UserError."""
    for word, text in (("name", name), ("member", member)):
        if _NAME.fullmatch(text) is None:
            why = "it has 1 to 60 letters, digits and . _ @ + -, without blanks, and does not begin with a dash"
            raise UserError(f"`{text[:60]}` cannot be a {word}", why, f"{word}: ada-laptop")
    if member in RESERVED_MEMBERS:
        raise UserError(f"`{member}` cannot be a member", "`--owner me` is whoever asks", "member: ada")
    if project:
        check_project(project, example)
