"""Finds the region of an S3 bucket. Trainer and orchestrator share it; this module needs only the standard library.

S3 refuses a request that was signed for another region than the bucket's, and names the right region in the header
x-amz-bucket-region of almost every answer about a bucket, also of a refusal and of an unsigned request (Amazon S3 API
reference, HeadBucket; read 2026-11-26). obstore shows the text of a refusal and not its headers, so an unsigned
HeadBucket is sent where the text does not name the region.
"""

from __future__ import annotations

import re

DEFAULT_REGION = "us-east-1"
_HEADER = "x-amz-bucket-region"
_SECONDS = 10.0
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+")
# AuthorizationHeaderMalformed: jsoma/flatware#10 (2016-04-27), showdoc#2126 (2024-01-04).
_NAMED = re.compile(r"<Region>([^<]+)</Region>|the region '[^']+' is wrong; expecting '([^']+)'")
# PermanentRedirect: yanganto/s3rs#18 (2019-01-17), apache/arrow-rs#2795 (2022-09-28). In regions that are opt-in it is
# IllegalLocationConstraintException: boto/boto3#3055, cloud-custodian#8005 (2022-11-16). HEAD is answered without body.
_SIGNS = re.compile(
    r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraintException|redirect without LOCATION"
    r"|status code: (?:301|400) [A-Za-z ]+:?\s*(?:\n|$)"
)


def is_region_refusal(text: str) -> bool:
    """Return whether the text of an error shows, or may show, that a request was signed for the wrong region."""
    return _SIGNS.search(text) is not None


def read_region_of_refusal(text: str) -> str:
    """Return the bucket's region from the text of a refusal; "" where it does not name one."""
    match = _NAMED.search(text)
    region = next(filter(None, match.groups()), "") if match else ""
    return region if _REGION.fullmatch(region) else ""


def find_bucket_region(bucket: str, endpoint: str = "", near: str = DEFAULT_REGION) -> str:
    """Return the region of a bucket by an unsigned HeadBucket; "" where the service names none or cannot be reached.

    Args:
        bucket: Its name.
        endpoint: Address of a service of the same API; "" for Amazon's own.
        near: The region whose endpoint is asked, where `endpoint` is "".
    """
    from email.message import Message
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class KeepRedirects(HTTPRedirectHandler):
        """The first answer names the region."""

        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    domain = "amazonaws.com.cn" if near.startswith("cn-") else "amazonaws.com"
    url = f"{endpoint.rstrip('/') or f'https://s3.{near}.{domain}'}/{bucket}"
    headers: Message
    try:
        request = Request(url, method="HEAD")  # noqa: S310  # the scheme is ours, or that of the user's endpoint
        with build_opener(KeepRedirects).open(request, timeout=_SECONDS) as answer:
            headers = answer.headers
    except HTTPError as error:
        headers = error.headers
    except (OSError, HTTPException, ValueError):
        return ""
    region = headers.get(_HEADER, "")
    return region if _REGION.fullmatch(region) else ""
