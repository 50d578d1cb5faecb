"""Whether a token counts: also what it came from has to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from orchestrator.errors import AccessError

if TYPE_CHECKING:
    from orchestrator.store.session_records import SignInRecord
    from orchestrator.store.token_records import TokenRecord
    from orchestrator.store.trust_records import TrustRule

MOST_PARENTS = 5  # of a new token: a computer that was let in lets in another, which lets in another
_MOST_STEPS = MOST_PARENTS + 1  # with the token itself


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
    return _counts(entries, token, now, unknown=False)


def may_count_with_parents(entries: EntryLookup, token: TokenRecord, now: float) -> bool:
    """Whether a token counts or can count again. The arguments are those of `counts_with_parents`.

    A sign-in that was taken back counts again after an invitation. A token or rule never does.
    """
    return _counts(entries, token, now, unknown=True)


def refuse_long_chain(entries: EntryLookup, parent: str) -> None:
    """Refuse another token after too many that made each other: of such a chain no one sees who has the last one.

    Args:
        entries: An open store's, or all of them.
        parent: The subject of the row with which the new token would end; "" for none.

    Raises:
        AccessError: MOST_PARENTS are before it.
    """
    kind, _, key = parent.partition(" ")
    before = list_parents(entries, entries.find_token(key) if kind == "token" else None)
    if parent and 1 + len(before) > MOST_PARENTS:
        why = f"{MOST_PARENTS} tokens, rules or sign-ins made it, each the next one"
        raise AccessError("this token makes no other token", why, "make it with an earlier one: orch token")


def _counts(entries: EntryLookup, token: TokenRecord, now: float, *, unknown: bool) -> bool:
    """Whether a token counts; `unknown` where its sign-in was taken back, or only a newer orch knows its parent."""
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
            return sign_in is not None and (sign_in.revoked is None or unknown)
        if kind != "token":
            return unknown
        parent = entries.find_token(key)
        if parent is None:
            return False
        token = parent
    return False
