"""Tokens for jobs of CI: an OIDC token of an issuer that a rule trusts is exchanged for a short one (RFC 8693).

No secret is stored at the CI. A rule (`orch token trust`) says which repository or project, which member, role and
project. A token is exchanged once: who finds it in a log later gets nothing. Nothing can be guessed here, as everything
is signed, so wrong tokens are not counted, and who sends them shuts no one out; the keys of an issuer are
read at most every PAUSE_SECONDS, whatever is sent. One thread at a time waits for an issuer, for ANSWER_SECONDS an
answer; other jobs of it are refused meanwhile, to try again. Who waits for an issuer takes no part in the work on the
store, so slow issuers hold no job of another one.

Sources: RFC 8693 (token exchange, 2020), sections 2.1 and 2.2; RFC 7519 (JWT), section 4.1; RFC 8725, sections 3.8 and
3.9 (issuer and audience).
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.acting import acting_as
from orchestrator.errors import AccessError, OrchError, UserError
from orchestrator.service.issuer import SKEW_SECONDS, Issuer
from orchestrator.service.problems import describe_problem
from orchestrator.service.route import Answer, Call
from orchestrator.store.token_records import TOKEN_ROLES, TokenRecord, digest_token, make_token
from orchestrator.store.trust_records import BINDING_CLAIMS, TrustRule

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN, JWT = "urn:ietf:params:oauth:token-type:id_token", "urn:ietf:params:oauth:token-type:jwt"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  # the name of a kind
PAUSE_SECONDS = 10.0
ANSWER_SECONDS = 5.0  # two answers have the keys
_WORKING = 4  # threads with the store; others wait
MOST_LIFE_SECONDS = 32 * 86_400.0  # of a token that is exchanged: GitLab's count as long as a job may run
_KEPT_LONGER = 3600.0  # that an exchange is remembered after its token ended, for servers with other clocks
_MOST_LETTERS = 16_384
_SHOWN = (*BINDING_CLAIMS, "ref", "environment")  # in a refusal


class ExchangeForm(BaseModel):
    """A job of CI asks for a token; parameters that are not known are ignored (RFC 6749, section 3.2)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    grant_type: str = Field(default="", max_length=200)
    subject_token: str = Field(default="", max_length=_MOST_LETTERS)
    subject_token_type: str = Field(default="", max_length=200)
    audience: str = Field(default="", max_length=300, description="This service; it may be left out.")
    requested_token_type: str = Field(default="", max_length=200)
    actor_token: str = Field(default="", max_length=_MOST_LETTERS, description="Refused.")


@dataclass(kw_only=True)
class TrustedIssuers:
    """The issuers that rules name. Safe for several threads.

    Attributes:
        clock: The time in seconds.
        working: Of the threads that use the store.
    """

    clock: Callable[[], float] = time.monotonic
    working: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_WORKING))
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[str, Issuer] = field(default_factory=dict[str, Issuer])

    def find(self, address: str) -> Issuer:
        """Return an issuer, which a rule has to name."""
        with self._lock:
            made = Issuer(
                address=address, pause_seconds=PAUSE_SECONDS, clock=self.clock,
                answer_seconds=ANSWER_SECONDS,
                patience_seconds=0,  # else the jobs of a slow issuer would take every thread
            )  # fmt: skip
            return self._known.setdefault(address, made)


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobToken:
    """A token of CI that is believed."""

    claims: Mapping[str, Any]
    digest: str
    expires: float


def exchange_token(call: Call) -> Answer:
    """Answer with a token of the service for a token of a trusted issuer, once."""
    form: ExchangeForm = call.body
    try:
        _check_form(form, call.audiences)
        with call.gate.issuers.working:
            rules = _find_rules(call, form.subject_token)
        job = _believe(call, rules[0].issuer, form.subject_token)
        rule = choose_rule(rules, job.claims)
        with call.gate.issuers.working:
            secret, made = _give_token(call, rule, job)
    except (UserError, AccessError) as error:
        return _refuse(error)
    document = {
        "version": 1, "kind": "exchanged-token", "access_token": secret, "issued_token_type": ACCESS_TOKEN,
        "token_type": "Bearer", "expires_in": int(made.expires - made.created), "name": made.name,
        "member": made.member, "role": made.role, "project": made.project or None, "rule": rule.name,
    }  # fmt: skip
    return Answer(document=document, secret=True)


def choose_rule(rules: tuple[TrustRule, ...], claims: Mapping[str, Any]) -> TrustRule:
    """Return the rule for a token: of those that allow it the one with most claims, then the narrowest one.

    Raises:
        AccessError: None allows it, or of two none is narrower in both project and role.
    """
    allowing = [rule for rule in rules if rule.allows(claims)]
    if not allowing:
        shown = ", ".join(f"{name}={_clean(claims[name])}" for name in _SHOWN if name in claims)
        what, step = "no rule of this service is for this job", "ask who runs it for: orch token trust"
        raise AccessError(what, f"its token has {shown}"[:400], step)
    most = max(len(rule.claims) for rule in allowing)
    like = [rule for rule in allowing if len(rule.claims) == most]
    for rule in like:
        if all(_is_within(rule, other) for other in like):
            return rule
    what = f"several rules are for this job: {', '.join(rule.name for rule in like)}"
    raise AccessError(what[:400], "none is narrower in project and role", "ask who runs the service to revoke one")


