"""OpenID Connect with one identity provider: authorization code, PKCE, state and nonce.

Sources: OpenID Connect Core 1.0 (errata set 2, 2023), sections 3.1.2 to 3.1.3.7 and 5.3.2; Discovery 1.0, section 4.3;
RFC 7636 (PKCE, 2015); RFC 9207 (issuer in the answer, 2022). authlib checks the claims, and issuer.py the signature;
libraries are imported at the first sign-in only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from orchestrator.errors import AccessError
from orchestrator.service.issuer import SKEW_SECONDS, Issuer, refuse_half_characters
from orchestrator.service.oidc_settings import OidcSettings, is_safe_address
from orchestrator.service.route import Role

ATTEMPT_SECONDS = 600
_AGAIN = "sign in again"
_LONGEST_SUBJECT = 255  # OpenID Connect Core 1.0, section 2
_ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class UnlistedPersonError(AccessError):
    """The provider knows a person, and no rule of the service lets them in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A sign-in that has begun: the browser keeps it in a cookie, so that any server of the store can complete it.

    Attributes:
        state: Comes back with the answer: it proves that this browser began it.
        nonce: Is in the ID token: it proves that the token was made for this attempt.
        verifier: Proves to the provider that who redeems the code began it (PKCE).
        target: The page to which it leads.
    """

    state: str
    nonce: str
    verifier: str
    target: str

    @classmethod
    def begin(cls, target: str) -> Attempt:
        """Return a new attempt."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state=state, nonce=nonce, verifier=verifier, target=target)

    @classmethod
    def parse(cls, text: str, key: bytes, now: float) -> Attempt | None:
        """Return the attempt that a server of the store wrote within ten minutes; None for another text.

        Args:
            text: What `to_cookie` returned.
            key: Of all servers of the store.
            now: Epoch seconds.
        """
        content, _, signature = text.partition(".")
        if not secrets.compare_digest(_sign(key, content).encode(), signature.encode("utf-8", "replace")):
            return None
        until, state, nonce, verifier, target = json.loads(base64.urlsafe_b64decode(content))
        return cls(state=state, nonce=nonce, verifier=verifier, target=target) if now < until else None

    def to_cookie(self, key: bytes, now: float) -> str:
        """Return the attempt as the value of a cookie, signed; the arguments are those of `parse`."""
        values = [now + ATTEMPT_SECONDS, self.state, self.nonce, self.verifier, self.target]
        content = base64.urlsafe_b64encode(json.dumps(values).encode()).decode()
        return f"{content}.{_sign(key, content)}"

    def check_state(self, answer: Mapping[str, str]) -> None:
        """Refuse an answer to another attempt, before anything is asked. Raises AccessError."""
        if not secrets.compare_digest(answer.get("state", "").encode("utf-8", "replace"), self.state.encode()):
            raise AccessError("this sign-in was not begun in this browser", "its state is another one", _AGAIN)


