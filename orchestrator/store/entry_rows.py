"""What lets members in, as an open store reads it: tokens, trust rules, invitations and sign-ins."""

from __future__ import annotations

from sqlalchemy import select

from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import invitations, sign_ins, tokens, trust_rules
from orchestrator.store.session_records import InvitationRecord, SignInRecord, from_row
from orchestrator.store.token_parents import KnownEntries, may_count_with_parents
from orchestrator.store.token_records import TokenRecord, token_from_row
from orchestrator.store.trust_records import TrustRule, trust_rule_from_row


class EntryRows(Ledger):
    """Reads the rows. The classes that change them build on it."""

    def tokens(self) -> tuple[TokenRecord, ...]:
        """Return all tokens, oldest first."""
        return self._read_all(select(tokens).order_by(tokens.c.created, tokens.c.digest), token_from_row)

    def counting_tokens(self) -> tuple[TokenRecord, ...]:
        """Return the tokens that have not ended for good, by themselves or with a parent, oldest first."""
        now = self._now()
        counts = tokens.c.revoked.is_(None) & (tokens.c.expires > now)
        query = select(tokens).where(counts).order_by(tokens.c.created, tokens.c.digest)
        found, known = self._read_all(query, token_from_row), KnownEntries.read(self)
        return tuple(one for one in found if may_count_with_parents(known, one, now))

    def trust_rules(self) -> tuple[TrustRule, ...]:
        """Return all trust rules, oldest first."""
        query = select(trust_rules).order_by(trust_rules.c.created, trust_rules.c.uid)
        return self._read_all(query, trust_rule_from_row)

    def invitations(self) -> tuple[InvitationRecord, ...]:
        """Return all invitations, oldest first."""
        query = select(invitations).order_by(invitations.c.created, invitations.c.digest)
        return self._read_all(query, lambda row: from_row(InvitationRecord, row))

    def sign_ins(self) -> tuple[SignInRecord, ...]:
        """Return all sign-ins, by member."""
        query = select(sign_ins).order_by(sign_ins.c.member)
        return self._read_all(query, lambda row: from_row(SignInRecord, row))
