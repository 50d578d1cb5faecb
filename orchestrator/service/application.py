"""The ASGI application: it turns the table of routes into endpoints, and holds every request to the same rules.

Each request passes, in this order: the name of the host, the route, who asks, the parameters, the handler. A page of
another site can neither read nor change anything: there is no CORS, and a change needs either a token, or a session, a
request of this server's page, and what its form had.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route as Endpoint

from orchestrator.acting import acting_as
from orchestrator.errors import AccessError, NotFoundError, OrchError, UserError
from orchestrator.paths import load_paths
from orchestrator.service.entrance import Entrance, name_network
from orchestrator.service.entry_pages import choose_target
from orchestrator.service.event_stream import BusyStreamsError, EventHub
from orchestrator.service.gate import SESSION_SECONDS, Gate
from orchestrator.service.issuer import BusyIssuerError
from orchestrator.service.oidc import OidcClient
from orchestrator.service.oidc_endpoints import BACK, BEGIN, SignIn
from orchestrator.service.oidc_settings import OidcSettings
from orchestrator.service.openapi import describe_api
from orchestrator.service.output_answer import answer_with_output
from orchestrator.service.output_waits import OutputWaits
from orchestrator.service.pages import PageRenderer, find_static_file
from orchestrator.service.planners import BusyPlannerError, MemberShares, Planners
from orchestrator.service.problems import describe_problem, find_http_status, hide_database, refuse_old_client
from orchestrator.service.request_body import make_form_token, read_body
from orchestrator.service.route import Answer, Call, Medium, Person, Role, Route
from orchestrator.service.routes import ROUTES
from orchestrator.service.site import Site
from orchestrator.service.streams import Streams
from orchestrator.service.upload import receive_file
from orchestrator.service_version import HEADER

_LOG = logging.getLogger("uvicorn.error")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_RECEIVED = 4  # files at a time; others wait
_THREADS = 8  # handlers read the store and buckets, which blocks
_SUMS = 8  # requests for sums at a time: each may wait for those of other members (long_sums.py)
_EXCHANGES = 40  # tokens of CI at a time: one waits for each slow issuer, and few use the store (token_exchange.py)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SIGN_IN = "orch serve --link   prints a link that opens the page, on the computer of the service"
Handler = Callable[[Request], Awaitable[Response]]
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the endpoints share.

    Attributes:
        hosts: Names and ports by which this server is called; others are refused (DNS rebinding).
        cookie: The name of the session's cookie; cookies of a host are shared by its ports.
        scheme: Of the address by which it is called.
        received: The folder of what is being received.
        receiving: How many files are received at a time.
        senders: Who sends them, or waits to; used in the event loop alone.
        shares: How many of its threads each member has at a time.
        summing: Of the threads that make sums, or wait for long ones.
        planners: The threads that make plans, which take seconds of a processor.
        exchanging: Of the threads that wait for issuers of tokens.
        audiences: See Call.audiences.
        sees_callers: Whether no proxy stands before it.
        version: Of this orch, which every answer has.
    """

    site: Site
    gate: Gate
    hub: EventHub
    waits: OutputWaits
    pages: PageRenderer
    hosts: frozenset[str]
    cookie: str
    scheme: str
    limiter: CapacityLimiter
    received: Path
    receiving: CapacityLimiter
    shares: MemberShares
    summing: CapacityLimiter
    planners: Planners
    exchanging: CapacityLimiter
    audiences: frozenset[str]
    sees_callers: bool
    version: str
    senders: list[str] = field(default_factory=list[str])


