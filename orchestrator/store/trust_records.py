"""The records of trust rules: whose tokens of another issuer the service exchanges for its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import UserError
from orchestrator.store.records import Row

# Claims of which one has to be in a rule, as each is of one repository, project or workload. `sub` is the subject of a
# token (RFC 7519, section 4.1.2). Names can pass to another owner, ids cannot: GitHub, "OpenID Connect reference"
# (docs.github.com/en/actions/reference/security/oidc), GitLab, "OpenID Connect (OIDC) Authentication Using ID Tokens"
# (docs.gitlab.com/ci/secrets/id_token_authentication), both read in November 2026.
BINDING_CLAIMS = ("repository", "repository_id", "project_path", "project_id", "sub")
_CHECKED = ("iss", "aud", "exp", "nbf", "iat", "jti")  # of every token, whatever the rule says
_MOST_CLAIMS, _MOST_LETTERS = 20, 300
_EXAMPLE = "--claim repository=org/name --claim ref=refs/heads/main"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRule:
    """Who has a token of this issuer with these claims gets a token of the service.

    Attributes:
        issuer: The address of the issuer, exactly as its tokens name it.
        claims: The value of each claim that a token has to have.
        member: For whom the tokens act that it gives.
        role: One of TOKEN_ROLES.
        project: Of these tokens; "" for every project.
        seconds: How long each of them counts.
        expires: In epoch seconds; None for a rule that counts until it is revoked.
        revoked: When it was taken back; None for one that counts.
    """

    uid: str
    name: str
    issuer: str
    claims: Mapping[str, str]
    member: str
    role: str
    project: str
    seconds: int
    created: float
    expires: float | None = None
    revoked: float | None = None

    @property
    def subject(self) -> str:
        """Its name in events, and as the parent of tokens."""
        return f"trust_rule {self.uid}"

    def counts_at(self, now: float) -> bool:
        """Whether it gives tokens at this time, and those that it gave count."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def allows(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token with these claims has every value. Values are compared whole: there are no patterns."""
        return all(_write_value(claims.get(name)) == value for name, value in self.claims.items())


def _write_value(value: object) -> str | None:
    """Return a claim as a rule writes it; None for what is neither text, whole number nor truth value."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, int) else None


def parse_claims(given: Sequence[str]) -> dict[str, str]:
    """Return the claims of a rule from `NAME=VALUE` texts.

    Raises:
        UserError: One is wrong, or none is of one repository or project.
    """
    claims: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals or not value or len(text) > _MOST_LETTERS or not text.isprintable():
            why = f"it is NAME=VALUE, with at most {_MOST_LETTERS} letters"
            raise UserError(f"`--claim {text[:60]}` is not taken", why, _EXAMPLE)
        if name in _CHECKED:
            raise UserError(f"`--claim {name}` is not taken", "it is checked of every token", f"leave {name} out")
        if "*" in value or "?" in value:
            why = "values are compared whole; a pattern would also allow what was not thought of"
            raise UserError(f"`--claim {text[:60]}` is a pattern", why, "a rule for each value")
        if name in claims:
            raise UserError(f"`--claim {name}` is given twice", "a token has one value", "a rule for each value")
        claims[name] = value
    if len(claims) > _MOST_CLAIMS:
        raise UserError(f"a rule has at most {_MOST_CLAIMS} claims", "", "leave some out")
    if not claims.keys() & set(BINDING_CLAIMS):
        why = f"without one of {', '.join(BINDING_CLAIMS)} everyone whom the issuer serves would enter"
        raise UserError("the rule is of no repository or project", why, _EXAMPLE)
    return claims


def trust_rule_to_row(rule: TrustRule) -> dict[str, Any]:
    """Return the columns of a rule."""
    names = TrustRule.__dataclass_fields__
    return {name: getattr(rule, name) for name in names} | {"claims": json.dumps(dict(rule.claims), sort_keys=True)}


def trust_rule_from_row(row: Row) -> TrustRule:
    """Return a row of `trust_rules`."""
    values = {name: row[name] for name in TrustRule.__dataclass_fields__}
    return TrustRule(**(values | {"claims": json.loads(row["claims"])}))
