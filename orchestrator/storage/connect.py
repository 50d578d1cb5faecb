"""Connections to cloud buckets, with addresses from `CloudAccess` and credentials as the vendors' tools find them.

S3 reads AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, then the profile of ~/.aws (needs boto3), then
the machine's role. A bucket's region is its own, whatever AWS_REGION says. Cloud Storage reads
GOOGLE_APPLICATION_CREDENTIALS, then the login of gcloud, then the machine's service account.

Where an access names an identity, these credentials assume that role, or impersonate that service account.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.store import GCSStore, S3Store

from orchestrator.cloud_access import BucketAccess, CloudAccess
from orchestrator.distribution import install_command
from orchestrator.errors import AccessError
from orchestrator.retries import BUCKET_READ
from orchestrator.storage.address import Address
from orchestrator.storage.cloud import CloudBackend
from orchestrator.storage.connection import Clients, Connection, Regions
from orchestrator.storage.faults import translate_cloud_errors
from trainer.checkpoint.bucket_region import DEFAULT_REGION, find_bucket_region

if TYPE_CHECKING:
    from obstore.store import (
        BackoffConfig,
        ClientConfig,
        GCSConfig,
        GCSCredential,
        RetryConfig,
        S3Config,
        S3CredentialProvider,
    )


def connect_bucket(address: Address, access: CloudAccess) -> CloudBackend:
    """Return the client for a bucket. Nothing is sent: the first request reports a wrong name or key."""
    with translate_cloud_errors(address, f"open {address.uri}"):
        if address.scheme == "gs":
            tokens = _find_tokens(access)
            gcs = partial(_gcs, address, access.cloud_storage, tokens)
            return CloudBackend(
                address, Connection(Clients(gcs(_standard_retries()), gcs(_single_try())), log_in=tokens)
            )
        role = _find_role(access)
        connect = partial(_s3, address, access.s3, role or _profile())
        region = access.s3.region or DEFAULT_REGION
        find = partial(find_bucket_region, address.container, access.s3.endpoint)
        return CloudBackend(address, Connection(connect(region), Regions(region, connect, find), log_in=role))


def _s3(address: Address, access: BucketAccess, provider: S3CredentialProvider | None, region: str) -> Clients:
    config: S3Config = {"region": region}
    if access.endpoint:
        config["endpoint"] = access.endpoint
    options = _client_options(access)

    def connect(retry: RetryConfig) -> S3Store:
        return S3Store(
            address.container, config=config, client_options=options, retry_config=retry, credential_provider=provider
        )

    return Clients(connect(_standard_retries()), connect(_single_try()))


def _gcs(
    address: Address, access: BucketAccess, provider: Callable[[], GCSCredential] | None, retry: RetryConfig
) -> GCSStore:
    config: GCSConfig = {}
    if access.endpoint:
        config["base_url"] = access.endpoint
    options = _client_options(access)
    return GCSStore(
        address.container, config=config, client_options=options, retry_config=retry, credential_provider=provider
    )


def _find_tokens(access: CloudAccess) -> Callable[[], GCSCredential] | None:
    """Return what gives the tokens for Cloud Storage; None to log in as the vendor's tools do."""
    if access.cloud_storage.identity:
        from orchestrator.storage.identities import impersonated_tokens

        return impersonated_tokens(access)
    return partial(_fixed_token, access.cloud_storage.token) if access.cloud_storage.token else None


def _find_role(access: CloudAccess) -> S3CredentialProvider | None:
    """Return the credentials of the role that an access names for S3; None for none."""
    if not access.s3.identity:
        return None
    from orchestrator.storage.identities import role_credentials

    return role_credentials(access)


def _fixed_token(token: str) -> GCSCredential:
    return {"token": token, "expires_at": None}


def _profile() -> S3CredentialProvider | None:
    """Return the credentials of an AWS profile, when the environment has none and a profile exists."""
    if any(os.environ.get(name) for name in _ENVIRONMENT_CREDENTIALS):
        return None
    home = Path(os.environ.get("HOME") or "/")
    shared = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws/credentials")
    config = Path(os.environ.get("AWS_CONFIG_FILE") or home / ".aws/config")
    if not (os.environ.get("AWS_PROFILE") or shared.is_file() or config.is_file()):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        why = "AWS credentials in a profile are read with boto3, which is not installed"
        raise AccessError(
            "cannot log in to AWS", why, f"{install_command('aws')}, or export AWS_ACCESS_KEY_ID"
        ) from error
    try:
        return Boto3CredentialProvider()
    except Exception as error:  # botocore raises a dozen types here
        why = f"the AWS profile has no credentials: {error}"
        raise AccessError("cannot log in to AWS", why, "aws configure, or aws sso login") from error


_ENVIRONMENT_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


def _client_options(access: BucketAccess) -> ClientConfig:
    return {
        "allow_http": access.without_tls,
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=60),
        "timeout": timedelta(minutes=10),
    }


def _standard_retries() -> RetryConfig:
    policy = BUCKET_READ
    backoff: BackoffConfig = {
        "init_backoff": timedelta(seconds=policy.backoff.first),
        "max_backoff": timedelta(seconds=policy.backoff.longest),
        "base": policy.backoff.factor,
    }
    retries = (policy.attempts or 1) - 1
    return {"backoff": backoff, "max_retries": retries, "retry_timeout": timedelta(seconds=policy.deadline or 0.0)}


def _single_try() -> RetryConfig:
    return {"max_retries": 0, "retry_timeout": timedelta(seconds=30)}