def build_application(
    site: Site, gate: Gate, entrance: Entrance, port: int, version: str, provider: OidcSettings | None = None
) -> tuple[Starlette, Streams]:
    """Return the application of a site, and its streams.

    Args:
        site: What is served.
        gate: Who may enter.
        entrance: By which names it is called.
        port: The port on which it listens.
        version: The version of orch.
        provider: The identity provider by which people sign in.
    """
    service = Service(
        site=site,
        gate=gate,
        hub=EventHub(site=site),
        waits=OutputWaits(site=site),
        pages=PageRenderer.create(version),
        hosts=entrance.list_hosts(port),
        cookie="__Host-orch_session" if entrance.is_secure else f"orch_session_{port}",
        scheme=entrance.scheme,
        limiter=CapacityLimiter(_THREADS),
        received=load_paths().state / "service" / "received",
        receiving=CapacityLimiter(_RECEIVED),
        shares=MemberShares(most=_THREADS // 2),
        summing=CapacityLimiter(_SUMS),
        planners=Planners(),
        exchanging=CapacityLimiter(_EXCHANGES),
        audiences=entrance.list_audiences(port),
        sees_callers=not entrance.behind_proxy,
        version=version,
    )
    document = json.dumps(describe_api(ROUTES, version))

    async def show_openapi(_request: Request) -> Response:
        return Response(document, media_type="application/json")

    application = Starlette(
        routes=[
            *_list_endpoints(service),
            Endpoint("/openapi.json", _only_named_hosts(service, show_openapi)),
            Endpoint("/static/{name}", _only_named_hosts(service, _send_static)),
            *_list_sign_in_endpoints(service, provider, port),
            Endpoint("/v1/links", _only_named_hosts(service, _make_link(service)), methods=["POST"]),
            Endpoint("/{path:path}", _only_named_hosts(service, _refuse_path(service))),
        ],
        middleware=[
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=4)
        ],  # 9 takes three times as long, for 2 %
    )
    return application, Streams(events=service.hub, output=service.waits)


def _list_endpoints(service: Service) -> list[Endpoint]:
    """Return the endpoint of each route, and for each path the one that refuses all other methods."""
    endpoints = [
        Endpoint(route.path, _guard(service, route, _answer_of(service, route)), methods=[route.method])
        for route in ROUTES
    ]
    served: dict[str, set[str]] = {}
    for route in ROUTES:
        served.setdefault(route.path, set()).update(
            (route.method, "HEAD") if route.method == "GET" else (route.method,)
        )
    others = [
        Endpoint(path, _only_named_hosts(service, _refuse_method(service, methods)), methods=[*_METHODS - methods])
        for path, methods in served.items()
    ]
    return [*endpoints, *others]


