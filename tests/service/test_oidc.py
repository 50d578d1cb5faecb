"""Sign-in by an identity provider: a real provider on a socket, which a test makes lie, and a real browser."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from playwright.sync_api import expect, sync_playwright
from support.oidc_provider import CLIENT, SECRET, Provider, SigningKey, join, oidc_provider
from support.orch_process import Orch
from support.service_site import Reply, Served, serve

from orchestrator.errors import UserError
from orchestrator.service.oidc import Attempt
from orchestrator.service.oidc_settings import OidcSettings, Rule, read_oidc_settings
from orchestrator.service.route import Role

CHROMIUM = shutil.which("chromium")
RULES = ("--oidc-allow", "member:groups=ml", "--oidc-allow", "owner:groups=leads", "--oidc-allow", "viewer:sub=guest")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Provider]]:
    orch = Orch(tmp_path_factory.mktemp("oidc"))
    secret = orch.folder / "secret"
    secret.write_text(f"{SECRET}\n")
    with oidc_provider() as provider:
        words = ("--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT, "--oidc-secret-file", str(secret))
        with serve(orch, *words, *RULES) as served:
            yield served, provider


@pytest.fixture
def site(parts: tuple[Served, Provider], request: pytest.FixtureRequest) -> Served:
    """Return the service, asked from a network of the test's own: refused sign-ins of one are limited."""
    number = zlib.crc32(request.node.nodeid.encode()) % 65_536
    return replace(parts[0], source=f"127.{number // 256}.{number % 256}.9")


@pytest.fixture
def provider(parts: tuple[Served, Provider]) -> Provider:
    parts[1].reset()
    return parts[1]


def begin(site: Served, target: str = "") -> tuple[str, str]:
    """Begin a sign-in; return the cookie of the attempt and the path at the provider."""
    query = f"?target={target}" if target else ""
    begun = site.ask(f"/sign-in{query}", signed=False, sec_fetch_site="same-origin")
    assert begun.status == 303, begun.text
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie
    return cookie.partition(";")[0], begun.headers["location"]


def visit(provider: Provider, address: str) -> str:
    """Visit the provider, and return the path to which it sends back."""
    assert address.startswith(provider.issuer)
    connection = HTTPConnection("127.0.0.1", urlsplit(address).port or 0, timeout=10)
    connection.request("GET", address.removeprefix(provider.issuer))
    back = urlsplit(connection.getresponse().headers["Location"])
    connection.close()
    return f"{back.path}?{back.query}"


def come_back(site: Served, path: str, cookie: str) -> Reply:
    headers = {"cookie": cookie} if cookie else {}
    return site.ask(path, signed=False, sec_fetch_site="cross-site", **headers)


def sign_in(site: Served, provider: Provider, target: str = "") -> Reply:
    cookie, address = begin(site, target)
    return come_back(site, visit(provider, address), cookie)


def find_code(page: str) -> str:
    return re.findall(r'name="code" value="([\w-]+)"', page)[0]


def session_of(site: Served, reply: Reply) -> str:
    return next(re.finditer(rf"orch_session_{site.port}=[\w-]+", reply.headers["set-cookie"])).group()


def choose(site: Served, shown: Reply, name: str, cookie: str = "") -> Reply:
    return site.send_form("/sign-in/name", cookie, code=find_code(shown.text), name=name, target="/clusters")


def enter(site: Served, provider: Provider, subject: str, name: str, **claims: Any) -> str:
    """Sign in for the first time, and return the session."""
    provider.person = {"sub": subject, "groups": ["ml"]} | claims
    chosen = choose(site, sign_in(site, provider), name)
    assert (chosen.status, chosen.headers["location"]) == (303, "/clusters"), chosen.text
    return session_of(site, chosen)


def show_member(site: Served, cookie: str) -> Any:
    answer = site.ask("/v1/me", signed=False, cookie=cookie)
    return (answer.document["member"], answer.document["role"]) if answer.status == 200 else answer.status


