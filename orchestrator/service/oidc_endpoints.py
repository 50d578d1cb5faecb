"""The two addresses of a sign-in by an identity provider: to it, and back from it. They are no rows of the table.

A sign-in is begun by a link of this server's page. It comes back from another site, so that the browser does not send
the session's cookie: the page that then leads on does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from orchestrator.errors import AccessError
from orchestrator.service.entrance import name_network
from orchestrator.service.entry_pages import choose_target
from orchestrator.service.gate import Gate
from orchestrator.service.oidc import ATTEMPT_SECONDS, Attempt, Identity, OidcClient
from orchestrator.service.pages import PageRenderer
from orchestrator.service.sign_in_limit import SIGN_IN_THREADS, SignInLimit

BEGIN, BACK = "/sign-in", "/sign-in/callback"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """What both endpoints share.

    Attributes:
        key: Signs attempts: that of all servers of the store.
        cookie: The name of the cookie of an attempt.
        scheme: Of the address by which the service is called.
        set_session: Gives the browser the cookie of a session.
        sees_callers: Whether no proxy stands before the service.
        limiter: Of the threads that wait for the provider: it may be slow, and pages must not be.
        limit: Of the sign-ins that take these threads.
    """

    client: OidcClient
    gate: Gate
    pages: PageRenderer
    key: bytes = field(repr=False)
    cookie: str
    scheme: str
    set_session: Callable[[Response, str], Response]
    sees_callers: bool
    limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(SIGN_IN_THREADS))
    limit: SignInLimit = field(default_factory=SignInLimit)

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider."""
        target = choose_target(request.query_params.get("target", ""))
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):  # begun by a page of another site
            return RedirectResponse("/login", 303)
        attempt = Attempt.begin(target)
        async with self.limit.admit(self._find_network(request)):
            address = await to_thread.run_sync(
                self.client.make_address, attempt, self._find_callback(request), limiter=self.limiter
            )
        response = RedirectResponse(address, 303)
        self._set_cookie(response, attempt.to_cookie(self.key, self.gate.clock()), ATTEMPT_SECONDS)
        return response

    async def come_back(self, request: Request) -> Response:
        """Open the session of who has signed in, or let them choose a name."""
        attempt = Attempt.parse(request.cookies.get(self.cookie, ""), self.key, self.gate.clock())
        if attempt is None:
            why = "the browser has no sign-in that began within ten minutes"
            raise AccessError("this sign-in was not begun in this browser", why, "sign in again")
        answer, callback = dict(request.query_params), self._find_callback(request)
        attempt.check_state(answer)  # what was not begun here takes no thread and asks no one
        async with self.limit.admit(self._find_network(request)):
            response = await to_thread.run_sync(self._complete, attempt, answer, callback, limiter=self.limiter)
        self._set_cookie(response, "", 0)
        return response

    def _complete(self, attempt: Attempt, answer: dict[str, str], callback: str) -> Response:
        identity = self.client.complete(attempt, answer, callback)
        session = self.gate.open_identity(identity, "")
        if session is not None:
            page = self.pages.render_entry("signed_in.html", {"target": choose_target(attempt.target)})
            return self.set_session(HTMLResponse(page), session)
        values = {
            "code": self.gate.keep_identity(identity), "name": suggest_member(identity), "provider": self.gate.provider,
            "target": choose_target(attempt.target), "error": None,
        }  # fmt: skip
        return HTMLResponse(self.pages.render_entry("choose_name.html", values))

    def _find_network(self, request: Request) -> str:
        return name_network(request.client.host) if self.sees_callers and request.client is not None else ""

    def _find_callback(self, request: Request) -> str:
        return f"{self.scheme}://{request.headers['host']}{BACK}"

    def _set_cookie(self, response: Response, value: str, seconds: int) -> None:
        secure = self.scheme == "https"
        response.set_cookie(self.cookie, value, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax")


def suggest_member(identity: Identity) -> str:
    """Return a name that a person might choose: from what their provider calls them."""
    name = identity.suggestion.partition("@")[0].lower().replace(" ", "-")
    return re.sub(r"[^a-z0-9._-]", "", name)[:40].strip("._-")
