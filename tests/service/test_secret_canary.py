"""No secret that the service holds is anywhere but where it has to be: every output, file, process and row is searched.

Each secret is another canary. ALLOWED is the closed list of places in which one may be, each with its reason.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from canaries import Canaries, list_forms
from support.oidc_provider import CLIENT, oidc_provider
from support.orch_process import Orch, until
from support.postgres import PASSWORD, PostgresServer, postgres_server
from support.service_site import Served, serve

from orchestrator.service.route import Medium
from orchestrator.service.routes import ROUTES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

# What may see which secret, with the reason. Everything else is a leak.
ALLOWED = {
    ("own token", "home/orch/state/service/token"): "the file that commands of this user read it from, for them alone",
    ("database password", "environment of server"): "who starts the server gives it in ORCH_STORE",
    ("cloud key", "environment of server"): "the usual variable of the cloud's own tools",
    ("task secret", "environment of server"): "who starts the server gives it to tasks by its name",
    ("task secret", "environment of job"): "the program of the task is who it is for",
    ("webhook key", "environment of server"): "notify.webhook_secret names this variable",
    ("mail password", "environment of server"): "notify.smtp_password names this variable",
    ("OIDC client secret", "environment of server"): "ORCH_OIDC_SECRET",
    ("webhook path", "environment of server"): "notify.webhook names this variable",
}
KEY = "private key in "  # and its file, where alone it may be: who logs in with it, or whose host it is
# What the processes of a kind have in their environment: only those of a job have a run's id.
MARKS = {"job": "\0ORCH_RUN_ID=", "server": "\0MARK_OF_THE_SERVER=1\0"}
TASK = """
name: mine
resources: {infra: 'local:1'}
secrets: {CANARY_TOKEN: null}
run: |
  while [ ! -e %s ]; do sleep 0.2; done
  exit 3
