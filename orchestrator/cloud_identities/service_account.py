"""Credentials of google-auth that act as a service account: generateAccessToken of the IAM Credentials API.

Sources: IAM documentation, "Create short-lived credentials for a service account" (the role
roles/iam.serviceAccountTokenCreator on the service account; one hour by default), read November 2026. The words of a
refusal: terraform-google-workload-identity-federation issue 4 (2023) and google-github-actions/auth issue 340 (2023),
"Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist)."
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from orchestrator.errors import CredentialsError
from orchestrator.messages import to_one_line

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
IAM_CREDENTIALS = "/iamcredentials/"  # where a server on this computer serves that API
ROLE = "roles/iam.serviceAccountTokenCreator"
_API = "iamcredentials.googleapis.com"
_SECONDS = 3600
_LONGEST_WORDS = 500
_REFUSED = "Unable to acquire impersonated credentials"  # google-auth 2.62, impersonated_credentials.py


def impersonate(source: Any, account: str, *, endpoint: str = "") -> Any:
    """Return credentials of a service account. Sends nothing.

    Args:
        source: The credentials of this computer.
        account: The e-mail address of the service account.
        endpoint: A server in place of Google; "" for Google itself.
    """
    path = f"v1/projects/-/serviceAccounts/{account}:generateAccessToken"
    options = {"iam_endpoint_override": f"{endpoint}{IAM_CREDENTIALS}{path}"} if endpoint else {}
    return _load_kind()(
        source_credentials=source, target_principal=account, target_scopes=[SCOPE], lifetime=_SECONDS, **options
    )


@cache
def _load_kind() -> Any:
    """Return the library's class, with our error for a refusal."""
    from google.auth import impersonated_credentials
    from google.auth.exceptions import RefreshError

    library: Any = impersonated_credentials

    class Impersonated(library.Credentials):  # type: ignore[misc]  # the library has no types
        def refresh(self, request: Any) -> None:
            library: Any = super()
            try:
                library.refresh(request)
            except RefreshError as error:
                if getattr(error, "retryable", False) or not str(error.args[0]).startswith(_REFUSED):
                    raise  # the credentials of this computer, or their server
                raise explain_refusal(error, str(self.service_account_email), name_member(self._source)) from error

        def _is_regional_access_boundary_lookup_required(self) -> bool:
            """Ask Google nothing beside a server on this computer: the library would send it that server's token."""
            if vars(self)["_iam_endpoint_override"]:
                return False
            library: Any = super()
            return bool(library._is_regional_access_boundary_lookup_required())

        @property
        def _source(self) -> Any:
            return vars(self)["_source_credentials"]

    return Impersonated


def name_member(credentials: Any) -> str:
    """Return whose credentials they are, as a role binding names it."""
    email = str(getattr(credentials, "service_account_email", "") or "")
    account = email or str(getattr(credentials, "account", "") or "")
    return f"{'serviceAccount' if email else 'user'}:{account or 'YOUR-EMAIL'}"


def explain_refusal(error: Exception, account: str, member: str) -> CredentialsError:
    """Return the error for a refused impersonation.

    Args:
        error: The RefreshError of google-auth.
        account: The service account.
        member: Who asked, as a role binding names it.
    """
    words = read_refusal(error)
    what = f"the service account {account} cannot be impersonated"
    if "SERVICE_DISABLED" in str(error) or "has not been used in project" in words:
        return CredentialsError(what, f"Google says: {words}", f"gcloud services enable {_API}")
    return CredentialsError(what, f"Google says: {words}\nasked by {member}", binding_command(account, member))


def read_refusal(error: Exception) -> str:
    """Return what Google said: the library keeps the body of the answer as its second argument."""
    try:
        said = json.loads(str(error.args[1]))["error"]["message"]
    except (IndexError, ValueError, KeyError, TypeError):
        said = error.args[0] if error.args else type(error).__name__
    return to_one_line(str(said), _LONGEST_WORDS)


def binding_command(account: str, member: str) -> str:
    """Return the command that lets a member impersonate a service account."""
    return f"gcloud iam service-accounts add-iam-policy-binding {account} --member={member} --role={ROLE}"
