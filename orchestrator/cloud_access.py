"""Where the clouds' services are called, and with which ready credentials: the only reader of these variables.

A command reads it once, at its start (`engine/services.py`), and hands it down. Whether an address is a server on this
computer is a question for the providers alone; everything else uses the addresses as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

GOOGLE_API = "ORCH_GCP_ENDPOINT"
GOOGLE_API_TOKEN = "ORCH_GCP_TOKEN"  # noqa: S105  # the name of a variable
AWS_API = "AWS_ENDPOINT_URL"  # boto3 and the aws command read it too
S3_API = "AWS_ENDPOINT_URL_S3"
CLOUD_STORAGE_API = "GOOGLE_BASE_URL"
CLOUD_STORAGE_SERVER = "STORAGE_EMULATOR_HOST"  # Google's client libraries read it too; such a server takes any token
CLOUD_STORAGE_TOKEN = "GOOGLE_BEARER_TOKEN"  # noqa: S105  # the name of a variable
ANY_TOKEN = "anonymous"  # noqa: S105  # for a server that takes any; obstore signs every write with some token
SIMULATED = "orch-simulated"  # how the credentials of a simulated cloud begin, so that none is taken for a real one
# Variables that choose an account; none of them is a secret. Sources: botocore, configprovider.py and credentials.py;
# google-auth, environment_vars.py; `gcloud topic configurations` (read November 2026).
ACCOUNT_CHOICES = frozenset(
    {
        AWS_API, "AWS_ACCESS_KEY_ID", "AWS_CONFIG_FILE", "AWS_DEFAULT_PROFILE", "AWS_PROFILE", "AWS_ROLE_ARN",
        "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
        GOOGLE_API, "CLOUDSDK_ACTIVE_CONFIG_NAME", "CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS",
    }
)  # fmt: skip
AWS_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAccess:
    """How one bucket service is reached.

    Attributes:
        endpoint: Its address; "" for the vendor's own.
        region: The region to sign for; "" to let the library choose.
        token: A ready bearer token; "" to log in as the vendor's tools do.
        identity: As whom it is called, as options of the drivers with their values; () for the credentials' own.
    """

    endpoint: str = ""
    region: str = ""
    token: str = field(default="", repr=False)
    identity: tuple[tuple[str, str], ...] = ()

    @property
    def without_tls(self) -> bool:
        """Whether the address is written with http://."""
        return self.endpoint.startswith("http://")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudAccess:
    """How the services of all clouds are reached.

    Attributes:
        google_api: Address in place of Google's APIs; "" for Google's own.
        google_token: The bearer token for that address; "" for a server that asks for none.
        aws_api: Address in place of the AWS APIs; "" for Amazon's own.
        cloud_storage: Cloud Storage, for gs:// buckets.
        s3: S3 or another store of the same API, for s3:// buckets.
        caller: For whom the services are called, as their audit logs show it where an identity is assumed.
    """

    google_api: str = ""
    google_token: str = field(default="", repr=False)
    aws_api: str = ""
    cloud_storage: BucketAccess = BucketAccess()
    s3: BucketAccess = BucketAccess()
    caller: str = ""


def read_cloud_access(environ: Mapping[str, str]) -> CloudAccess:
    """Read how the clouds are reached from the environment variables."""
    server = environ.get(CLOUD_STORAGE_SERVER, "")
    if server and "://" not in server:
        server = f"http://{server}"
    token = environ.get(CLOUD_STORAGE_TOKEN, "") or (ANY_TOKEN if server else "")
    storage = environ.get(CLOUD_STORAGE_API, "") or server
    region = next((environ[name] for name in AWS_REGIONS if environ.get(name)), "")
    aws = environ.get(AWS_API, "")
    return CloudAccess(
        google_api=environ.get(GOOGLE_API, ""),
        google_token=environ.get(GOOGLE_API_TOKEN, ""),
        aws_api=aws,
        cloud_storage=BucketAccess(endpoint=storage.rstrip("/"), token=token),
        s3=BucketAccess(endpoint=environ.get(S3_API, "") or aws, region=region),
    )


def digest_account_choice(environ: Mapping[str, str]) -> str:
    """Return a digest of the variables that choose the accounts of the clouds; "" when none does."""
    chosen = {name: value for name, value in environ.items() if name in ACCOUNT_CHOICES and value}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8] if chosen else ""
