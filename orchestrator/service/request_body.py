"""What is sent to a route: JSON of a program, or a form of this server's own page."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any
from urllib.parse import parse_qsl

from anyio import fail_after
from starlette.requests import ClientDisconnect, Request

from orchestrator.errors import AccessError, UserError
from orchestrator.service.route import Medium, Person, Role, Route

_MOST_BYTES = 2**20
_MOST_WITHOUT_TOKEN = 4096  # without a session or token: codes and names
_MOST_OF_OAUTH = 20_000  # the token of an issuer is in it
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
        if route.method != "GET" and person is not None and person.session:
            raise AccessError("a session changes something by a form alone", "", "the API is in /openapi.json")
        return None, ""
    if route.oauth:
        return await _read_oauth_form(request, route, person), ""
    in_form = route.medium is Medium.PAGE
    signs_in = in_form and route.role is Role.ANYONE and person is None  # no session yet: the browser says whose form
    if not signs_in and in_form != (person is not None and person.session):
        raise AccessError("a program sends JSON, a page its form", "", "the API is in /openapi.json")
    medium = _FORM if in_form else Medium.JSON.value
    if request.headers.get("content-type", "").partition(";")[0].strip() != medium:
        raise UserError(f"the body is not {medium}", "", "see /openapi.json")
    content = await _read_content(request, _MOST_BYTES if person is not None else _MOST_WITHOUT_TOKEN)
    if not in_form:
        key = request.headers.get("idempotency-key", "") if route.keyed else ""
        _refuse_key(route, key)
        return route.parse_body(content), key
    fields = dict(parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50))
    token, key = fields.pop(_FORM_TOKEN, ""), fields.pop(_FORM_KEY, "")
    # Who has no session has no token of it: the browser says that the form is this page's, and a secret is in it.
    own = _is_own_page(request, scheme)
    if not own or not (route.role is Role.ANYONE or secrets.compare_digest(token, make_form_token(request, cookie))):
        raise AccessError("this form is not one of this page's session", "", "open the page again, and repeat it")
    _refuse_key(route, key)
    return route.parse_body({name: value for name, value in fields.items() if value}), key


async def _read_oauth_form(request: Request, route: Route, person: Person | None) -> Any:
    """Return the form of a program. No session has a part in it, so that no page of a browser acts for a person."""
    if person is not None and person.session:
        raise AccessError("a program sends this, without a session", "", "the API is in /openapi.json")
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise UserError(f"the body is not {_FORM}", "", "see /openapi.json")
    content = await _read_content(request, _MOST_OF_OAUTH)
    try:
        found = parse_qsl(content.decode("utf-8", "replace"), max_num_fields=50)
    except ValueError:
        raise UserError("the body has too many fields", "", "see /openapi.json") from None
    if len({name for name, _ in found}) < len(found):
        raise UserError("a parameter is given twice", "RFC 6749 forbids that", "see /openapi.json")
    return route.parse_body(dict(found))


async def _read_content(request: Request, most: int) -> bytes:
    content = b""
    try:
        with fail_after(_BODY_SECONDS):
            async for part in request.stream():
                content += part
                if len(content) > most:
                    raise UserError("the body is too large", f"it has at most {most:,} bytes", "send less")
    except (TimeoutError, ClientDisconnect) as error:
        raise UserError("the body did not come", f"within {_BODY_SECONDS:.0f} s", "send it again") from error
    return content


def _refuse_key(route: Route, key: str) -> None:
    if route.keyed and not 8 <= len(key) <= 100:
        why = "the same request with the same key is done once"
        raise UserError("the header Idempotency-Key has 8 to 100 characters", why, "send a random one")


def _is_own_page(request: Request, scheme: str) -> bool:
    site = request.headers.get("sec-fetch-site")
    own = f"{scheme}://{request.headers['host']}"
    return request.headers.get("origin") == own if site is None else site == "same-origin"


def make_form_token(request: Request, cookie: str) -> str:
    """Return what forms of this session send back, which other sites cannot know."""
    return hashlib.sha256(f"form\0{request.cookies.get(cookie, '')}".encode()).hexdigest()