def _sign(key: bytes, content: str) -> str:
    return hmac.new(key, content.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A person of the provider who may enter.

    Attributes:
        subject: The provider's unchanging id of the person.
        role: What the allow-list gives them.
        suggestion: A name that they might choose here.
    """

    issuer: str
    subject: str
    role: Role
    suggestion: str


@dataclass(kw_only=True)
class OidcClient:
    """Speaks with the provider. Safe for several threads. What the provider publishes is read at the first use."""

    settings: OidcSettings
    _issuer: Issuer = field(init=False)

    def __post_init__(self) -> None:
        self._issuer = Issuer(address=self.settings.issuer, needed=_ADDRESSES, again=_AGAIN)

    def make_address(self, attempt: Attempt, callback: str) -> str:
        """Return the address of the provider to which the browser goes.

        Args:
            attempt: What begins.
            callback: The address of this service to which the provider sends the browser back.

        Raises:
            CloudError: The provider does not answer, or not as one.
        """
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code", "client_id": self.settings.client_id, "redirect_uri": callback,
            "scope": " ".join(("openid", "profile", *self.settings.scopes)), "state": attempt.state,
            "nonce": attempt.nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        endpoint = str(self._issuer.read_metadata()["authorization_endpoint"])
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def complete(self, attempt: Attempt, answer: Mapping[str, str], callback: str) -> Identity:
        """Return who has signed in.

        Args:
            attempt: The one that this browser began.
            answer: The query with which the provider sent the browser back.
            callback: The address to which it did.

        Raises:
            AccessError: It is not an answer to this attempt, the provider refuses, or the person may not enter.
            CloudError: The provider does not answer, or not as one.
        """
        self._check_answer(attempt, answer)
        tokens = self._redeem(attempt, answer["code"], callback)
        claims = self._check_token(attempt, tokens)
        if self.settings.list_claims() - set(claims):
            claims = _add_profile(claims, self._read_profile(tokens, claims))
        role = self.settings.choose_role(claims)
        if role is None:
            why = "no rule of this service (--oidc-allow) is for them"
            raise UnlistedPersonError(f"{self.settings.name} knows you, and you may not enter", why, "ask its owner")
        name = str(claims.get("preferred_username") or claims.get("name") or "")
        issuer, subject = self.settings.issuer, str(claims["sub"])
        return Identity(issuer=issuer, subject=subject, role=role, suggestion=name)

    def _check_answer(self, attempt: Attempt, answer: Mapping[str, str]) -> None:
        """Refuse what this browser did not begin, and answers of another provider (RFC 9207)."""
        attempt.check_state(answer)
        issuer = answer.get("iss")
        named = bool(self._issuer.read_metadata().get("authorization_response_iss_parameter_supported"))
        if issuer != self.settings.issuer and (named or issuer is not None):
            raise AccessError("this sign-in is of another identity provider", str(issuer or "")[:100], _AGAIN)
        if "error" in answer:
            why = f"{answer['error'][:60]} {answer.get('error_description', '')[:200]}".strip()
            raise AccessError(f"{self.settings.name} refuses the sign-in", why, _AGAIN)
        if not answer.get("code"):
            raise AccessError(f"{self.settings.name} sent no code", "", _AGAIN)

    def _redeem(self, attempt: Attempt, code: str, callback: str) -> dict[str, Any]:
        """Return the tokens for a code. It works once, at the provider."""
        metadata, settings = self._issuer.read_metadata(), self.settings
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": callback}
        form |= {"code_verifier": attempt.verifier, "client_id": settings.client_id}
        headers: dict[str, str] = {}
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if settings.secret and "client_secret_basic" in methods:
            pair = f"{quote(settings.client_id, safe='')}:{quote(settings.secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        elif settings.secret:
            form["client_secret"] = settings.secret
        return self._issuer.send(str(metadata["token_endpoint"]), headers, urlencode(form).encode())

    def _check_token(self, attempt: Attempt, tokens: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claims of the ID token: its signature, issuer, audience, times and nonce are right."""
        from authlib.oidc.core import CodeIDToken
        from joserfc.errors import JoseError

        settings = self.settings
        expected = {"iss": {"essential": True, "value": settings.issuer}, "sub": {"essential": True}}
        expected["aud"] = {"essential": True, "value": settings.client_id}
        params = {"nonce": attempt.nonce, "client_id": settings.client_id, "access_token": tokens.get("access_token")}
        try:
            token = self._issuer.verify_signature(str(tokens.get("id_token", "")))
            claims: Any = CodeIDToken(token.claims, token.header, expected, params)
            claims.validate(leeway=SKEW_SECONDS)
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            raise AccessError(f"the answer of {settings.name} is not believed", why, _AGAIN) from error
        self._check_claims(claims)
        return dict(claims)

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        """Refuse what no store and no page can have. Raises CloudError: the provider has signed it."""
        subject: object = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT:
            raise self._issuer.describe_fault(f"`sub` is not a text of 1 to {_LONGEST_SUBJECT} characters")
        self._refuse_half_characters(claims)

    def _refuse_half_characters(self, claims: Mapping[str, Any]) -> None:
        try:
            refuse_half_characters(claims)
        except UnicodeError as error:
            raise self._issuer.describe_fault(f"a claim has half a character: {str(error)[:200]}") from error

    def _read_profile(self, tokens: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is at the endpoint for profiles alone, such as groups."""
        address = self._issuer.read_metadata().get("userinfo_endpoint")
        if not is_safe_address(address):
            return {}
        found = self._issuer.send(str(address), {"Authorization": f"Bearer {tokens.get('access_token', '')}"})
        self._refuse_half_characters(found)
        return found if found.get("sub") == claims["sub"] else {}  # Core, section 5.3.2: else of another person


def _add_profile(claims: dict[str, Any], profile: dict[str, Any]) -> dict[str, Any]:
    """Return the claims with those of the profile alone. Its `email_verified` is about its own address."""
    if "email" in claims and profile.get("email", claims["email"]) != claims["email"]:
        profile = {name: value for name, value in profile.items() if name != "email_verified"}
    return profile | claims
