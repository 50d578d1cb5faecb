"""Sessions of botocore that act as a role: AssumeRole of STS, by the library's own fetcher and refresh.

Sources: STS API reference, AssumeRole (RoleSessionName is 2 to 64 characters of letters, digits and `_+=,.@-`; one hour
by default; ExternalId); IAM User Guide, "Access to AWS accounts owned by third parties": AWS does not
treat the external id as a secret (read November 2026). The words of a refusal: selling-partner-api-models issue 2523
(2023), "User: ... is not authorized to perform: sts:AssumeRole on resource: ..."; a role that does not exist has the
same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, cast

from orchestrator.errors import CloudError, CredentialsError, OrchError
from orchestrator.messages import to_one_line

USUAL_CALLER = "orch"
_LONGEST_CALLER = 64
_NOT_IN_CALLER = re.compile(r"[^\w+=,.@-]+", re.ASCII)
_USER = re.compile(r"User: (\S+) is not authorized")
_ASSUMED = re.compile(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/")
_SHOWS_WHO = "aws sts get-caller-identity   shows who asked"
_LONGEST_WORDS = 500
_TIMEOUT_SECONDS = 20.0
_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """A role that the credentials of this computer assume.

    Attributes:
        arn: Its ARN.
        external_id: What its trust policy asks for; "" for nothing.
        caller: The name of the session, which CloudTrail shows with every call.
    """

    arn: str
    external_id: str = ""
    caller: str = USUAL_CALLER


def name_caller(*words: str) -> str:
    """Return the name of a session from words such as an installation and a member."""
    known = [_NOT_IN_CALLER.sub("_", word) for word in words if word]
    return "-".join((USUAL_CALLER, *known))[:_LONGEST_CALLER]


def make_role_session(base: Any, role: AssumedRole, *, region: str, endpoint: str = "") -> Any:
    """Return a session of botocore whose credentials are those of the role. Sends nothing.

    Args:
        base: The session of botocore with the credentials that assume the role.
        role: The role.
        region: Whose STS is asked.
        endpoint: A server in place of AWS; "" for AWS itself.
    """
    session: Any = import_module("botocore.session").get_session()
    session.register_component("data_loader", base.get_component("data_loader"))
    session.set_config_variable("region", region)
    resolver = import_module("botocore.credentials").CredentialResolver([_RoleProvider(base, role, region, endpoint)])
    session.register_component("credential_provider", resolver)
    return session


class _RoleProvider:
    """What botocore asks for the credentials of a session (its credentials.CredentialProvider)."""

    METHOD = "assume-role"
    CANONICAL_NAME = "assume-role"

    def __init__(self, base: Any, role: AssumedRole, region: str, endpoint: str) -> None:
        self._base = base
        self._role = role
        self._region = region
        self._endpoint = endpoint

    def load(self) -> Any:
        """Return credentials that are fetched at their first use, and renewed before they end."""
        library: Any = import_module("botocore.credentials")
        source = self._base.get_credentials()
        if source is None:
            return None
        limits = import_module("botocore.config").Config(
            retries={"mode": "standard", "total_max_attempts": _TRIES},
            connect_timeout=_TIMEOUT_SECONDS,
            read_timeout=_TIMEOUT_SECONDS,
            user_agent_extra="orch",
        )
        place = {"endpoint_url": self._endpoint} if self._endpoint else {}
        given = {"RoleSessionName": self._role.caller}
        if self._role.external_id:
            given["ExternalId"] = self._role.external_id
        fetcher = library.AssumeRoleCredentialFetcher(
            client_creator=partial(self._base.create_client, region_name=self._region, config=limits, **place),
            source_credentials=source,
            role_arn=self._role.arn,
            extra_args=given,
        )
        return library.DeferredRefreshableCredentials(
            refresh_using=partial(_fetch, fetcher, self._role), method=self.METHOD
        )


def _fetch(fetcher: Any, role: AssumedRole) -> Mapping[str, Any]:
    """Return new credentials of the role.

    Raises:
        CredentialsError: AWS does not let these credentials assume the role.
        CloudError: It could not be asked.
    """
    of: Any = import_module("botocore.exceptions")
    try:
        return cast(Mapping[str, Any], fetcher.fetch_credentials())
    except of.ClientError as error:
        raise _explain(error.response, role) from error
    except of.BotoCoreError as error:
        raise CloudError(
            f"the role {role.arn} could not be assumed", to_one_line(str(error), _LONGEST_WORDS), _SHOWS_WHO
        ) from error


def _explain(response: Mapping[str, Any], role: AssumedRole) -> OrchError:
    code = str(response.get("Error", {}).get("Code", ""))
    words = to_one_line(str(response.get("Error", {}).get("Message", "")), _LONGEST_WORDS)
    what = f"the role {role.arn} cannot be assumed"
    if int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500 or code == "Throttling":
        return CloudError(what, f"{code}: {words}", "run the same again in a minute")
    if code != "AccessDenied":
        return CredentialsError(what, f"{code}: {words}", _SHOWS_WHO)
    found = _USER.search(words)
    caller = found[1] if found is not None else "YOUR-IDENTITY"
    if "identity-based policy" in words:  # "Troubleshoot access denied error messages", IAM User Guide, November 2026
        statement = f'{{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": "{role.arn}"}}'
        step = f"add to a policy of {caller}: {statement}\nthen: orch check aws"
        return CredentialsError(what, f"AWS says: {words}", step)
    statement = trust_statement(caller, role.external_id)
    step = f"add to the trust policy of that role: {statement}\nthen: orch check aws"
    return CredentialsError(what, f"AWS says: {words}", step)


def trust_statement(caller: str, external_id: str) -> str:
    """Return the statement of a trust policy that lets a caller assume the role, as JSON in one line.

    Args:
        caller: The ARN of who asks; of an assumed role, the role's own stands for all of its sessions.
        external_id: "" for none.
    """
    assumed = _ASSUMED.match(caller)
    principal = f"arn:{assumed['partition']}:iam::{assumed['account']}:role/{assumed['role']}" if assumed else caller
    condition = f', "Condition": {{"StringEquals": {{"sts:ExternalId": "{external_id}"}}}}' if external_id else ""
    return f'{{"Effect": "Allow", "Principal": {{"AWS": "{principal}"}}, "Action": "sts:AssumeRole"{condition}}}'
