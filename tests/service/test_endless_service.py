"""A service that never ends its answers: a command ends in its time, in little memory, and says why."""

from __future__ import annotations

import gzip
import json
import resource
import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.endless_server import endless_server
from support.orch_process import until

from orchestrator.client import ci as client_ci
from orchestrator.client import transport
from orchestrator.client.http import Client
from orchestrator.client.transport import ServiceError
from orchestrator.errors import CloudError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DRIPPING = {
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
    "content": (HEAD + b"Content-Length: 100000\r\n\r\n", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "a refusal": (b"HTTP/1.1 500 No\r\n\r\n", b"x"),
}


def pack(content: bytes, end: int | None = None) -> bytes:
    packed = gzip.compress(content)[:end]
    return HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed


@pytest.mark.parametrize("kind", DRIPPING)
def test_an_answer_that_drips_is_cut_off_at_its_time(kind: str) -> None:
    with endless_server(*DRIPPING[kind], 0.05) as server, Client(server.url, "orch_x") as client:
        client.set_timeout(0.5)
        with pytest.raises((CloudError, ServiceError)) as refused:
            client.list_clusters()
        assert "did not come within" in refused.value.why or refused.value.what == "500 No"


def test_a_long_answer_over_a_slow_link_is_read_while_it_makes_progress() -> None:
    """4 MiB within two seconds, for a client that waits one for each."""
    head = HEAD + b"Content-Length: %d\r\n\r\n{}" % (2 + (4 << 20))
    with endless_server(head, b" " * (64 << 10), 0.03) as server, Client(server.url, "orch_x") as client:
        client.set_timeout(1.0)
        assert client.read_records() == {}


@pytest.mark.parametrize(
    ("first", "again"), [(CHUNKED, b"10000\r\n" + b" " * 0x10000 + b"\r\n"), (pack(b" " * (1 << 29)), b"")],
    ids=["chunks without end", "gzip of 512 MiB"],
)  # fmt: skip
def test_an_answer_that_floods_is_cut_off_at_its_bytes(first: bytes, again: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (
        endless_server(first, again, 0.0 if again else 0.05) as server,
        Client(server.url, "orch_x") as client,
        pytest.raises(CloudError) as refused,
    ):
        client.read_records()
    assert "has more than 67,108,864 bytes" in refused.value.why
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10, "KiB"


@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b"[]", b"{", pack(b"{}")[:-4], pack(b"{}", -4)],
    ids=["nested", "list", "half", "half an answer", "half a gzip"],
)
def test_an_answer_that_is_no_document_is_an_error_of_the_service(content: bytes) -> None:
    if not content.startswith(b"HTTP"):
        content = HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content
    with endless_server(content, b"", 0.05) as server, Client(server.url, "orch_x") as client:
        client.set_timeout(0.5)
        with pytest.raises(CloudError, match="does not answer"):
            client.list_clusters()


def test_an_answer_just_below_the_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.dumps({"clusters": ["x" * 90]}).encode()
    monkeypatch.setattr(transport, "MOST_BYTES", len(document))
    with endless_server(pack(document), b"", 0.05) as server, Client(server.url, "orch_x") as client:
        assert client.read_records() == json.loads(document)
    monkeypatch.setattr(transport, "MOST_BYTES", len(document) - 1)
    with (
        endless_server(pack(document), b"", 0.05) as server,
        Client(server.url, "orch_x") as client,
        pytest.raises(CloudError, match="does not answer"),
    ):
        client.read_records()


@pytest.mark.parametrize("kind", DRIPPING)
def test_a_ci_that_drips_is_left_at_its_time(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "crt.pem", tmp_path / "key.pem"
    command: list[str | Path] = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate,
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setattr(client_ci, "_SECONDS", 0.5)
    with endless_server(*DRIPPING[kind], tls=tls) as server:
        url = f"https://localhost:{server.port}/token"
        environ = {client_ci._REQUEST_URL: url, client_ci._REQUEST_TOKEN: "x"}
        with pytest.raises(CloudError) as refused:
            client_ci.request_id_token(environ, "https://orch.example.org")
    assert "did not come within" in refused.value.why or "HTTP 500" in refused.value.why


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 1\n\n"


def make_message(data: bytes) -> bytes:
    return b"id: 2\ndata: " + data + b"\n\n"


EVENT = make_message(b'{"seq": 2, "cluster": "c", "kind": "k", "what": "%s"}' % (b"x" * 1000))


def test_a_stream_that_floods_fills_no_memory_and_holds_no_one() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with endless_server(STREAM, EVENT * 1000, 0.0) as server, Client(server.url, "orch_x") as client:
        with client.follow_events() as events:
            until("it sends", lambda: server.sent > 1 << 20)
            time.sleep(3.0)
            assert 0 < len(events.wait(5.0)) <= 2000
            assert events.wait(5.0), "it reads again"
        until("it is left", lambda: "events of the service" not in {one.name for one in threading.enumerate()})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10, "KiB"


@pytest.mark.parametrize(
    "data", [b"[" * 60_000, b"5", b"{}", b'{"cluster": 1, "kind": [], "what": null}', b"{", b"x" * 200_000]
)
def test_an_event_that_is_none_is_passed_over(data: bytes) -> None:
    with (
        endless_server(STREAM + make_message(data) + EVENT, b": alive\n\n") as server,
        Client(server.url, "orch_x") as client,
        client.follow_events() as events,
    ):
        assert [one["kind"] for one in events.wait(5.0)] == ["k"]
