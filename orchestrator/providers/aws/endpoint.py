"""Whether the AWS that is asked stands on this computer."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

ENDPOINT = "AWS_ENDPOINT_URL"  # where boto3 and the aws command look for another server
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


def loopback_endpoint() -> str:
    """The server on this computer that stands in for AWS; "" for AWS itself, and for any other server."""
    value = os.environ.get(ENDPOINT, "")
    try:
        here = urlsplit(value).hostname in _HERE
    except ValueError:
        here = False
    return value.rstrip("/") if here else ""