def test_a_person_chooses_a_name_once_and_is_known_then(site: Served, provider: Provider) -> None:
    provider.person |= {"preferred_username": "Ada L@example.org", "email": "ada@example.org"}
    shown = sign_in(site, provider, "/queue")
    assert shown.status == 200 and 'name="name" value="ada-l"' in shown.text
    assert "orch_session" not in shown.headers.get("set-cookie", "")
    chosen = choose(site, shown, "ada")
    assert show_member(site, session_of(site, chosen)) == ("ada", "member")
    assert choose(site, shown, "eve").status == 403, "its code is used"
    provider.person = {"sub": provider.person["sub"], "groups": ["leads", "ml"], "email": "new@example.org"}
    again = sign_in(site, provider, "/queue")
    assert 'content="0;url=/queue"' in again.text
    assert show_member(site, session_of(site, again)) == ("ada", "owner"), "the role is that of each sign-in"


def test_an_email_address_is_no_identity(site: Served, provider: Provider) -> None:
    enter(site, provider, "first", "mia", email="mia@example.org", email_verified=True)
    provider.person = {"sub": "second", "groups": ["ml"], "email": "mia@example.org", "email_verified": True}
    shown = sign_in(site, provider)
    assert "Your name here" in shown.text
    taken = choose(site, shown, "mia")
    assert taken.status == 409 and "is taken" in taken.text and "set-cookie" not in taken.headers
    assert choose(site, taken, "mia2").status == 303, "another name, in the same form"


def test_a_reserved_name_is_refused_in_the_form(site: Served, provider: Provider) -> None:
    provider.person = {"sub": "reserved", "groups": ["ml"]}
    shown = sign_in(site, provider)
    for name in ("me", "admin", "root"):
        refused = choose(site, shown, name)
        assert refused.status == 409 and "is reserved" in refused.text and "choose another name" in refused.text
        assert choose(site, refused, "me").status == 409, "the code is not spent"
    assert choose(site, shown, "not-reserved").status == 303


def test_who_is_in_no_group_of_the_list_does_not_enter(site: Served, provider: Provider) -> None:
    for groups in (None, [], ["mls"], "xml", {"ml": True}, [["ml"]]):
        provider.person = {"sub": "outside", "groups": groups}
        refused = sign_in(site, provider)
        assert refused.status == 403 and "may not enter" in refused.text, groups
    provider.person, provider.profile = {"sub": "outside"}, {"sub": "other", "groups": ["ml"]}
    assert sign_in(site, provider).status == 403, "the profile of another person"
    provider.profile = {"sub": "outside", "groups": ["ml"]}
    assert "Your name here" in sign_in(site, provider).text


LIES: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "x" * 43},
    "no nonce": {"nonce": None},
    "another audience": {"aud": "someone"},
    "another audience in our name": {"aud": "someone", "azp": CLIENT},
    "no audience": {"aud": None},
    "audiences of which another one acts": {"aud": [CLIENT, "someone"], "azp": "someone"},
    "several audiences and none acts": {"aud": [CLIENT, "someone"]},
    "another issuer": {"iss": "http://localhost:1"},
    "no issuer": {"iss": None},
    "no subject": {"sub": None},
    "expired": {"iat": time.time() - 900, "exp": time.time() - 300},
    "no end": {"exp": None},
    "not yet": {"nbf": time.time() + 86_400},
    "made later": {"iat": time.time() + 86_400},
    "another access token": {"at_hash": "x" * 22},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_token_that_is_not_for_this_sign_in_is_refused(site: Served, provider: Provider, lie: str) -> None:
    provider.twist = LIES[lie]
    refused = sign_in(site, provider)
    assert refused.status == 403 and "is not believed" in refused.text, refused.text
    assert "orch_session" not in refused.headers.get("set-cookie", "")


def test_clocks_may_differ_a_little(site: Served, provider: Provider) -> None:
    provider.twist = {"iat": time.time() + 30, "nbf": time.time() + 30}
    assert sign_in(site, provider).status == 200
    provider.twist = {"exp": time.time() - 30}
    assert sign_in(site, provider).status == 200


