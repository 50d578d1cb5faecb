"""One HTTP POST of JSON: no redirect is followed, and an answer other than 2xx is a failure."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from orchestrator.messages import escape_controls, to_one_line
from orchestrator.notifications.delivery_error import DEADLINE, TIMEOUT, DeliveryError, call_within

_MOST_READ = 2000  # bytes of an answer
_TRANSIENT = frozenset({408, 425, 429})  # besides 5xx (RFC 9110, RFC 6585, RFC 8470)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead a signed message, or the address of Slack, to another host."""

    def redirect_request(self, req: object, fp: object, code: int, msg: str, headers: object, newurl: str) -> None:
        return None


def post_json(url: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Send a body, and return the answer in words. The proxy of the environment is used, if there is one.

    Raises:
        DeliveryError: The message was not accepted, or no answer came.
    """
    target = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
    return call_within(DEADLINE, lambda: _post(url, target, body, headers), target)


def _post(url: str, target: str, body: bytes, headers: Mapping[str, str]) -> str:
    request = urllib.request.Request(  # noqa: S310  # settings.py admits http and https alone
        url, data=body, headers={"Content-Type": "application/json", "User-Agent": "orch", **headers}, method="POST"
    )
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            return f"{target} answered {answer.status}"
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(target, error) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        why = to_one_line(str(reason)) or type(reason).__name__
        raise DeliveryError(f"{target} could not be reached", why, is_transient=True) from None


def _refusal(target: str, error: urllib.error.HTTPError) -> DeliveryError:
    try:
        text = error.read(_MOST_READ).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        text = ""
    why = to_one_line(escape_controls(text))
    if 300 <= error.code < 400:
        why = "redirects are not followed: write the final address into the configuration"
    pause = error.headers.get("Retry-After", "")
    return DeliveryError(
        f"{target} answered {error.code}",
        why,
        is_transient=error.code in _TRANSIENT or error.code >= 500,
        retry_after=float(pause) if pause.isascii() and pause.isdecimal() else None,
    )
