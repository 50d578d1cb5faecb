"""Changes of API tokens: made here, taken back in sign_in_changes.py."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace

from orchestrator.errors import ConflictError
from orchestrator.store.change import EventDetails, RowChange, insert_row
from orchestrator.store.entry_rows import EntryRows
from orchestrator.store.schema import tokens
from orchestrator.store.token_records import TokenRecord


class TokenChanges(EntryRows):
    """The changes of tokens."""

    def add_token(self, token: TokenRecord) -> TokenRecord:
        """Record a token, and return it; of the same one again what is on record.

        Raises:
            ConflictError: One of this name counts already, or the token was another one's.
        """
        for _ in self._tries(f"the name '{token.name}'"):
            guard = self._guard_all()
            before = next((one for one in self.tokens() if one.digest == token.digest), None)
            if before is not None:
                if replace(before, created=token.created, expires=token.expires) == token:
                    return before
                raise ConflictError(
                    "this token was made before", "as another one, or it was taken back", "make another"
                )
            if any(one.name == token.name for one in self.counting_tokens()):
                raise ConflictError(
                    f"there is a token called '{token.name}'",
                    "a name is of one token",
                    f"orch token revoke {token.name}",
                )
            if self.change(insert_token(token), at=token.created, guards=(guard,)) is not None:
                return token
        raise AssertionError  # _tries ends with an error

    def choose_token_name(self, name: str, taken: Collection[str] = ()) -> str:
        """Return a name for a token: this one, or with a number where a token that counts has it, or `taken`."""
        used = {one.name for one in self.counting_tokens()}.union(taken)
        names = (name, *(f"{name}-{number}" for number in range(2, len(used) + 3)))
        return next(one for one in names if one not in used)


def insert_token(token: TokenRecord) -> RowChange:
    """Return the change that records a token."""
    what = f"token '{token.name}' for {token.member}, {token.role}"
    return insert_row(tokens, asdict(token), EventDetails(cluster="", kind="token", what=what))
