"""Whether the AWS that is asked stands on this computer."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from orchestrator.cloud_access import AWS_API, read_cloud_access

ENDPOINT = AWS_API
_HERE = frozenset({"127.0.0.1", "::1", "localhost"})


def loopback_endpoint() -> str:
    """The server on this computer that stands in for AWS; "" for AWS itself, and for any other server."""
    value = read_cloud_access(os.environ).aws_api
    try:
        here = urlsplit(value).hostname in _HERE
    except ValueError:
        here = False
    return value.rstrip("/") if here else ""
