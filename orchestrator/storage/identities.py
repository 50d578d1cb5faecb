"""Credentials for buckets that are reached as another identity than this computer's own.

One set of them serves all buckets that a process opens as one identity, so that an identity is not asked for again with
each bucket. It is made again every hour: static keys in a file may have been replaced.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.cloud_access import AWS_REGIONS, CloudAccess
from orchestrator.cloud_identities.role import USUAL_CALLER, AssumedRole, make_role_session
from orchestrator.cloud_identities.service_account import SCOPE, impersonate
from orchestrator.distribution import install_command
from orchestrator.errors import AccessError, CredentialsError

if TYPE_CHECKING:
    from obstore.store import GCSCredential, S3CredentialProvider

_KEPT_SECONDS = 3600
_USUAL_REGION = "us-east-1"
_MOST = 256  # identities of one process
# What botocore gives is good for ten minutes at least (RefreshableCredentials in credentials.py, 1.44.5), whatever the
# provider says of it.
_GIVEN_FOR = timedelta(minutes=5)


def role_credentials(access: CloudAccess) -> S3CredentialProvider:
    """Return the credentials of the role that an access names for S3. Sends nothing.

    Raises:
        AccessError: Amazon's library is not installed, or there are no credentials that could assume it.
    """
    given = dict(access.s3.identity)
    role = AssumedRole(
        arn=given["role_arn"], external_id=given.get("external_id", ""), caller=access.caller or USUAL_CALLER
    )
    made: S3CredentialProvider = _assume(role, access.aws_api, _region(os.environ), _hour())
    return made


def impersonated_tokens(access: CloudAccess) -> Callable[[], GCSCredential]:
    """Return what gives the tokens of the service account that an access names for Cloud Storage. Sends nothing.

    Raises:
        AccessError: Google's library is not installed, or there are no credentials that could impersonate it.
    """
    account, endpoint = dict(access.cloud_storage.identity)["impersonate"], access.google_api.rstrip("/")
    made: Callable[[], GCSCredential] = _impersonate(account, access.cloud_storage.token, endpoint, _hour())
    return made


@lru_cache(maxsize=_MOST)
def _assume(role: AssumedRole, endpoint: str, region: str, hour: int) -> Any:
    del hour
    try:
        provider: Any = import_module("obstore.auth.boto3").Boto3CredentialProvider
    except ImportError as error:
        why = f"the role {role.arn} is assumed with boto3, which is not installed"
        raise AccessError("cannot log in to AWS", why, install_command("aws")) from error
    base = import_module("botocore.session").get_session()
    session = make_role_session(base, role, region=region, endpoint=endpoint)
    try:
        return provider(session, ttl=_GIVEN_FOR)
    except Exception as error:  # botocore raises a dozen types here, and the provider its own
        why = f"this computer has no credentials that could assume the role {role.arn}"
        raise CredentialsError("cannot log in to AWS", why, "aws configure, or aws sso login") from error


@lru_cache(maxsize=_MOST)
def _impersonate(account: str, token: str, endpoint: str, hour: int) -> Any:
    del hour
    try:
        library: Any = import_module("google.auth")
    except ImportError as error:
        why = f"the service account {account} is impersonated with google-auth, which is not installed"
        raise AccessError("cannot log in to Google", why, install_command("google")) from error
    if token:
        source: Any = import_module("google.oauth2.credentials").Credentials(token)
    else:
        try:
            source, _ = library.default(scopes=[SCOPE])
        except library.exceptions.DefaultCredentialsError as error:
            why = f"this computer has no credentials that could impersonate {account}"
            step = "gcloud auth application-default login"
            raise CredentialsError("cannot log in to Google", why, step) from error
    transport: Any = import_module("google.auth.transport.requests").Request
    return _Tokens(impersonate(source, account, endpoint=endpoint), transport())


class _Tokens:
    """Gives the token of credentials, renewed when it ends soon (google-auth's own rule), to all clients."""

    def __init__(self, credentials: Any, transport: Any) -> None:
        self._credentials = credentials
        self._transport = transport
        self._lock = threading.Lock()

    def __call__(self) -> GCSCredential:
        with self._lock:
            if not self._credentials.valid:
                self._credentials.refresh(self._transport)
            return {"token": self._credentials.token, "expires_at": self._credentials.expiry.replace(tzinfo=UTC)}


def _region(environ: Mapping[str, str]) -> str:
    """Return whose STS is asked: that of the environment, which is known to be reachable and in the right partition."""
    return next((environ[name] for name in AWS_REGIONS if environ.get(name)), _USUAL_REGION)


def _hour() -> int:
    return int(time.monotonic() // _KEPT_SECONDS)
