"""Sign-ins that are forged, many or slow: they hold up no one else's."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import anyio
import pytest
from support.oidc_provider import CLIENT, Claims, Provider, oidc_provider
from support.orch_process import Orch, until
from support.service_site import Reply, Served, serve

from orchestrator.errors import AccessError
from orchestrator.service.guesses import GUESS_SECONDS, MOST_WRONG, GuessCounter
from orchestrator.service.issuer import BusyIssuerError
from orchestrator.service.oidc import Attempt, UnlistedPersonError
from orchestrator.service.sign_in_limit import MOST_OF_NETWORK, MOST_REFUSED, MOST_WAITING, SignInLimit

FORGED = 60
BACK = "/sign-in/callback"


class SlowProvider:
    """A provider whose token endpoint answers when it is let to."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.calls = 0
        self.goes_on = threading.Event()
        self.redeem = provider.redeem

    def answer_late(self, authorization: str, form: dict[str, str]) -> tuple[int, Claims]:
        self.calls += 1
        self.goes_on.wait(60)
        return self.redeem(authorization, form)


@contextmanager
def slow(provider: Provider) -> Generator[SlowProvider]:
    made = SlowProvider(provider)
    provider.redeem = made.answer_late  # type: ignore[method-assign]  # the provider is the test's
    try:
        yield made
    finally:
        made.goes_on.set()
        provider.redeem = made.redeem  # type: ignore[method-assign]  # the same


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Provider]]:
    orch = Orch(tmp_path_factory.mktemp("limits"), {"ORCH_OIDC_SECRET": "s3cr3t/of+the test"})
    rules = ("--oidc-allow", "member:email=ada@example.org", "--oidc-allow", "member:sub=ben")
    with (
        oidc_provider() as provider,
        serve(orch, "--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT, *rules) as site,
    ):
        yield site, provider


def begin(site: Served) -> tuple[str, str]:
    begun = site.ask("/sign-in", signed=False, sec_fetch_site="same-origin")
    assert begun.status == 303, begun.text
    return begun.headers["set-cookie"].partition(";")[0], begun.headers["location"]


def find_state(address: str) -> str:
    return address.partition("&state=")[2].partition("&")[0]


def visit(provider: Provider, address: str) -> str:
    connection = HTTPConnection("127.0.0.1", urlsplit(address).port or 0, timeout=10)
    connection.request("GET", address.removeprefix(provider.issuer))
    back = urlsplit(connection.getresponse().headers["Location"])
    connection.close()
    return f"{back.path}?{back.query}"


def come_back(site: Served, path: str, cookie: str) -> Reply:
    return site.ask(path, signed=False, sec_fetch_site="cross-site", cookie=cookie)


def test_forged_callbacks_ask_the_provider_nothing(parts: tuple[Served, Provider]) -> None:
    site, provider = parts
    site.patience = 60.0
    cookie, address = begin(site)
    with slow(provider) as late, ThreadPoolExecutor(FORGED) as pool:
        own = Attempt.begin("/")
        forged = f"orch_sign_in_{site.port}={own.to_cookie(b'guessed', 1e10)}"
        path = f"{BACK}?code=x&state={own.state}&iss={provider.issuer}"
        answers = [one.result() for one in [pool.submit(come_back, site, path, forged) for _ in range(FORGED)]]
        assert {one.status for one in answers} == {403} and late.calls == 0
        stolen = come_back(site, f"{BACK}?code=x&state={secrets.token_urlsafe(32)}", cookie)
        assert stolen.status == 403 and late.calls == 0, "neither is another state"
        late.goes_on.set()
        provider.person = {"sub": "ben"}
        assert come_back(site, visit(provider, address), cookie).status == 200


def test_a_slow_provider_holds_up_its_own_sign_ins_alone(parts: tuple[Served, Provider]) -> None:
    site, provider = parts
    site.patience = 60.0
    begun = [begin(site) for _ in range(MOST_WAITING + 5)]
    with slow(provider) as late, ThreadPoolExecutor(len(begun)) as pool:
        paths = [f"{BACK}?code=x&state={find_state(address)}&iss={provider.issuer}" for _, address in begun]
        sent = [pool.submit(come_back, site, path, cookie) for path, (cookie, _) in zip(paths, begun, strict=True)]
        until("the queue is full", lambda: sum(one.done() for one in sent) == 5)
        assert late.calls == MOST_OF_NETWORK, "one network has not every thread"
        assert {one.result().status for one in sent if one.done()} == {503}
        for path in ("/v1/runs", "/v1/clusters", "/healthz", "/readyz"):
            assert site.ask(path).status == 200
        assert come_back(site, f"{BACK}?code=x&state=y", "").status == 403
        late.goes_on.set()
        assert {one.result().status for one in sent} == {403, 503}


@pytest.mark.parametrize("place", ["the token", "the profile"])
def test_an_address_that_is_verified_in_the_profile_alone_lets_in(parts: tuple[Served, Provider], place: str) -> None:
    site, provider = parts
    in_token = {"email": "ada@example.org"} if place == "the token" else {}
    provider.person = {"sub": f"ada of {place}"} | in_token
    cases: list[tuple[Claims, int]] = [
        ({"email": "ada@example.org"}, 403),
        ({"email": "ada@example.org", "email_verified": True, "sub": "eve"}, 403),
        ({"email": "eve@example.org", "email_verified": True}, 403),
        ({"email": "ada@example.org", "email_verified": "true"}, 403),
        ({"email": "ada@example.org", "email_verified": True}, 200),
    ]
    for profile, status in cases:
        provider.profile = {"sub": provider.person["sub"]} | profile
        cookie, address = begin(site)
        shown = come_back(site, visit(provider, address), cookie)
        assert shown.status == status, (profile, shown.text)


def test_refused_sign_ins_are_counted_by_network_and_those_of_unlisted_people_are_not() -> None:
    async def try_all() -> None:
        limit = SignInLimit()

        async def refuse(network: str, error: AccessError) -> None:
            with pytest.raises(type(error)):
                async with limit.admit(network):
                    raise error

        for _ in range(2 * MOST_REFUSED):
            await refuse("192.0.2.1", UnlistedPersonError("no rule"))
            await refuse("", AccessError("behind a proxy"))
        for _ in range(MOST_REFUSED):
            await refuse("192.0.2.1", AccessError("invalid_grant"))
        with pytest.raises(AccessError, match="from your network"):
            async with limit.admit("192.0.2.1"):
                raise AssertionError
        for network in ("192.0.2.2", ""):
            async with limit.admit(network):
                pass

    anyio.run(try_all)


def test_a_network_waits_for_itself_alone() -> None:
    async def try_all() -> None:
        limit, goes_on, entered = SignInLimit(), anyio.Event(), 0

        async def enter(network: str) -> None:
            nonlocal entered
            async with limit.admit(network):
                entered += 1
                await goes_on.wait()

        async with anyio.create_task_group() as group:
            for _ in range(MOST_WAITING):
                group.start_soon(enter, "192.0.2.1")
            await anyio.wait_all_tasks_blocked()
            assert entered == MOST_OF_NETWORK
            with pytest.raises(BusyIssuerError):
                async with limit.admit("192.0.2.1"):
                    raise AssertionError
            group.start_soon(enter, "192.0.2.2")
            await anyio.wait_all_tasks_blocked()
            assert entered == MOST_OF_NETWORK + 1
            goes_on.set()
        assert entered == MOST_WAITING + 1

    anyio.run(try_all)


def test_wrong_tries_are_forgotten_in_their_time() -> None:
    now = [0.0]
    counter = GuessCounter(clock=lambda: now[0])
    for _ in range(MOST_WRONG):
        assert counter.may_guess("ada")
        counter.note_wrong("ada")
    assert not counter.may_guess("ada") and counter.may_guess("bob")
    now[0] = GUESS_SECONDS
    assert counter.may_guess("ada")
