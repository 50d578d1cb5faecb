"""Verification of Signature Version 4 ("Create a signed AWS API request" in the IAM User Guide, read November 2026)."""

from __future__ import annotations

import hashlib
import hmac
import re
from email.message import Message
from urllib.parse import parse_qsl, quote, urlsplit

_PARTS = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/,\s]+/(?P<scope>(?P<day>\d{8})/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request),"
    r"\s*SignedHeaders=(?P<signed>[^,\s]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)


def is_signed(secret: str, method: str, target: str, headers: Message, digest: str) -> bool:
    """Return whether the request carries the signature that this secret makes.

    Args:
        secret: Of the access key.
        method: GET, POST, ...
        target: Path and query as sent.
        headers: With the header Authorization.
        digest: What stands for the body: its SHA-256, or the value of x-amz-content-sha256.
    """
    parts = _PARTS.fullmatch(headers.get("Authorization", ""))
    if parts is None or "host" not in parts["signed"].split(";"):
        return False
    canonical = "\n".join(
        (
            method,
            _canonical_path(target, parts["service"]),
            _canonical_query(target),
            *(f"{name}:{_canonical_value(headers, name)}" for name in parts["signed"].split(";")),
            "",
            parts["signed"],
            digest,
        )
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", headers.get("X-Amz-Date", ""), parts["scope"], hashed))
    key = f"AWS4{secret}".encode()
    for word in (parts["day"], parts["region"], parts["service"], "aws4_request"):
        key = hmac.digest(key, word.encode(), "sha256")
    return hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), parts["signature"])


def _canonical_path(target: str, service: str) -> str:
    """Every service but S3 signs the path encoded twice."""
    path = urlsplit(target).path or "/"
    return path if service == "s3" else quote(path, safe="/-_.~")


def _canonical_query(target: str) -> str:
    pairs = parse_qsl(urlsplit(target).query, keep_blank_values=True)
    quoted = sorted((_quoted(name), _quoted(value)) for name, value in pairs)
    return "&".join(f"{name}={value}" for name, value in quoted)


def _canonical_value(headers: Message, name: str) -> str:
    return ",".join(" ".join(value.split()) for value in headers.get_all(name, []))


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