"""


@dataclass
class Receiver:
    """Takes the messages of notifications."""

    url: str = ""
    texts: list[str] = field(default_factory=list[str])


@contextmanager
def receiver() -> Generator[Receiver]:
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.texts.append(f"{self.headers}{self.rfile.read(int(self.headers['Content-Length'])).decode()}")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_secret_is_only_where_it_has_to_be(database: str, tmp_path: Path, server: PostgresServer) -> None:
    canaries = Canaries()
    store = server.new_store() if database == "postgresql" else ""
    if store:
        canaries.plant("database password", PASSWORD)
    with receiver() as hook, oidc_provider() as provider:
        orch = Orch(tmp_path / "site", _environment(canaries, hook, store), fresh=True)
        orch.folder.mkdir()
        words = ("--oidc-issuer", provider.issuer, "--oidc-client-id", CLIENT, "--oidc-allow", "member:groups=ml")
        with serve(orch, *words, page_only=False) as site:
            _let_people_in(canaries, site)
            order = _run_a_job_that_fails(canaries, site, tmp_path / "go", hook)
            _ask_for_everything(canaries, site, order)
            canaries.look("messages of notifications", "\n".join(hook.texts))
            _use_commands(canaries, orch)
            printed = site.process
        canaries.look_below(orch.folder, "home")
        assert printed.stdout is not None
    if store:
        canaries.look_at_database(store, "rows of the database")
    leaks = {
        f"{name} in {place}: {', '.join(sorted(forms))}"
        for (name, place), forms in canaries.seen.items()
        if (name, place) not in ALLOWED and name != f"{KEY}{place}"
    }
    assert leaks == set()
    assert len(canaries.secrets) >= 13
    _assert_seen_where_it_is_allowed(canaries, database)


def _environment(canaries: Canaries, hook: Receiver, store: str) -> dict[str, str]:
    """The variables of the server, each secret with its own canary; some of their characters have to be quoted."""
    path = canaries.plant("webhook path", f"/hook-{uuid.uuid4().hex}")
    given = {
        "CANARY_TOKEN": canaries.plant("task secret", f"task/{uuid.uuid4().hex}+a=b&c"),
        "AWS_ACCESS_KEY_ID": "AKIAORCHCANARY000000",
        "AWS_SECRET_ACCESS_KEY": canaries.plant("cloud key", f"cloud/{uuid.uuid4().hex}+x"),
        "HOOK_KEY": canaries.plant("webhook key", "whsec_" + uuid.uuid4().hex),
        "HOOK_URL": f"{hook.url}{path}",
        "MAIL_PASSWORD": canaries.plant("mail password", f"mail {uuid.uuid4().hex}!"),
        "ORCH_OIDC_SECRET": canaries.plant("OIDC client secret", f"oidc~{uuid.uuid4().hex}"),
        "ORCH_NOTIFY_WEBHOOK": "env:HOOK_URL",
        "ORCH_NOTIFY_WEBHOOK_SECRET": "env:HOOK_KEY",
        "ORCH_NOTIFY_EMAIL_TO": "ada@example.com",
        "ORCH_NOTIFY_EMAIL_FROM": "orch@example.com",
        "ORCH_NOTIFY_SMTP": "127.0.0.1:9",
        "ORCH_NOTIFY_SMTP_SECURITY": "none",
        "ORCH_NOTIFY_SMTP_USER": "orch",
        "ORCH_NOTIFY_SMTP_PASSWORD": "env:MAIL_PASSWORD",
        "MARK_OF_THE_SERVER": "1",
    }
    return given | ({"ORCH_STORE": store} if store else {})


def _let_people_in(canaries: Canaries, site: Served) -> None:
    """By every way: the first link, a link of the page, a token, an invitation, a computer's code."""
    canaries.plant("own token", site.token.strip())
    canaries.plant("first link", site.link.partition("#")[2])
    canaries.plant("session", site.sign_in(site.link).partition("=")[2])
    link = site.ask("/v1/links", method="POST", content_length="0").document["link"]
    canaries.plant("link", link.rpartition("#")[2])
    canaries.plant("session of a link", site.sign_in(f"#{link}").partition("=")[2])
    made = site.orch.ok("token", "create", "ada-laptop", "--member", "ada", "--role", "owner")
    token = canaries.plant("member's token", re.findall(r"orch_\S+", made)[0])
    assert site.ask("/v1/me", signed=False, authorization=f"Bearer {token}").status == 200
    refused = site.ask(
        "/v1/me", signed=False, authorization=f"Bearer {canaries.plant('wrong token', 'orch_' + 'x' * 49)}"
    )
    canaries.look("refusal of a token", f"{refused.headers}{refused.text}")
    invited = site.orch.ok("token", "invite", "bob-laptop", "--member", "bob")
    canaries.plant("invitation", re.findall(r"#(\S+)", invited)[0])
    shown = site.send_form("/token", site.sign_in(), computer="desk").text
    canaries.plant("token by the page", re.findall(r"orch_[\w-]+", shown)[0])


def _run_a_job_that_fails(canaries: Canaries, site: Served, go: Path, hook: Receiver) -> str:
    """Return the uid of the order that launched it."""
    body = {"verb": "launch", "task": TASK % go}
    kind = {"content_type": "application/json"}
    plan = site.ask("/v1/plans", method="POST", body=json.dumps(body).encode(), **kind)
    assert plan.status == 200, plan.text
    canaries.look("plan", plan.body)
    order = json.dumps(body | {"plan": plan.document["plan"]}).encode()
    made = site.ask("/v1/orders", method="POST", body=order, idempotency_key=uuid.uuid4().hex, **kind)
    assert made.status == 202, made.text
    until("the job runs", lambda: "job" in canaries.look_at_processes(site.orch.folder, MARKS), 90)
    for path in site.orch.folder.rglob("*"):
        if path.is_file() and b"PRIVATE KEY" in (content := path.read_bytes()):
            assert path.stat().st_mode & 0o077 == 0, f"{path} is for its user alone"
            lines = content.decode().splitlines()
            canaries.plant(
                f"{KEY}home/{path.relative_to(site.orch.folder)}", lines[4]
            )  # the seed; public parts before it
    assert any(name.endswith("keys/id_ed25519") for name in canaries.secrets)
    go.touch()
    until("the job ended", lambda: site.ask("/v1/runs").document["runs"][0]["status"] == 3, 90)
    until("a message arrived", lambda: bool(hook.texts), 60)
    return made.headers["location"].rpartition("/")[2]