@pytest.mark.parametrize(
    "attack", ["none", "none in capitals", "another key", "its kid", "public key", "no signature", "text"]
)
def test_a_token_that_the_provider_did_not_sign_is_refused(site: Served, provider: Provider, attack: str) -> None:
    other, key = SigningKey("other"), provider.key
    provider.sign = {
        "none": lambda claims: join({"alg": "none"}, claims) + ".",
        "none in capitals": lambda claims: join({"alg": "NONE", "kid": key.kid}, claims) + ".",
        "another key": other.sign,
        "its kid": SigningKey(key.kid).sign,
        "public key": key.sign_with_public_key,
        "no signature": lambda claims: key.sign(claims).rpartition(".")[0] + ".",
        "text": lambda _: "x",
    }[attack]
    refused = sign_in(site, provider)
    assert refused.status == 403 and "is not believed" in refused.text, refused.text


@pytest.mark.parametrize("value", ["[" * 30_000, '["\\ud800", "b", "c", "d"]', '["a"]', "{}", "null", ""])
def test_a_cookie_that_no_sign_in_made_is_no_attempt(value: str) -> None:
    content = base64.urlsafe_b64encode(value.encode()).decode()
    for text in (content, f"{content}.", f"{content}.{'0' * 64}", "."):
        assert Attempt.parse(text, b"key", 1.0) is None


def test_an_attempt_counts_for_ten_minutes_with_the_key_that_signed_it() -> None:
    attempt = Attempt.begin("/queue")
    text = attempt.to_cookie(b"key", 1000.0)
    assert Attempt.parse(text, b"key", 1599.0) == attempt
    assert Attempt.parse(text, b"key", 1600.0) is None
    assert Attempt.parse(text, b"another", 1001.0) is None
    content, _, signature = text.partition(".")
    longer = base64.urlsafe_b64encode(base64.urlsafe_b64decode(content).replace(b"1600", b"9600")).decode()
    assert Attempt.parse(f"{longer}.{signature}", b"key", 1001.0) is None


def test_keys_that_the_provider_changed_are_read_again(site: Served, provider: Provider) -> None:
    assert sign_in(site, provider).status == 200
    provider.key = SigningKey("two")
    provider.published = [provider.key]
    provider.seen.clear()
    assert sign_in(site, provider).status == 200
    assert provider.seen.count("/keys") == 1
    assert sign_in(site, provider).status == 200
    assert provider.seen.count("/keys") == 1, "and kept"


@pytest.mark.parametrize("bits", [1024, 2040])
def test_a_short_key_of_the_provider_is_refused(site: Served, provider: Provider, bits: int) -> None:
    short = SigningKey("short", rsa.generate_private_key(65537, bits))
    before, provider.key, provider.published = provider.key, short, [short]
    try:
        refused = sign_in(site, provider)
        assert refused.status == 502 and "fewer than 2,048 bits" in refused.text, refused.text
        provider.published = [short, before]
        beside = sign_in(site, provider)
        assert beside.status == 403 and "is not believed" in beside.text, "a long one beside it lets no token of it in"
    finally:
        provider.key = before
    assert sign_in(site, provider).status == 200


@pytest.mark.parametrize("subject", ["\ud800", "a\udfffb", "", 7, "x" * 256, {"a": "b"}])
def test_a_subject_that_is_none_is_an_error_of_the_provider(site: Served, provider: Provider, subject: Any) -> None:
    provider.person = {"sub": subject, "groups": ["ml"]}
    refused = sign_in(site, provider)
    assert refused.status in (403, 502) and "defect" not in refused.text, refused.text
    if subject and isinstance(subject, str):
        assert refused.status == 502 and "does not answer as one" in refused.text


def test_half_characters_elsewhere_are_errors_of_the_provider(site: Served, provider: Provider) -> None:
    provider.person = {"sub": "half", "groups": ["ml"], "preferred_username": "\ud800"}
    assert sign_in(site, provider).status == 502
    provider.person, provider.profile = {"sub": "half"}, {"sub": "half", "groups": ["ml"], "name": "\udfff"}
    assert sign_in(site, provider).status == 502


