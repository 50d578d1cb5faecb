"""Members and what they may do: every route for every role, tokens that end, and a service that others reach by TLS."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from support.orch_process import Orch, until
from support.service_site import EMPTY, Served, make_certificate, pack, record_run, serve

from orchestrator.acting import acting_as
from orchestrator.service.connections import HEADER_SECONDS, MOST_HANDSHAKES
from orchestrator.service.entrance import Entrance
from orchestrator.service.route import Role
from orchestrator.service.routes import ROUTES
from orchestrator.store.order_records import OrderRecord
from orchestrator.store.store import Store

ROLES = ("viewer", "member", "owner")
PATHS = {"project": "default", "run_id": "ann-run", "name": "anns", "uid": "of-ann", "digest": EMPTY}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, str]]]:
    """A service with clusters of two members, and a token of each role, all of bob."""
    orch = Orch(tmp_path_factory.mktemp("team"))
    tokens = {
        role: orch.ok("token", "create", f"bob-{role}", "--member", "bob", "--role", role).strip() for role in ROLES
    }
    for member in ("ann", "bob"):
        with acting_as(member), Store(orch.state / "orch.db") as store:
            record_run(store, f"{member}s", f"{member}-run", ended=False)
    with Store(orch.state / "orch.db") as store:
        store.open_order(
            OrderRecord(
                uid="of-ann",
                project="default",
                cluster="anns",
                verb="down",
                arguments="{}",
                plan="p",
                fingerprint="f",
                member="ann",
                state="ended",
                created=1e9,
                ended=1e9,
                status=0,
            )
        )
    with serve(orch) as served:
        mine = {"authorization": f"Bearer {tokens['member']}", "content_type": "application/octet-stream"}
        assert served.ask(f"/v1/blobs/{EMPTY}", method="PUT", body=pack({}), **mine).status == 201
        yield served, tokens


@pytest.mark.parametrize("route", [route for route in ROUTES if route.handler], ids=lambda route: route.name)
def test_each_route_is_open_to_its_roles_alone(team: tuple[Served, dict[str, str]], route: Any) -> None:
    site, tokens = team
    path = route.path.format(**PATHS) + ("?verb=down&cluster=bobs" if route.name == "order-form-page" else "")
    for role in ROLES:
        answer = site.ask(path, method=route.method, signed=False, authorization=f"Bearer {tokens[role]}")
        closed = Role[role.upper()] < route.role
        assert (answer.status == 403 and "this needs the role" in answer.text) == closed, (
            role,
            answer.status,
            answer.text[:300],
        )
    assert site.ask("/v1/me", signed=False, authorization=f"Bearer {tokens['member']}").document["member"] == "bob"


def ask(site: Served, token: str, path: str, body: dict[str, Any], **more: str) -> Any:
    headers = {"authorization": f"Bearer {token}", "content_type": "application/json"} | more
    return site.ask(path, method="POST", signed=False, body=json.dumps(body).encode(), **headers)


def test_a_member_changes_their_own_clusters_and_an_owner_all(team: tuple[Served, dict[str, str]]) -> None:
    site, tokens = team
    for role, cluster, allowed in (
        ("member", "bobs", True),
        ("member", "anns", False),
        ("owner", "anns", True),
    ):
        body = {"verb": "down", "cluster": cluster}
        plan = ask(site, tokens[role], "/v1/plans", body)
        assert plan.status == 200, plan.text
        key = {"idempotency_key": uuid.uuid4().hex}
        made = ask(site, tokens[role], "/v1/orders", body | {"plan": plan.document["plan"]}, **key)
        assert made.status == (202 if allowed else 409), (role, cluster, made.text)
        if not allowed:
            assert "belongs to ann" in made.text and "bob" in made.text
        else:
            assert made.document["member"] == "bob"
    events = site.ask("/v1/events?limit=1000").document["events"]
    assert any(event["actor"].startswith("bob@") and event["kind"] == "order" for event in events)


@pytest.mark.parametrize("path", ["/v1/events?limit=1000", "/v1/events/newest?limit=1000"])
def test_a_viewer_reads_nothing_of_how_others_enter(team: tuple[Served, dict[str, str]], path: str) -> None:
    site, tokens = team
    answer = site.ask(path, signed=False, authorization=f"Bearer {tokens['viewer']}")
    assert answer.status == 200 and "bob-owner" in answer.text, "the event itself is shown"
    assert '"expires"' not in answer.text and '\\"expires\\"' not in answer.text, "the subject names the row, no more"


def test_a_token_is_shown_once_and_ends_with_its_sessions(team: tuple[Served, dict[str, str]]) -> None:
    site, _ = team
    orch = site.orch
    secret = orch.ok("token", "create", "carl-laptop", "--member", "carl").strip()
    assert secret.startswith("orch_") and len(secret) > 40
    again = orch("token", "create", "carl-laptop", "--member", "carl")
    assert again.returncode == 6 and "orch token revoke carl-laptop" in again.stderr
    link = site.ask("/v1/links", method="POST", signed=False, authorization=f"Bearer {secret}", content_length="0")
    cookie = site.sign_in(f"#{link.document['link']}")
    assert site.ask("/v1/me", signed=False, cookie=cookie).document == {
        "version": 1, "kind": "member", "member": "carl", "role": "member", "project": "default", "only_project": None,
    }  # fmt: skip
    listed = json.loads(orch.ok("token", "-o", "json"))["tokens"]
    assert secret not in json.dumps(listed) and secret.encode() not in b"".join(
        path.read_bytes() for path in orch.state.rglob("*") if path.is_file()
    )
    orch.ok("token", "revoke", "carl-laptop")
    assert site.ask("/v1/me", signed=False, authorization=f"Bearer {secret}").status == 401
    assert site.ask("/v1/me", signed=False, cookie=cookie).status == 401
    assert orch("token", "revoke", "carl-laptop").returncode == 3


@pytest.mark.parametrize(
    ("entrance", "words"),
    [
        (Entrance(host="0.0.0.0"), "without TLS"),  # refused
        (Entrance(host="0.0.0.0", certificate=Path("/etc/hostname")), "needs its key"),
        (Entrance(certificate=Path("/none"), key=Path("/none")), "no file"),
        (Entrance(behind_proxy=True), "the name of the service is missing"),
        (Entrance(behind_proxy=True, names=("evil/x",)), "is not a name"),
    ],
)
def test_an_entrance_that_others_could_read_is_refused(entrance: Entrance, words: str) -> None:
    from orchestrator.errors import UserError

    with pytest.raises(UserError, match=words):
        entrance.check()


def test_a_service_with_tls_is_reached_by_its_name(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    orch = Orch(tmp_path)
    words = ("--host", "0.0.0.0", "--tls-cert", str(certificate), "--tls-key", str(key), "--name", "orch.test")
    with serve(orch, *words) as served:
        assert served.link.startswith(f"https://orch.test:{served.port}/login#")
        assert orch.ok("serve", "--link").startswith(f"https://orch.test:{served.port}/login#")
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False
        connection = HTTPSConnection("127.0.0.1", served.port, context=context, timeout=20)
        own = {"Host": f"orch.test:{served.port}", "Sec-Fetch-Site": "same-origin"}
        body = urlencode({"code": served.link.partition("#")[2], "_token": hashlib.sha256(b"form\0").hexdigest()})
        connection.request("POST", "/login", body, own | {"Content-Type": "application/x-www-form-urlencoded"})
        answer = connection.getresponse()
        cookie = answer.getheader("set-cookie") or ""
        assert answer.status == 303 and cookie.startswith("__Host-orch_session=") and "Secure" in cookie
        assert answer.getheader("strict-transport-security")
        for host, status in ((f"127.0.0.1:{served.port}", 421), (f"orch.test:{served.port}", 200)):
            connection = HTTPSConnection("127.0.0.1", served.port, context=context, timeout=20)
            connection.request("GET", "/healthz", headers={"Host": host})
            assert connection.getresponse().status == status, host


def test_handshakes_that_never_end_do_not_keep_others_out(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    words = ("--tls-cert", str(certificate), "--tls-key", str(key), "--name", "orch.test")
    with serve(Orch(tmp_path), *words) as served, ExitStack() as silent:
        for _ in range(3 * MOST_HANDSHAKES):  # they send nothing
            silent.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=10))
        time.sleep(1.0)
        files = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))
        assert files < MOST_HANDSHAKES + 80, "the others are ended immediately"
        context = ssl.create_default_context(cafile=str(certificate))
        context.check_hostname = False

        def answers() -> bool:
            try:
                connection = HTTPSConnection("127.0.0.1", served.port, context=context, timeout=5)
                connection.request("GET", "/healthz", headers={"Host": f"orch.test:{served.port}"})
                return connection.getresponse().status == 200
            except OSError:
                return False

        until("it answers others", answers, 3 * HEADER_SECONDS)


def test_behind_a_proxy_it_answers_to_the_proxys_name(tmp_path: Path) -> None:
    with serve(Orch(tmp_path), "--behind-proxy", "--name", "orch.example.org") as served:
        assert served.link.startswith("https://orch.example.org/login#")
        assert served.ask("/healthz", signed=False, host="orch.example.org").status == 200
        assert served.ask("/healthz", signed=False, host="other.example.org").status == 421
