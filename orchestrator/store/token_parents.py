"""Whether a token counts: also what it came from has to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from orchestrator.store.session_records import SignInRecord
    from orchestrator.store.token_records import TokenRecord
    from orchestrator.store.trust_records import TrustRule

_MOST_STEPS = 20  # a computer that was let in lets in another, which lets in another


class EntryLookup(Protocol):
    """Finds one of what lets members in."""

    def find_token(self, digest: str) -> TokenRecord | None: ...
    def find_trust_rule(self, uid: str) -> TrustRule | None: ...
    def find_sign_in(self, identity: str) -> SignInRecord | None: ...


class EntryLists(Protocol):
    """Lists what lets members in: an open store, or a reader."""

    def tokens(self) -> tuple[TokenRecord, ...]: ...
    def trust_rules(self) -> tuple[TrustRule, ...]: ...
    def sign_ins(self) -> tuple[SignInRecord, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEntries:
    """Everything that lets members in, read together; implements EntryLookup."""

    tokens: Mapping[str, TokenRecord]
    rules: Mapping[str, TrustRule]
    sign_ins: Mapping[str, SignInRecord]

    @classmethod
    def read(cls, store: EntryLists) -> Self:
        """Read a store."""
        return cls(
            tokens={one.digest: one for one in store.tokens()},
            rules={one.uid: one for one in store.trust_rules()},
            sign_ins={one.identity: one for one in store.sign_ins()},
        )

    def find_token(self, digest: str) -> TokenRecord | None:
        """Return the token of a digest, or None."""
        return self.tokens.get(digest)

    def find_trust_rule(self, uid: str) -> TrustRule | None:
        """Return one trust rule, or None."""
        return self.rules.get(uid)

    def find_sign_in(self, identity: str) -> SignInRecord | None:
        """Return the sign-in of a person of an identity provider, or None."""
        return self.sign_ins.get(identity)


def list_parents(entries: EntryLookup, token: TokenRecord | None) -> tuple[str, ...]:
    """Return the subjects of the rows with which a token ends, the nearest first; () for none."""
    found: list[str] = []
    while token is not None and token.parent and len(found) < _MOST_STEPS:
        found.append(token.parent)
        kind, _, key = token.parent.partition(" ")
        token = entries.find_token(key) if kind == "token" else None
    return tuple(found)


def counts_with_parents(entries: EntryLookup, token: TokenRecord, now: float) -> bool:
    """Whether a token opens anything, and the rule, sign-in or token with which it ends still counts.

    Args:
        entries: An open store's, or all of them.
        token: The token.
        now: Epoch seconds.
    """
    for _ in range(_MOST_STEPS):
        if not token.counts_at(now):
            return False
        kind, _, key = token.parent.partition(" ")
        if not kind:
            return True
        if kind == "trust_rule":
            rule = entries.find_trust_rule(key)
            return rule is not None and rule.counts_at(now)
        if kind == "sign_in":
            sign_in = entries.find_sign_in(key)
            return sign_in is not None and sign_in.revoked is None
        parent = entries.find_token(key) if kind == "token" else None  # another kind is of a newer orch
        if parent is None:
            return False
        token = parent
    return False