def test_an_answer_that_this_browser_did_not_ask_for_is_refused(site: Served, provider: Provider) -> None:
    """Login CSRF: an attacker's own code and state in the browser of someone else."""
    cookie, address = begin(site)
    stolen = visit(provider, begin(site)[1])
    for path, sent in ((stolen, cookie), (stolen, ""), (stolen, f"orch_sign_in_{site.port}=x")):
        refused = come_back(site, path, sent)
        assert refused.status == 403 and "was not begun in this browser" in refused.text
    provider.answer = {"state": ""}
    assert come_back(site, visit(provider, address), cookie).status == 403


def test_a_code_is_used_once(site: Served, provider: Provider) -> None:
    cookie, address = begin(site)
    path = visit(provider, address)
    first = come_back(site, path, cookie)
    assert first.status == 200 and "Max-Age=0" in first.headers["set-cookie"]
    again = come_back(site, path, cookie)
    assert again.status == 403 and "invalid_grant" in again.text


def test_a_code_of_another_attempt_is_refused_by_its_verifier(site: Served, provider: Provider) -> None:
    stolen = dict(parse_qsl(urlsplit(visit(provider, begin(site)[1])).query))["code"]
    cookie, address = begin(site)
    provider.answer = {"code": stolen}
    refused = come_back(site, visit(provider, address), cookie)
    assert refused.status == 403 and "invalid_grant" in refused.text


@pytest.mark.parametrize("issuer", ["http://localhost:1", ""])
def test_an_answer_of_another_provider_is_refused(site: Served, provider: Provider, issuer: str) -> None:
    """Mix-up (RFC 9207)."""
    provider.answer = {"iss": issuer}
    refused = sign_in(site, provider)
    assert refused.status == 403 and "another identity provider" in refused.text
    assert len(provider.codes) >= 1, "the code was sent nowhere"


def test_what_the_provider_refuses_is_shown_as_text(site: Served, provider: Provider) -> None:
    provider.answer = {"error": "access_denied", "error_description": "<script>no</script>", "code": ""}
    refused = sign_in(site, provider)
    assert refused.status == 403 and "access_denied" in refused.text and "<script>no" not in refused.text


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x"])
def test_a_sign_in_does_not_lead_to_another_server(site: Served, provider: Provider, target: str) -> None:
    provider.person = {"sub": "248289761001", "groups": ["ml"]}
    assert 'content="0;url=/"' in sign_in(site, provider, target).text


def test_a_page_of_another_site_begins_no_sign_in(site: Served, provider: Provider) -> None:
    for kind in ("cross-site", "same-site"):
        begun = site.ask("/sign-in", signed=False, sec_fetch_site=kind)
        assert (begun.status, begun.headers["location"]) == (303, "/login") and "set-cookie" not in begun.headers


@pytest.mark.parametrize("path", ["/sign-in", "/sign-in/callback"])
def test_its_addresses_are_held_to_the_rules_of_all_others(site: Served, provider: Provider, path: str) -> None:
    refused = site.ask(path, method="POST", signed=False, content_length="0")
    assert refused.status == 405 and refused.headers["x-content-type-options"] == "nosniff"
    assert site.ask(path, signed=False, host="evil.example").status == 421


def test_a_revoked_person_is_out_at_once_and_returns_by_invitation(site: Served, provider: Provider) -> None:
    session = enter(site, provider, "carl", "carl")
    host = urlsplit(provider.issuer).netloc
    listed = {one["name"]: one for one in json.loads(site.orch.ok("token", "-o", "json"))["tokens"]}
    assert listed[f"carl@{host}"]["kind"] == "sign-in" and listed[f"carl@{host}"]["counts"]
    site.orch.ok("token", "revoke", f"carl@{host}")
    assert show_member(site, session) == 401
    for name in ("carl", "carla"):
        assert choose(site, sign_in(site, provider), name).status == 409
    link = site.orch.ok("token", "invite", "again", "--member", "carl").strip()
    invited = session_of(site, site.send_form("/join", code=link.partition("#")[2]))
    back = choose(site, sign_in(site, provider), "carl", invited)
    assert show_member(site, session_of(site, back)) == ("carl", "member")
    site.orch.ok("token", "revoke", "--member", "carl")
    assert show_member(site, session_of(site, back)) == 401


