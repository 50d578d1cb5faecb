"""What is sent to a route: JSON of a program, or a form of this server's own page."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any
from urllib.parse import parse_qsl

from anyio import fail_after
from starlette.requests import ClientDisconnect, Request

from orchestrator.errors import AccessError, UserError
from orchestrator.service.route import Medium, Person, Route

_MOST_BYTES = 2**20
_BODY_SECONDS = 30.0
_FORM, _FORM_TOKEN, _FORM_KEY = "application/x-www-form-urlencoded", "_token", "_key"


async def read_body(
    request: Request, route: Route, person: Person | None, *, cookie: str, scheme: str
) -> tuple[Any, str]:
    """Return what was sent, and its key.

    A program sends JSON with its token. A person's browser sends a form with its session: one of this server's
    page, which has the form's token. So neither a page of another site nor a stolen cookie alone changes anything.

    Args:
        request: The request.
        route: Its route.
        person: Who sends it.
        cookie: The name of the session's cookie.
        scheme: Of the address by which the server is called.

    Raises:
        UserError: It is not what the route takes.
        AccessError: The form is of another page.
    """
    if route.request is None:
        return None, ""
    in_form = route.medium is Medium.PAGE
    if in_form != (person is not None and person.session):
        raise AccessError("a program sends JSON, a page its form", "", "the API is in /openapi.json")
    medium = _FORM if in_form else Medium.JSON.value
    if request.headers.get("content-type", "").partition(";")[0].strip() != medium:
        raise UserError(f"the body is not {medium}", "", "see /openapi.json")
    content = await _read_content(request)
    if not in_form:
        key = request.headers.get("idempotency-key", "") if route.keyed else ""
        _refuse_key(route, key)
        return route.parse_body(content), key
    fields = dict(parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
    token, key = fields.pop(_FORM_TOKEN, ""), fields.pop(_FORM_KEY, "")
    if not _is_own_form(request, token, cookie, scheme):
        raise AccessError("this form is not one of this page's session", "", "open the page again, and repeat it")
    _refuse_key(route, key)
    return route.parse_body({name: value for name, value in fields.items() if value}), key


async def _read_content(request: Request) -> bytes:
    content = b""
    try:
        with fail_after(_BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > _MOST_BYTES:
                    raise UserError("the body is too large", f"it has at most {_MOST_BYTES:,} bytes", "send less")
    except (TimeoutError, ClientDisconnect) as error:
        raise UserError("the body did not come", f"within {_BODY_SECONDS:.0f} s", "send it again") from error
    return content


def _refuse_key(route: Route, key: str) -> None:
    if route.keyed and not 8 <= len(key) <= 100:
        why = "the same request with the same key is done once"
        raise UserError("the header Idempotency-Key has 8 to 100 characters", why, "send a random one")


def _is_own_form(request: Request, token: str, cookie: str, scheme: str) -> bool:
    own = f"{scheme}://{request.headers['host']}"
    site = request.headers.get("sec-fetch-site")
    is_own = request.headers.get("origin") == own if site is None else site == "same-origin"
    return is_own and secrets.compare_digest(token, make_form_token(request, cookie))


def make_form_token(request: Request, cookie: str) -> str:
    """Return what forms of this session send back, which other sites cannot know."""
    return hashlib.sha256(f"form\0{request.cookies.get(cookie, '')}".encode()).hexdigest()
