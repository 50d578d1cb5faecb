"""Changes of API tokens: made, and taken back."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import select

from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.store.change import EventDetails, insert_row, update_row
from orchestrator.store.ledger import Ledger
from orchestrator.store.schema import tokens
from orchestrator.store.token_records import TokenRecord, token_from_row


class TokenChanges(Ledger):
    """The changes of tokens."""

    def add_token(self, token: TokenRecord) -> None:
        """Record a token.

        Raises:
            ConflictError: One of this name counts already.
        """
        if any(one.name == token.name and one.counts_at(self._now()) for one in self.tokens()):
            raise ConflictError(
                f"there is a token called '{token.name}'", "a name is of one token", f"orch token revoke {token.name}"
            )
        what = f"token '{token.name}' for {token.member}, {token.role}"
        self.change(insert_row(tokens, asdict(token), _details(what)), at=token.created)

    def tokens(self) -> tuple[TokenRecord, ...]:
        """Return all tokens, oldest first."""
        return self._read_all(select(tokens).order_by(tokens.c.created, tokens.c.digest), token_from_row)

    def revoke_token(self, name: str) -> TokenRecord:
        """Take a token back. Raises NotFoundError when none of this name counts."""
        at = self._now()
        found = [one for one in self.tokens() if one.name == name and one.counts_at(at)]
        if not found:
            raise NotFoundError(f"no token called '{name}' counts", "", "orch token")
        self.change(
            update_row(tokens, {"digest": found[0].digest}, {"revoked": at}, _details(f"token '{name}' revoked")), at=at
        )
        return found[0]


def _details(what: str) -> EventDetails:
    return EventDetails(cluster="", kind="token", what=what)
