"""Where a bucket is, asked from S3 with the user's credentials."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.errors import CloudError
from orchestrator.providers.aws.faults import one_line
from orchestrator.providers.aws.session import AwsSession, open_session

_REGION = "x-amz-bucket-region"  # S3 says it with every answer about a bucket, also with a refusal (HeadBucket, 2026)


def place_of(name: str, session: AwsSession | None = None) -> BucketPlace:
    """Its region.

    Raises AccessError without credentials, CloudError when S3 does not tell.
    """
    of: Any = import_module("botocore.exceptions")
    session = session or open_session()
    client = session.client("s3", session.region)
    try:
        answer: Any = client.head_bucket(Bucket=name)
    except of.ClientError as error:
        answer = error.response
        if not _region(answer):
            raise _untold(name, error) from error
    except (of.BotoCoreError, OSError) as error:
        raise _untold(name, error) from error
    region = _region(answer)
    if not region:
        raise CloudError(f"cannot look at s3://{name}", "S3 does not say where it is", f"orch storage ls s3://{name}")
    return BucketPlace(region)


def _region(answer: Any) -> str:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(answer.get("BucketRegion") or headers.get(_REGION) or "")


def _untold(name: str, error: Exception) -> CloudError:
    return CloudError(f"cannot look at s3://{name}", one_line(str(error)), f"orch storage ls s3://{name}")
