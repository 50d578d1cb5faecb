"""Which identity provider people sign in with, and whom it lets in. Light: nothing of the protocol."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from orchestrator.distribution import install_command
from orchestrator.errors import UserError
from orchestrator.service.entrance import THIS_COMPUTER
from orchestrator.service.route import Role

SECRET_VARIABLE = "ORCH_OIDC_SECRET"  # noqa: S105  # the name of the variable
_ROLES = {"viewer": Role.VIEWER, "member": Role.MEMBER, "owner": Role.OWNER}
_RULE = "--oidc-allow member:groups=ml-team"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the allow-list: who has this value in this claim has the role."""

    role: Role
    claim: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Return the rule of `ROLE:CLAIM=VALUE`. Raises UserError for another text."""
        role, _, condition = text.partition(":")
        claim, equals, value = condition.partition("=")
        if role not in _ROLES or not claim or not equals or not value:
            raise UserError(f"`--oidc-allow {text[:60]}` is not a rule", "it is ROLE:CLAIM=VALUE", _RULE)
        return cls(role=_ROLES[role], claim=claim, value=value)

    def allows(self, claims: Mapping[str, Any]) -> bool:
        """Whether it lets in who has these claims. An e-mail address counts only when the provider has verified it."""
        found: object = claims.get(self.claim)
        if self.claim == "email" and claims.get("email_verified") is not True:
            return False
        values = cast("list[object]", found) if isinstance(found, list) else [found]
        return any(isinstance(one, str) and one == self.value for one in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """An identity provider.

    Attributes:
        issuer: Its address, exactly as its tokens name it.
        client_id: As which it knows this service.
        secret: Proves that; "" for a public client.
        scopes: What is requested beside `openid profile`.
        rules: Who may enter: without one, no one.
    """

    issuer: str
    client_id: str
    secret: str = field(default="", repr=False)
    scopes: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    @property
    def name(self) -> str:
        """Its name for people."""
        return urlsplit(self.issuer).netloc

    def list_claims(self) -> set[str]:
        """Return the claims that the rules look at."""
        named = {rule.claim for rule in self.rules}
        return named | {"email_verified"} if "email" in named else named

    def choose_role(self, claims: Mapping[str, Any]) -> Role | None:
        """Return the highest role that a rule gives; None for who may not enter."""
        return max((rule.role for rule in self.rules if rule.allows(claims)), default=None)


def read_oidc_settings(
    issuer: str,
    client_id: str,
    secret_file: Path | None,
    scopes: Sequence[str],
    rules: Sequence[str],
    environ: Mapping[str, str] = os.environ,
) -> OidcSettings | None:
    """Return the identity provider that the options of `orch serve` name, or None.

    Raises:
        UserError: Something is missing or wrong.
    """
    if not issuer:
        if client_id or secret_file or rules or scopes:
            raise UserError("the identity provider is missing", "", "--oidc-issuer https://login.example.org")
        return None
    if not client_id:
        raise UserError("the client of the identity provider is missing", "", "--oidc-client-id ID")
    if not is_safe_address(issuer):
        raise UserError(
            f"`{issuer[:100]}` is not the address of an identity provider",
            "it begins with https://",
            "--oidc-issuer https://HOST",
        )
    if not rules:
        raise UserError("the identity provider would let no one in", "there is no rule", _RULE)
    if importlib.util.find_spec("authlib") is None:
        raise UserError("an identity provider needs the package authlib", "", install_command("server"))
    return OidcSettings(
        issuer=issuer,
        client_id=client_id,
        secret=_read_secret(secret_file, environ),
        scopes=tuple(scopes),
        rules=tuple(Rule.parse(one) for one in rules),
    )


def is_safe_address(url: object) -> bool:
    """Whether what is sent there cannot be read on the way: https, or this computer."""
    if not isinstance(url, str):
        return False
    parts = urlsplit(url)
    on_the_way = parts.scheme == "http" and parts.hostname in THIS_COMPUTER
    return bool(parts.hostname) and (parts.scheme == "https" or on_the_way) and not parts.fragment


def _read_secret(file: Path | None, environ: Mapping[str, str]) -> str:
    if file is None:
        return environ.get(SECRET_VARIABLE, "").strip()
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise UserError(f"the secret in {file} cannot be read", str(error.strerror), f"ls -l {file}") from error
