"""The IAM Credentials API: access tokens of service accounts for whoever may impersonate them.

Sources: IAM Service Account Credentials API v1, projects.serviceAccounts.generateAccessToken (revision 2026-06-30): its
fields by the discovery document; the lifetime is "3600s" at most without an organization policy. The words of a refusal
are those of terraform-google-workload-identity-federation issue 4 (2023): the same for an account that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from orch_fronts.google.methods import called, check_body
from orch_fronts.google.status import INVALID_ARGUMENT, PERMISSION_DENIED, Refusal
from orch_fronts.serving import make_token

PERMISSION = "iam.serviceAccounts.getAccessToken"
_LIFETIME = re.compile(r"(\d{1,6})s")
_LONGEST = 3600
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenToken:
    """An access token of a service account."""

    account: str
    ends: datetime


class Tokens:
    """trusting: service accounts that the caller may impersonate. seconds: how long a token lasts, 0 for as asked."""

    def __init__(self, trusting: Collection[str] = (), *, seconds: int = 0) -> None:
        self.trusting = set(trusting)
        self.seconds = seconds
        self.given: dict[str, GivenToken] = {}

    def find(self, authorization: str) -> GivenToken | None:
        """The token of a header, while it is good; None for the caller's own."""
        found = self.given.get(authorization.removeprefix("Bearer "))
        return found if found is not None and found.ends > datetime.now(UTC) else None

    def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
        """See server.Front."""
        call = called(method, target)
        project, account = call.path_values
        asked = check_body(call.service, call.version, "GenerateAccessTokenRequest", body)
        lifetime = _LIFETIME.fullmatch(str(asked.get("lifetime") or f"{_LONGEST}s"))
        if project != "-" or not asked.get("scope") or lifetime is None or not 0 < int(lifetime[1]) <= _LONGEST:
            raise Refusal(INVALID_ARGUMENT, "Request contains an invalid argument.")
        if account not in self.trusting:
            words = f"Permission '{PERMISSION}' denied on resource (or it may not exist)."
            info = {
                "@type": _INFO,
                "reason": "IAM_PERMISSION_DENIED",
                "domain": "iam.googleapis.com",
                "metadata": {"permission": PERMISSION},
            }
            raise Refusal(PERMISSION_DENIED, words, (info,))
        ends = datetime.now(UTC) + timedelta(seconds=self.seconds or int(lifetime[1]))
        token = make_token()
        self.given[token] = GivenToken(account=account, ends=ends)
        return {"accessToken": token, "expireTime": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
