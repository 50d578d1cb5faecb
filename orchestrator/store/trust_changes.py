"""Changes of trust rules, and the tokens that they give."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete

from orchestrator.errors import AccessError, ConflictError
from orchestrator.store.batches import insert_or_nothing
from orchestrator.store.change import EventDetails, Guard, RowChange, insert_row, update_row
from orchestrator.store.entry_rows import EntryRows
from orchestrator.store.schema import entry_codes, tokens, trust_rules
from orchestrator.store.session_records import EntryCode
from orchestrator.store.token_records import TokenRecord
from orchestrator.store.trust_records import TrustRule, trust_rule_to_row

SPENT = "spent"  # kind of the rows of entry_codes for tokens that were exchanged


class TrustChanges(EntryRows):
    """The changes of trust rules."""

    def add_trust_rule(self, rule: TrustRule) -> None:
        """Record a rule.

        Raises:
            ConflictError: One of this name counts already.
        """
        claims = ", ".join(f"{name}={value}" for name, value in rule.claims.items())
        scope = f" in the project {rule.project}" if rule.project else ""
        about = f"rule '{rule.name}': {rule.issuer} with {claims} is {rule.member}, {rule.role}{scope}"
        for at in self._tries(f"the name '{rule.name}'"):
            guard = self._guard_all()
            if any(one.name == rule.name and one.counts_at(at) for one in self.trust_rules()):
                what = f"there is a rule called '{rule.name}'"
                raise ConflictError(what, "a name is of one rule", f"orch token revoke {rule.name}")
            change = insert_row(trust_rules, trust_rule_to_row(rule), _details("trust", about))
            if self.change(change, at=rule.created, guards=(guard,)) is not None:
                return

    def spend_token(self, digest: str, until: float) -> bool:
        """Note that a token of an issuer was exchanged; return False when it was before, at whichever server.

        Args:
            digest: Of the token's id.
            until: When no server would accept the token any more, in epoch seconds.
        """
        row = asdict(EntryCode(digest=f"{SPENT}:{digest}", kind=SPENT, details="{}", until=until))
        with self._database.writing() as tx:
            tx.execute(delete(entry_codes).where(entry_codes.c.until < self._now()))
            is_new = tx.execute(insert_or_nothing(tx, entry_codes, row)).first() is not None
            tx.commit()
        return is_new

    def give_token(self, rule: TrustRule, token: TokenRecord, cause: str) -> None:
        """Record a token that a rule gives.

        Raises:
            AccessError: The rule was taken back meanwhile.
        """
        about = f"token '{token.name}' for {token.member}, {token.role}, by the rule '{rule.name}'"
        guard = Guard(table=trust_rules, key={"uid": rule.uid}, values={"revoked": None})
        change = insert_row(tokens, asdict(token), _details("token", about, cause))
        if self.change(change, at=token.created, guards=(guard,)) is None:
            raise AccessError(f"the rule '{rule.name}' was taken back", "", "ask who runs the service")


def revoke_rule(rule: TrustRule, at: float) -> tuple[RowChange, Guard]:
    """Return the change that takes a rule back, and what must be true for it."""
    key = {"uid": rule.uid}
    change = update_row(trust_rules, key, {"revoked": at}, _details("trust", f"rule '{rule.name}' revoked"))
    return change, Guard(table=trust_rules, key=key, values={"revoked": None})


def _details(kind: str, what: str, cause: str = "") -> EventDetails:
    return EventDetails(cluster="", kind=kind, what=what, cause=cause)
