"""How a cloud bucket is reached: endpoints and credentials, all from the environment.

S3 reads AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, and AWS_ENDPOINT_URL_S3 or
AWS_ENDPOINT_URL for other stores of the same dialect; then the profile of ~/.aws (needs boto3), then the
machine's role.
Cloud Storage reads GOOGLE_APPLICATION_CREDENTIALS, then the login of gcloud, then the machine's service account;
GOOGLE_BEARER_TOKEN is a ready token, and STORAGE_EMULATOR_HOST or GOOGLE_BASE_URL is another server to ask.
An endpoint that is written with http:// is used without TLS.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.store import GCSStore, S3Store

from orchestrator.errors import AccessError
from orchestrator.storage.address import Address
from orchestrator.storage.cloud import CloudBackend
from orchestrator.storage.faults import cloud_border

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


def connect(address: Address) -> CloudBackend:
    """Make the client for a bucket. Sends nothing: a wrong name or key shows at the first request."""
    with cloud_border(address, f"open {address.uri}"):
        if address.scheme == "gs":
            return CloudBackend(address, _gcs(address, _patient()), _gcs(address, _single_try()))
        provider = _profile()
        return CloudBackend(address, _s3(address, _patient(), provider), _s3(address, _single_try(), provider))


def _s3(address: Address, retry: RetryConfig, provider: S3CredentialProvider | None) -> S3Store:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    config: S3Config = {}
    if endpoint:
        config["endpoint"] = endpoint
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        config["region"] = region
    options = _client_options(endpoint)
    return S3Store(
        address.container, config=config, client_options=options, retry_config=retry, credential_provider=provider
    )


def _gcs(address: Address, retry: RetryConfig) -> GCSStore:
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    endpoint = os.environ.get("GOOGLE_BASE_URL") or emulator
    config: GCSConfig = {}
    if endpoint:
        config["base_url"] = endpoint.rstrip("/")
    provider = _fixed_token if os.environ.get("GOOGLE_BEARER_TOKEN") or emulator else None
    options = _client_options(endpoint)
    return GCSStore(
        address.container, config=config, client_options=options, retry_config=retry, credential_provider=provider
    )


def _fixed_token() -> GCSCredential:
    """For emulators: obstore signs every write, even when signing is switched off for reads."""
    return {"token": os.environ.get("GOOGLE_BEARER_TOKEN") or "anonymous", "expires_at": None}


def _profile() -> S3CredentialProvider | None:
    """The credentials of an AWS profile, when the environment has none and a profile exists."""
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
            "cannot log in to AWS", why, "pip install 'orch[aws]', or export AWS_ACCESS_KEY_ID"
        ) from error
    try:
        return Boto3CredentialProvider()
    except Exception as error:  # botocore raises a dozen types here, none of them a fault of ours
        why = f"the AWS profile gives no credentials: {error}"
        raise AccessError("cannot log in to AWS", why, "aws configure, or aws sso login") from error


_ENVIRONMENT_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


def _client_options(endpoint: str) -> ClientConfig:
    return {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": timedelta(seconds=60),
        "timeout": timedelta(minutes=10),
    }


def _patient() -> RetryConfig:
    backoff: BackoffConfig = {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=5),
        "base": 2,
    }
    return {"backoff": backoff, "max_retries": 6, "retry_timeout": timedelta(seconds=90)}


def _single_try() -> RetryConfig:
    return {"max_retries": 0, "retry_timeout": timedelta(seconds=30)}