def _is_within(rule: TrustRule, other: TrustRule) -> bool:
    """Whether a rule gives nothing that another one does not give."""
    in_project = other.project in ("", rule.project)
    return in_project and TOKEN_ROLES.index(rule.role) <= TOKEN_ROLES.index(other.role)


def _check_form(form: ExchangeForm, audiences: frozenset[str]) -> None:
    if form.grant_type != GRANT:
        raise UserError("`grant_type` is not taken", f"it is {GRANT}", "see /openapi.json")
    if form.subject_token_type not in (ID_TOKEN, JWT):
        raise UserError("`subject_token_type` is not taken", f"it is {ID_TOKEN} or {JWT}", "see /openapi.json")
    if form.requested_token_type not in ("", ACCESS_TOKEN):
        raise UserError("`requested_token_type` is not taken", f"it is {ACCESS_TOKEN}", "see /openapi.json")
    if form.actor_token:
        raise UserError("`actor_token` is not taken", "a job acts for itself", "leave it out")
    if form.audience and form.audience not in audiences:
        raise UserError("`audience` is another service", f"this one is {_list(audiences)}", "leave it out")


def _find_rules(call: Call, text: str) -> tuple[TrustRule, ...]:
    """Return the rules for the issuer that a token names, which is not believed yet."""
    try:
        _, payload, _ = text.split(".")
        claims: Any = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        issuer = claims["iss"]
        if not isinstance(issuer, str) or not issuer.isprintable():  # half a character is in no store
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UserError(
            "`subject_token` is not a token of an issuer", "it is a JWT with `iss`", "see /openapi.json"
        ) from None
    now = call.site.now()
    with call.gate.open_reader() as reader:
        rules = tuple(rule for rule in reader.trust_rules(issuer) if rule.counts_at(now))
    if not issuer or not rules:
        step = "ask who runs it for: orch token trust"
        raise AccessError(f"no rule of this service trusts {_clean(issuer)}", "", step)
    return rules


def _believe(call: Call, issuer: str, text: str) -> _JobToken:
    """Return a token whose signature, issuer, audience and times are right.

    Raises:
        AccessError: One of them is not.
        CloudError: The issuer does not answer, or its keys are being read.
    """
    from joserfc.errors import JoseError
    from joserfc.jwt import JWTClaimsRegistry

    now = call.site.now()
    registry = JWTClaimsRegistry(
        now=int(now), leeway=SKEW_SECONDS, iss={"essential": True, "value": issuer}, aud={"essential": True},
        exp={"essential": True}, iat={"essential": True},
    )  # fmt: skip
    try:
        claims: dict[str, Any] = call.gate.issuers.find(issuer).verify_signature(text).claims
        registry.validate(claims)
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise AccessError(
            f"this token of {urlsplit(issuer).netloc} is not believed", why, "ask CI for another"
        ) from error
    # Of several audiences another one could bring the token here.
    named: object = claims["aud"]
    several = cast("list[object]", named) if isinstance(named, list) else [named]
    if len(several) != 1 or several[0] not in call.audiences:
        what = f"this token is for {_clean(several)}, not for this service alone"
        raise AccessError(what, "", f"ask CI for one with the audience {_list(call.audiences)}")
    if claims["exp"] > now + MOST_LIFE_SECONDS:
        raise AccessError(
            "this token counts for too long", f"at most {MOST_LIFE_SECONDS / 86_400:.0f} days", "ask CI for another"
        )
    # A signature can have several texts, and what it signs only one.
    own = claims.get("jti") or text.rpartition(".")[0]
    digest = hashlib.sha256(f"{issuer}\0{own}".encode("utf-8", "surrogatepass")).hexdigest()
    return _JobToken(claims=claims, digest=digest, expires=float(claims["exp"]))


def _give_token(call: Call, rule: TrustRule, job: _JobToken) -> tuple[str, TokenRecord]:
    """Return a new token by a rule, with its record.

    Raises:
        AccessError: The token was exchanged before, or the rule was taken back meanwhile.
    """
    secret, now = make_token(), call.site.now()
    expires = min(now, job.expires) + rule.seconds
    made = TokenRecord(
        digest=digest_token(secret), name=f"{rule.name}-{secrets.token_hex(4)}", member=rule.member, role=rule.role,
        created=now, expires=min(expires, rule.expires or expires), project=rule.project, parent=rule.subject,
    )  # fmt: skip
    about = _clean(job.claims.get("sub"))
    cause = f"a token of {urlsplit(rule.issuer).netloc} for {about}"
    with acting_as(rule.member), call.gate.open_store("a job of CI") as store:
        if not store.spend_token(job.digest, job.expires + SKEW_SECONDS + _KEPT_LONGER):
            raise AccessError("this token was exchanged before", "each is exchanged once", "ask CI for another")
        store.give_token(rule, made, cause)
    return secret, made


def _refuse(error: OrchError) -> Answer:
    """Return a refusal in the form of RFC 8693, section 2.2.2, with what the command line shows."""
    code = "invalid_target" if error.what.startswith("`audience`") else "invalid_request"
    about = {"error": code, "error_description": f"{error.what}: {error.why}" if error.why else error.what}
    return Answer(document=about | describe_problem(error, 400, ""), status=400)


def _list(audiences: frozenset[str]) -> str:
    return " or ".join(sorted(audiences))


def _clean(value: object) -> str:
    """Return what a token says, short and printable: whoever names branches decides it."""
    text = value if isinstance(value, str) else json.dumps(value)
    return "".join(one if one.isprintable() else "?" for one in text)[:200]
