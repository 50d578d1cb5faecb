"""Where a bucket is, asked from Cloud Storage with the user's credentials."""

from __future__ import annotations

from typing import Any

from orchestrator.catalog.buckets import BucketPlace
from orchestrator.errors import CloudError
from orchestrator.providers.google.session import Session, open_session


def place_of(name: str, session: Session | None = None) -> BucketPlace:
    """By buckets.get of the JSON API v1: `location`, and the pair of a dual-region in `customPlacementConfig`.

    Raises AccessError without credentials, CloudError when the service does not tell.
    """
    from google.auth.exceptions import GoogleAuthError
    from googleapiclient.errors import Error  # type: ignore[import-untyped]  # the library ships no types
    from httplib2 import HttpLib2Error  # type: ignore[import-untyped]  # the library ships no types

    service: Any = (session or open_session()).service("storage", "v1", timeout=10.0)
    fields = "location,customPlacementConfig/dataLocations"
    try:
        found = service.buckets().get(bucket=name, fields=fields).execute(num_retries=1)
    except (Error, HttpLib2Error, GoogleAuthError, OSError) as error:
        raise CloudError(
            f"cannot look at gs://{name}", str(error).splitlines()[0], f"orch storage ls gs://{name}"
        ) from error
    pair = found.get("customPlacementConfig", {}).get("dataLocations", ())
    return BucketPlace(str(found.get("location", "")), tuple(str(region).lower() for region in pair))
