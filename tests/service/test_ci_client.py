"""What a job of CI does: it asks its CI for a token, over TLS, and exchanges it for one of the service."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

import pytest
from service_ci import Server, make_job_token, make_rule, serve_ci
from support.oidc_provider import Provider, SigningKey, oidc_provider
from support.orch_process import Orch

from orchestrator.client.http import Client
from orchestrator.client.transport import ServiceError
from orchestrator.errors import AccessError, CloudError, UserError
from orchestrator.service.entrance import Entrance
from orchestrator.service.token_exchange import GRANT, ID_TOKEN
from orchestrator.store.store import Store

_BEARER = "of-the-runner"


@dataclass(kw_only=True)
class Job:
    """A job of GitHub Actions, as far as its environment says.

    Attributes:
        audiences: For whom it has asked for tokens.
    """

    server: Server
    provider: Provider
    database: Path
    environ: dict[str, str]
    audiences: list[str] = field(default_factory=list[str])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    certificate, key = tmp_path / "crt.pem", tmp_path / "key.pem"
    command: list[str | Path] = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    home = tmp_path / "home"
    home.mkdir()
    database = tmp_path / "orch.db"
    with (
        oidc_provider("127.0.0.1") as provider,
        serve_ci(database, tmp_path, Entrance()) as server,
    ):
        with Store(database) as store:
            store.add_trust_rule(make_rule(provider.issuer))
        made = Job(server=server, provider=provider, database=database, environ={})

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                may = self.headers["Authorization"] == f"Bearer {_BEARER}"
                query = parse_qs(urlsplit(self.path).query)
                made.audiences.append(query["audience"][0])
                self.send_response(200 if may else 401)
                self.end_headers()
                token = make_job_token(provider, aud=query["audience"][0])
                self.wfile.write(json.dumps({"count": 1, "value": token}).encode())

        front = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        front.socket = context.wrap_socket(front.socket, server_side=True)
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        made.environ = {
            "ORCH_SERVER": made.url,
            "ORCH_HOME": str(home),
            "SSL_CERT_FILE": str(certificate),
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"https://localhost:{front.server_address[1]}/token?api-version=2.0",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": _BEARER,
        }
        for name, value in made.environ.items():
            monkeypatch.setenv(name, value)
        try:
            yield made
        finally:
            front.shutdown()
            front.server_close()
            thread.join()


def test_a_job_waits_while_another_one_makes_the_service_read_the_keys(tmp_path: Path) -> None:
    begun, may_answer = threading.Event(), threading.Event()

    class SlowKey(SigningKey):
        def to_jwk(self) -> dict[str, Any]:
            begun.set()
            assert may_answer.wait(60)
            return super().to_jwk()

    with (
        oidc_provider("127.0.0.1") as provider,
        serve_ci(tmp_path / "orch.db", tmp_path, Entrance()) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        provider.key = SlowKey("slow")
        provider.published = [provider.key]
        with Store(tmp_path / "orch.db") as store:
            store.add_trust_rule(make_rule(provider.issuer))
        url = f"http://127.0.0.1:{server.port}"
        tokens = [make_job_token(provider, aud=url, jti=name) for name in ("first", "second", "third")]
        try:
            first = pool.submit(Client(url, "").exchange_token, tokens[0])
            assert begun.wait(60)
            form = urlencode({"grant_type": GRANT, "subject_token": tokens[1], "subject_token_type": ID_TOKEN}).encode()
            kind = "application/x-www-form-urlencoded"
            with pytest.raises(HTTPError, match="503") as refused:
                urlopen(Request(f"{url}/v1/tokens/exchange", form, {"Content-Type": kind}), timeout=60)
            assert refused.value.headers["Retry-After"] == "1"
            second = pool.submit(Client(url, "").exchange_token, tokens[2])
            time.sleep(0.3)  # so that it is refused once, mostly
        finally:
            may_answer.set()
        assert {one.result()["member"] for one in (first, second)} == {"ci-release"}
        assert Client(url, "").exchange_token(tokens[1])["member"], "a token that was refused so is not spent"


def test_a_command_in_a_job_of_github_takes_its_own_token_and_another_when_that_ends(job: Job) -> None:
    with Client.connect() as client:
        assert client.show_member()["member"] == "ci-release"
        with Store(job.database) as store:
            for one in store.counting_tokens():
                store.revoke_entry(one.name)
        assert client.show_member()["member"] == "ci-release", "a command that waits for a run for hours"
        assert job.audiences == [job.url] * 2
        with Store(job.database) as store:
            store.revoke_member("ci-release")
        with pytest.raises(ServiceError, match="no rule of this service"):
            client.show_member()
    assert not list(Path(job.environ["ORCH_HOME"]).rglob("*")), "nothing is kept"


def test_the_token_of_a_job_goes_to_the_named_service_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AccessError, match="no token is kept for https://elsewhere"):
        Client.connect("https://elsewhere.test")
    monkeypatch.setenv("ORCH_TOKEN", "orch_of_the_job")
    with pytest.raises(AccessError):
        Client.connect("https://elsewhere.test")
    with Client.connect() as client, pytest.raises(ServiceError) as raised:
        client.show_member()
    assert raised.value.http_status == 401 and not job.audiences, "a given token is not replaced by another"


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "wrong", CloudError),
        ("ACTIONS_ID_TOKEN_REQUEST_URL", "http://localhost:1/", UserError),
        ("ACTIONS_ID_TOKEN_REQUEST_URL", "https://localhost:1/", CloudError),
    ],
)
def test_a_job_without_the_permission_reads_what_it_needs(
    job: Job, monkeypatch: pytest.MonkeyPatch, name: str, value: str, error: type[Exception]
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(error) as raised:
        Client.connect()
    if error is CloudError:
        assert "id-token: write" in str(raised.value.next_step)  # type: ignore[attr-defined]  # of OrchError


@pytest.mark.slow
def test_login_of_a_job_prints_a_token_once_and_keeps_none(job: Job, tmp_path: Path) -> None:
    (tmp_path / "runner").mkdir()
    more = {"JOB_TOKEN": make_job_token(job.provider, aud=job.url), "ACTIONS_ID_TOKEN_REQUEST_URL": ""}
    orch = Orch(tmp_path / "runner", {"ORCH_SERVER": job.url, **more})
    done = orch("login", "--ci", "--id-token-variable", "JOB_TOKEN")
    assert done.returncode == 0 and "you are ci-release (member)" in done.stderr, done.stderr
    again = orch("login", "--ci", "--id-token-variable", "JOB_TOKEN")
    assert again.returncode != 0 and "was exchanged before" in again.stderr
    with_token = Orch(orch.folder, {**orch.more, "ORCH_TOKEN": done.stdout.strip()})
    assert with_token("status").returncode == 0
    refused = Orch(orch.folder, {**orch.more, "ORCH_TOKEN": "orch_wrong"})("status")
    assert refused.returncode != 0 and "does not accept your token" in refused.stderr
    missing = orch("login", "--ci")
    assert "this job has no token of its CI" in missing.stderr and missing.stderr.count("\n") <= 5
    wrong = orch("login", job.url, "--token-stdin", stdin="orch_wrong\n")
    assert "does not accept this token; nothing is kept" in wrong.stderr and "orch token create" in wrong.stderr
    assert not list(orch.folder.rglob("logins.json"))