def _list_sign_in_endpoints(service: Service, provider: OidcSettings | None, port: int) -> list[Endpoint]:
    if provider is None:
        return []
    sign_in = SignIn(
        client=OidcClient(settings=provider),
        gate=service.gate,
        pages=service.pages,
        key=service.gate.read_sign_in_key(),
        cookie="__Host-orch_sign_in" if service.scheme == "https" else f"orch_sign_in_{port}",
        scheme=service.scheme,
        set_session=lambda response, secret: set_session(service, response, secret),
        sees_callers=service.sees_callers,
    )

    def show(handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except OrchError as error:
                return _show_error(service, request, error, Medium.PAGE, find_http_status(error))

        return _only_named_hosts(service, answer)

    read = {"GET", "HEAD"}
    others = _only_named_hosts(service, _refuse_method(service, read))
    return [
        Endpoint(BEGIN, show(sign_in.begin)),
        Endpoint(BACK, show(sign_in.come_back)),
        *(Endpoint(path, others, methods=[*_METHODS - read]) for path in (BEGIN, BACK)),
    ]


def _only_named_hosts(service: Service, handler: Handler) -> Handler:
    """Wrap an endpoint: refuse other host names, and add the headers of every answer."""

    async def answer(request: Request) -> Response:
        if request.headers.get("host", "") not in service.hosts:
            error = UserError("this server is not called by that name", "", f"{service.scheme}://{min(service.hosts)}/")
            response = _show_error(service, request, error, Medium.JSON, 421)
        else:
            response = await _answer_or_explain(service, handler, request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers[HEADER] = service.version
        if service.scheme == "https":
            response.headers.setdefault("Strict-Transport-Security", "max-age=31536000")
        return response

    return answer


async def _answer_or_explain(service: Service, handler: Handler, request: Request) -> Response:
    """Answer; an error that no route expects becomes a problem, and a defect is written to the log as well."""
    try:
        return await handler(request)
    except OrchError as error:
        return _show_error(service, request, error, Medium.JSON, find_http_status(error))
    except Exception as error:
        _LOG.exception("a defect of orch: %s %s", request.method, request.url.path)
        defect = OrchError(
            f"a defect of orch: {type(error).__name__}", "the traceback is in the log of orch serve", "report it"
        )
        return _show_error(service, request, defect, Medium.JSON, 500)


def _guard(service: Service, route: Route, handler: Callable[[Request, Person | None], Awaitable[Response]]) -> Handler:
    """Wrap an endpoint of the table: who asks, whether they may, and errors in the route's medium."""

    async def answer(request: Request) -> Response:
        try:
            if route.path.startswith("/v1/"):
                refuse_old_client(request.headers.get(HEADER), route.oldest_client, service.version)
        except OrchError as refusal:
            return _show_error(service, request, refusal, route.medium, find_http_status(refusal))
        try:
            person = None if route.immediate else await _run(service, _identify, service, request)
        except OrchError as failure:  # such as: the store cannot be read
            if route.role > Role.ANYONE:
                return _show_error(service, request, failure, route.medium, find_http_status(failure))
            person = None
        if route.role > Role.ANYONE and person is None:
            error = AccessError("this needs a session or a token", "", _SIGN_IN)
            return _show_error(service, request, error, route.medium, 401)
        if person is not None and person.role < route.role:
            what = f"this needs the role {route.role.name.lower()}"
            refused = AccessError(what, f"you are {person.role.name.lower()}", "ask who runs the service")
            return _show_error(service, request, refused, route.medium, 403)
        try:
            return await handler(request, person)
        except OrchError as error:
            return _show_error(service, request, error, route.medium, find_http_status(error))

    return _only_named_hosts(service, answer)


async def _run(service: Service, function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Run a function in a thread of those that all routes share."""
    return await to_thread.run_sync(function, *arguments, limiter=service.limiter)


def _identify(service: Service, request: Request) -> Person | None:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind:
        return service.gate.identify(bearer=secret.strip()) if kind.lower() == "bearer" else None
    return service.gate.identify(session=request.cookies.get(service.cookie, ""))


def _answer_of(service: Service, route: Route) -> Callable[[Request, Person | None], Awaitable[Response]]:
    async def answer(request: Request, person: Person | None) -> Response:
        given = request.query_params
        query = route.parse_query({name: given.getlist(name) for name in given})
        if route.handler is None:
            after = query["after"] if "after" in request.query_params else None
            return _stream(service, request, after, person, query["progress"])
        if route.most_content:
            async with receive_file(
                request, route, person, service.received, service.receiving, service.senders
            ) as file:
                return await _call(service, request, route, person, query, file)
        body, key = await read_body(request, route, person, cookie=service.cookie, scheme=service.scheme)
        return await _call(service, request, route, person, query, body, key)

    return answer


async def _call(
    service: Service,
    request: Request,
    route: Route,
    person: Person | None,
    query: Mapping[str, Any],
    body: Any,
    key: str = "",
) -> Response:
    if any("\0" in part for part in request.path_params.values()):
        raise UserError("the address has a NUL character", "no name has one", "see /openapi.json")
    call = Call(
        site=service.site,
        gate=service.gate,
        person=person,
        session=request.cookies.get(service.cookie, ""),
        address=f"{service.scheme}://{request.headers['host']}",
        audiences=service.audiences,
        caller=name_network(request.client.host) if service.sees_callers and request.client is not None else "",
        body=body,
        key=key,
        form_token=make_form_token(request, service.cookie),
        path=request.path_params,
        query=query,
    )
    handler = route.handler
    assert handler is not None  # noqa: S101  # streams are served before
    with acting_as(person.name if person is not None else ""):
        if route.immediate:
            return _respond(service, request, route, call, handler(call))

        def respond() -> Response:
            return _respond(service, request, route, call, handler(call))

        if route.computes:
            return await service.planners.run(person.name if person is not None else "", respond)
        if route.oauth:
            return await to_thread.run_sync(respond, limiter=service.exchanging)
        if route.medium is Medium.OUTPUT:
            packed = "gzip" in request.headers.get("accept-encoding", "")
            return await answer_with_output(
                service.waits, service.shares, service.limiter, handler, call, packed=packed
            )
        async with service.shares.of(person.name if person is not None else f"network {call.caller}"):
            return await to_thread.run_sync(respond, limiter=service.summing if route.sums else service.limiter)


def _respond(service: Service, request: Request, route: Route, call: Call, made: Answer) -> Response:
    if route.medium is Medium.PAGE and made.location:
        return set_session(service, RedirectResponse(made.location, made.status), made.session)
    following = (
        f"{request.url.path}?{urlencode(dict(request.query_params) | dict(made.following))}" if made.following else ""
    )
    if route.medium is Medium.JSON:
        content = made.text or json.dumps(made.document)
    elif route.medium is Medium.PAGE:
        values = {"form_token": call.form_token} | dict(made.values)
        content = service.pages.render(made.template, values, route=route, following=following, person=call.person)
    else:
        content = made.text
    if made.session is not None or made.secret:
        response = Response(content, made.status, media_type=route.medium.value, headers={"Cache-Control": "no-store"})
        return set_session(service, response, made.session)
    tag = f'W/"{hashlib.sha256(content.encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if following:
        headers["Link"] = f'<{following}>; rel="next"'
    if made.location:
        headers["Location"] = made.location
    if made.status == 200 and request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, made.status, media_type=route.medium.value, headers=headers)


def set_session(service: Service, response: Response, secret: str | None) -> Response:
    """Give the browser the cookie of a session, or take it away: see Answer.session."""
    secure = service.scheme == "https"
    if secret:
        response.set_cookie(
            service.cookie,
            secret,
            max_age=int(SESSION_SECONDS),
            path="/",
            secure=secure,
            httponly=True,
            samesite="strict",
        )
    elif secret is not None:
        response.delete_cookie(service.cookie, path="/", secure=secure, httponly=True, samesite="strict")
    return response


def _stream(
    service: Service, request: Request, after: int | None, person: Person | None, progress: int | None
) -> Response:
    """Answer with the stream of events and progress, after the numbers that the client has."""
    seen = request.headers.get("last-event-id", "")
    if seen:
        if not seen.isascii() or not seen.isdigit() or len(seen) > 18:
            raise UserError("Last-Event-ID is not the number of an event", "", "leave it out")
        after = int(seen)
    member, only_project = (person.name, person.project) if person is not None else ("", "")
    service.hub.check_room(member)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if request.method == "HEAD":
        return Response(media_type=Medium.EVENTS.value, headers=headers)
    messages = service.hub.listen(after, only_project, member, progress)
    return StreamingResponse(messages, media_type=Medium.EVENTS.value, headers=headers)


def _show_error(service: Service, request: Request, error: OrchError, medium: Medium, status: int) -> Response:
    """Return an error as a page or as problem details."""
    name = secrets.token_hex(8)
    error = hide_database(error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status == 426:
        headers["Upgrade"] = f"orch/{service.version}"  # RFC 9110, section 15.5.22
    if isinstance(error, BusyIssuerError | BusyPlannerError | BusyStreamsError):
        headers["Retry-After"] = "1"
    if medium is Medium.PAGE:
        page = f"{request.url.path}?{request.url.query}".removesuffix("?")
        content = service.pages.render_error(error, status, target=choose_target(page) if status == 401 else "")
        return Response(content, status, headers=headers, media_type=Medium.PAGE.value)
    problem = describe_problem(error, status, name)
    return Response(json.dumps(problem), status, headers=headers, media_type="application/problem+json")


async def _send_static(request: Request) -> Response:
    found = find_static_file(request.path_params["name"])
    if found is None:
        return Response("there is no such file\n", 404, media_type="text/plain")
    content, medium = found
    return Response(content, media_type=medium, headers={"Cache-Control": "public, max-age=31536000, immutable"})


def _make_link(service: Service) -> Handler:
    """Return the endpoint by which a program gets a link for its member. It takes a token, not a session."""

    async def answer(request: Request) -> Response:
        person = await to_thread.run_sync(_identify, service, request, limiter=service.limiter)
        if person is None or person.session:
            error = AccessError("this needs the token", "", "orch serve --link")
            return _show_error(service, request, error, Medium.JSON, 401)
        bearer = request.headers["authorization"].partition(" ")[2].strip()
        link = await to_thread.run_sync(service.gate.make_link, bearer, limiter=service.limiter)
        return Response(json.dumps({"link": link}), 201, media_type="application/json")

    return answer


def _refuse_method(service: Service, methods: set[str]) -> Handler:
    async def answer(request: Request) -> Response:
        error = UserError(f"{request.url.path[:80]} is not called with {request.method}", "", "see /openapi.json")
        response = _show_error(service, request, error, Medium.JSON, 405)
        response.headers["Allow"] = ", ".join(sorted(methods))
        return response

    return answer


def _refuse_path(service: Service) -> Handler:
    async def answer(request: Request) -> Response:
        medium = Medium.JSON if request.url.path.startswith("/v1/") else Medium.PAGE
        error = NotFoundError(
            f"there is no {request.url.path[:80]}", "", "the page of runs is at /, the API in /openapi.json"
        )
        return _show_error(service, request, error, medium, 404)

    return answer