def test_a_name_is_not_taken_from_a_member_without_an_identity(site: Served, provider: Provider) -> None:
    site.orch.ok("token", "create", "dora-laptop", "--member", "dora")
    provider.person = {"sub": "mallory", "groups": ["ml"]}
    for name in ("dora", "../x", "Dora", "", "a" * 41, "x\u0430"):
        assert choose(site, sign_in(site, provider), name).status in (400, 409), name


def test_no_secret_is_kept_or_shown(site: Served, provider: Provider) -> None:
    provider.person = {"sub": "unknown here", "groups": ["ml"]}
    cookie, address = begin(site)
    path = visit(provider, address)
    shown = come_back(site, path, cookie)
    secrets = [SECRET, dict(parse_qsl(urlsplit(path).query))["code"], find_code(shown.text), cookie.partition("=")[2]]
    kept = b"".join(file.read_bytes() for file in site.orch.state.rglob("*") if file.is_file())
    assert not [one for one in secrets if one.encode() in kept]
    assert SECRET not in address + shown.text
    assert SECRET not in Path(f"/proc/{site.process.pid}/cmdline").read_text()


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"issuer": "http://localhost:1"}, "calls itself"),
        ({"token_endpoint": "http://login.example.org/token"}, "no address with https"),
        ({"jwks_uri": None}, "no address with https"),
    ],
)
def test_a_provider_that_is_not_itself_gets_nothing(metadata: dict[str, Any], words: str) -> None:
    from orchestrator.errors import CloudError
    from orchestrator.service.oidc import Attempt, OidcClient

    with oidc_provider() as provider:
        provider.metadata = metadata
        client = OidcClient(settings=OidcSettings(issuer=provider.issuer, client_id=CLIENT))
        with pytest.raises(CloudError) as refused:
            client.make_address(Attempt.begin("/"), "http://127.0.0.1/sign-in/callback")
        assert words in str(refused.value.why)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("", "orch", None, (), ()), "provider is missing"),
        (("https://a.example", "", None, (), ("member:sub=x",)), "client"),
        (("http://a.example", "orch", None, (), ("member:sub=x",)), "not the address"),
        (("https://a.example", "orch", None, (), ()), "let no one in"),
        (("https://a.example", "orch", None, (), ("admin:sub=x",)), "not a rule"),
        (("https://a.example", "orch", None, (), ("member:groups",)), "not a rule"),
        (("https://a.example", "orch", Path("/none"), (), ("member:sub=x",)), "cannot be read"),
    ],
)
def test_settings_that_would_not_work_are_refused(given: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_oidc_settings(*given, {})


def test_an_address_that_the_provider_has_not_verified_opens_nothing() -> None:
    rule = Rule.parse("viewer:email=ada@example.org")
    assert rule == Rule(role=Role.VIEWER, claim="email", value="ada@example.org")
    claims: dict[str, Any] = {"email": "ada@example.org"}
    assert [rule.allows(claims | more) for more in ({}, {"email_verified": "true"}, {"email_verified": True})] == [
        False, False, True,
    ]  # fmt: skip


def test_the_server_starts_without_the_library_of_the_protocol() -> None:
    """It is large: 0.7 s to import, and only a sign-in needs it."""
    code = "import sys, orchestrator.service.server; print({'authlib', 'joserfc', 'httpx'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt install chromium")
def test_a_person_signs_in_by_a_browser_and_lands_on_the_page(site: Served, provider: Provider) -> None:
    provider.person = {"sub": "browser", "groups": ["ml"], "preferred_username": "bea"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context().new_page()
        page.goto(f"http://127.0.0.1:{site.port}/queue")
        page.get_by_role("link", name="Sign in", exact=True).click()
        page.get_by_role("link", name="Sign in with").click()
        expect(page.get_by_label("Name")).to_have_value("bea")
        page.get_by_role("button", name="Use this name").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Queue")
        page.get_by_role("button", name="Sign out").click()
        page.goto(f"http://127.0.0.1:{site.port}/login?target=/clusters")
        page.get_by_role("link", name="Sign in with").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Clusters")
        assert "bea" in page.locator("header").inner_text()
        browser.close()