def _ask_for_everything(canaries: Canaries, site: Served, order: str) -> None:
    """Every page, document and stream, with the token and in a browser."""
    run = site.ask("/v1/runs").document["runs"][0]
    values = {"run_id": run["run_id"], "name": "mine", "uid": order, "digest": "0" * 64}
    cookie = site.sign_in()
    for route in ROUTES:
        if route.method != "GET":
            continue
        path = re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], "x")), route.path)
        if route.medium is Medium.EVENTS:
            connection, answer = site.open(f"{path}?after=0", authorization=f"Bearer {site.token.strip()}")
            canaries.look(f"GET {route.path}", answer.read1(200_000))
            connection.close()
            continue
        for more in ({}, {"signed": False, "cookie": cookie}):
            answered = site.ask(path, **more)
            assert answered.status < 500, f"{path}: {answered.text}"
            canaries.look(f"GET {route.path}", f"{answered.headers}{answered.text}")
    canaries.look("GET /openapi.json", site.ask("/openapi.json", signed=False).body)
    refused = site.ask("/v1/plans", method="POST", body=b'{"verb": 1}', content_type="application/json")
    canaries.look("a request that is wrong", refused.body)


def _use_commands(canaries: Canaries, orch: Orch) -> None:
    """What commands print, also with the traceback of a failure."""
    backup = orch.folder / "backup"
    for words in (
        ("status", "-o", "json"), ("runs",), ("events",), ("events", "-o", "json"), ("logs", "mine"), ("token",),
        ("notify",), ("budget",), ("config", "list"), ("store", "backup", "--to", f"file://{backup}"),
        ("serve", "--link"),
        ("launch", "echo hi", "--infra", "aws/us-east-1/us-east-1a", "--instance-type", "t3.medium", "--dry-run", "-v",
         "--secret", "CANARY_TOKEN"),
        ("--debug", "check", "aws"), ("--debug", "logs", "nothing"), ("--debug", "notify", "test"),
    ):  # fmt: skip
        done = orch(*words)
        assert done.returncode != 2, f"{words}: {done.stderr}"
        canaries.look(f"orch {' '.join(words[:3])}", done.stdout + done.stderr)
    broken = Orch(orch.folder, orch.more | {"ORCH_STORE": f"postgresql://orch:{PASSWORD}@127.0.0.1:9/none"})
    canaries.secrets.setdefault("database password", PASSWORD)
    for words in (("--debug", "status"), ("--debug", "launch", "true", "--infra", "local:1")):
        done = broken(*words)
        assert done.returncode != 0
        canaries.look(f"orch {' '.join(words)} without its database", done.stdout + done.stderr)
    assert any(backup.rglob("*"))


def _assert_seen_where_it_is_allowed(canaries: Canaries, database: str) -> None:
    """The search finds what is there: else it would prove nothing."""
    expected = {
        ("own token", "home/orch/state/service/token"), ("cloud key", "environment of server"),
        ("task secret", "environment of job"), ("mail password", "environment of server"),
    }  # fmt: skip
    assert expected <= set(canaries.seen)
    assert (("database password", "environment of server") in canaries.seen) == (database == "postgresql")
    assert len(canaries.places) > 60


@pytest.mark.parametrize("offset", range(7))
def test_a_secret_is_found_in_every_form(offset: int) -> None:
    import base64

    secret = "s3cret/with+signs=&more"
    forms = list_forms(secret)
    hidden = b"x" * offset + secret.encode() + b"tail"
    assert any(one in base64.b64encode(hidden) for one in forms.values())
    assert any(one in hidden.hex().encode() for one in forms.values())
    assert not any(one in base64.b64encode(b"x" * offset + b"another text of this length") for one in forms.values())
