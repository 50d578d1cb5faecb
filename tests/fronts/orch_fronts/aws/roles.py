"""Roles that a caller may assume, and the temporary keys that they were given.

Sources: STS API reference, AssumeRole (form of the parameters, RoleSessionName, ExternalId, DurationSeconds of 900 to
43200, one hour by default; a role that chains from a role lasts one hour at most), and GetCallerIdentity; the words of
a refusal are those of selling-partner-api-models issue 2523 (2023): one and the same for a role that does not trust the
caller, another external id, and a role that does not exist. Read November 2026.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from types import MappingProxyType

from orch_fronts.aws.calls import ACCOUNT, AwsCall, AwsRefusal
from orch_fronts.aws.signature import is_signed
from orch_fronts.serving import make_token
from orchestrator.cloud_access import SIMULATED

_KEY = re.compile(r"Credential=(?P<key>[^/,\s]+)/")
_ROLE = re.compile(r"arn:aws:iam::(?P<account>\d{12}):role/(?P<name>[\w+=,.@/-]{1,512})", re.ASCII)
_SESSION = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
_EXTERNAL = re.compile(r"[\w+=,.@:/-]{2,1224}", re.ASCII)
_SHORTEST, _LONGEST, _USUAL = 900, 43200, 3600
USER = f"arn:aws:iam::{ACCOUNT}:user/orch"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryKey:
    """A key that AssumeRole gave."""

    key: str
    secret: str = field(repr=False)
    token: str = field(repr=False)
    role: str
    session: str
    ends: datetime

    @property
    def account(self) -> str:
        return self.role.split(":")[4]

    @property
    def arn(self) -> str:
        """As GetCallerIdentity says it: without the path of the role."""
        return f"arn:aws:sts::{self.account}:assumed-role/{self.role.rpartition('/')[2]}/{self.session}"


class Roles:
    """trusting: the roles that trust the caller, by ARN, each with the external id that it asks for, "" for none.

    seconds: how long a key lasts, whatever was asked for; 0 for what was.
    """

    def __init__(self, trusting: Mapping[str, str] = MappingProxyType({}), *, seconds: int = 0) -> None:
        self.trusting = dict(trusting)
        self.seconds = seconds
        self.given: dict[str, TemporaryKey] = {}

    def find(self, authorization: str) -> TemporaryKey | None:
        """The temporary key that a request is signed with; None for the caller's own."""
        found = _KEY.search(authorization)
        return self.given.get(found["key"]) if found is not None else None

    def assume(self, call: AwsCall) -> TemporaryKey:
        """Raises AwsRefusal."""
        arn, session = str(call.params.get("RoleArn", "")), str(call.params.get("RoleSessionName", ""))
        external, seconds = str(call.params.get("ExternalId", "")), call.params.get("DurationSeconds", _USUAL)
        _check("roleSessionName", session, _SESSION)
        if external:
            _check("externalId", external, _EXTERNAL)
        if not str(seconds).isdecimal() or not _SHORTEST <= int(seconds) <= _LONGEST:
            raise AwsRefusal("ValidationError", f"The requested DurationSeconds {seconds} is not allowed.")
        if _ROLE.fullmatch(arn) is None:
            raise AwsRefusal("ValidationError", f"{arn} is invalid")
        asked_for = self.trusting.get(arn)
        caller = self.find(call.headers.get("authorization", ""))
        if asked_for is None or asked_for not in ("", external):
            who = caller.arn if caller is not None else USER
            words = f"User: {who} is not authorized to perform: sts:AssumeRole on resource: {arn}"
            raise AwsRefusal("AccessDenied", words, 403)
        made = TemporaryKey(
            key=f"{SIMULATED}-{secrets.token_hex(8)}",
            secret=make_token(),
            token=make_token(),
            role=arn,
            session=session,
            ends=datetime.now(UTC) + timedelta(seconds=self.seconds or int(seconds)),
        )
        self.given[made.key] = made
        return made


def is_signed_by_known(secret: str, roles: Roles, method: str, target: str, headers: Message, digest: str) -> bool:
    """Whether a request is signed with the secret of the caller, or with a temporary key that is still good.

    A temporary key needs its session token in the header X-Amz-Security-Token ("Create a signed AWS API request").
    """
    found = roles.find(headers.get("Authorization", ""))
    if found is None:
        return is_signed(secret, method, target, headers, digest)
    if found.ends <= datetime.now(UTC) or headers.get("X-Amz-Security-Token", "") != found.token:
        return False
    return is_signed(found.secret, method, target, headers, digest)


def _check(name: str, value: str, pattern: re.Pattern[str]) -> None:
    """In the words of the common error ValidationError."""
    if pattern.fullmatch(value) is None:
        words = (
            f"1 validation error detected: Value '{value}' at '{name}' failed to satisfy constraint: Member must"
            f" satisfy regular expression pattern: {pattern.pattern}"
        )
        raise AwsRefusal("ValidationError", words)
