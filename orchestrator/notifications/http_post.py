"""One HTTP POST of JSON: no redirect is followed, and an answer other than 2xx is a failure."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

from orchestrator.conversation import Conversation, StatusError, open_answer
from orchestrator.messages import escape_controls, to_one_line
from orchestrator.notifications.delivery_error import DEADLINE, DeliveryError

_MOST_BYTES = 131_072  # of an answer, of which 2,000 are read where it is a refusal
_TRANSIENT = frozenset({408, 425, 429})  # besides 5xx (RFC 9110, RFC 6585, RFC 8470)


def post_json(url: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Send a body, and return the answer in words. The proxy of the environment is used, if there is one.

    Raises:
        DeliveryError: The message was not accepted, or no answer came.
    """
    target = f"{urlsplit(url).scheme}://{urlsplit(url).netloc}"
    request = urllib.request.Request(  # noqa: S310  # settings.py admits http and https alone
        url, data=body, headers={"Content-Type": "application/json", "User-Agent": "orch", **headers}, method="POST"
    )
    try:
        with (
            Conversation(seconds=DEADLINE, most_bytes=_MOST_BYTES) as conversation,
            open_answer(request, conversation) as answer,
        ):
            return f"{target} answered {answer.status}"
    except StatusError as error:
        raise _refusal(target, error) from None
    except TimeoutError:
        raise DeliveryError(f"{target} did not answer within {DEADLINE:.0f} s", is_transient=True) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        why = to_one_line(str(reason)) or type(reason).__name__
        raise DeliveryError(f"{target} could not be reached", why, is_transient=True) from None


def _refusal(target: str, error: StatusError) -> DeliveryError:
    why = to_one_line(escape_controls(error.text))
    if 300 <= error.status < 400:
        why = "redirects are not followed: write the final address into the configuration"
    pause = error.headers.get("Retry-After", "")
    return DeliveryError(
        f"{target} answered {error.status}",
        why,
        is_transient=error.status in _TRANSIENT or error.status >= 500,
        retry_after=float(pause) if pause.isascii() and pause.isdecimal() else None,
    )
