"""Receivers that never end: what each sends is bounded, and neither thread nor socket stays behind."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.orch_process import Orch, until

from orchestrator.notifications import http_post, mail
from orchestrator.notifications.delivery_error import DeliveryError
from orchestrator.notifications.messages import make_test_message
from orchestrator.notifications.send import send_message
from orchestrator.notifications.settings import Channel, EmailChannel, SlackChannel, WebhookChannel

NOW = 1_800_000_000.0
GREETING, REPEATED = b"220 mail\r\n", b"250-more\r\n"
ENDLESS = {
    "mail: EHLO": ("email", GREETING, REPEATED),
    "mail: greeting": ("email", b"", b"220-more\r\n"),
    "mail: one line": ("email", GREETING, b"2"),
    "web: 100 Continue": ("webhook", b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "web: headers of 100": ("webhook", b"HTTP/1.1 100 Continue\r\n", b"A: b\r\n"),
    "web: one header": ("slack", b"HTTP/1.1 200 OK\r\nA: ", b"b"),
    "web: a refusal": ("slack", b"HTTP/1.1 500 No\r\n\r\n", b"x"),
}


@contextmanager
def endless_server(first: bytes, again: bytes, pause: float) -> Generator[tuple[int, list[int]]]:
    """Yield the port of a server that repeats an answer until it is hung up on, and the bytes that it sent."""
    over = threading.Event()
    sent: list[int] = []
    block = again if pause else again * (65_536 // len(again))

    def answer(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(20.0)
            try:
                connection.sendall(first)
                while not over.wait(pause):
                    connection.sendall(block)
                    sent.append(len(block))
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True, name="the test's server").start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True, name="the test's server").start()
        try:
            yield listening.getsockname()[1], sent
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)


def make_channel(kind: str, port: int) -> Channel:
    url = f"http://127.0.0.1:{port}/hook"
    if kind == "email":
        return EmailChannel(
            to=("ann@example.org",), sender="orch@example.org", host="127.0.0.1", port=port, security="none"
        )
    return SlackChannel(url=url) if kind == "slack" else WebhookChannel(url=url)


def send(channel: Channel) -> str:
    return send_message(channel, make_test_message("webhook", "abc", NOW), "abc", NOW)


def list_own_threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name != "the test's server"]


def count_sockets_to(port: int) -> int:
    """Return the TCP sockets of this computer that are connected to a port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_is_cut_off_at_its_bytes(kind: str) -> None:
    before = list_own_threads()
    channel, first, again = ENDLESS[kind]
    with endless_server(first, again, 0.0) as (port, sent):
        with pytest.raises(DeliveryError) as refused:
            send(make_channel(channel, port))
        until("the server is hung up on", lambda: count_sockets_to(port) == 0)
        assert "did not answer within" not in refused.value.what, "it is cut off by its bytes, and not by its time"
        assert refused.value.is_transient or "Line too long" in str(refused.value)
        assert sum(sent) < 16 << 20, "of which the most are in buffers of the system"
    assert list_own_threads() == before


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_that_drips_is_cut_off_at_its_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (http_post, mail):
        monkeypatch.setattr(module, "DEADLINE", 0.6)
    before = list_own_threads()
    channel, first, again = ENDLESS[kind]
    with endless_server(first, again, 0.05) as (port, _):
        began = time.monotonic()
        with pytest.raises(DeliveryError) as refused:
            send(make_channel(channel, port))
        assert time.monotonic() - began < 5.0 and refused.value.is_transient
        assert "did not answer within" in refused.value.what
        until("the server is hung up on", lambda: count_sockets_to(port) == 0)
    assert list_own_threads() == before


def test_a_handshake_of_tls_that_drips_is_cut_off_at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_post, "DEADLINE", 0.6)
    record = b"\x16\x03\x03\x40\x00"  # of a handshake, whose 16 KiB never come completely
    with endless_server(record, b"\x02", 0.05) as (port, _):
        began = time.monotonic()
        with pytest.raises(DeliveryError) as refused:
            send(WebhookChannel(url=f"https://127.0.0.1:{port}/hook"))
        assert time.monotonic() - began < 5.0 and refused.value.is_transient
        until("the server is hung up on", lambda: count_sockets_to(port) == 0)


def serve_mail(last: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            connection.sendall(GREETING)
            for line in lines:
                if line.lower().startswith(b"data"):
                    connection.sendall(b"354 go on\r\n")
                    while next(lines) != b".\r\n":
                        pass
                    connection.sendall(b"250 accepted\r\n")
                elif line.lower().startswith(b"quit"):
                    connection.sendall(last)
                    if not last:
                        connection.recv(1)
                    return
                else:
                    connection.sendall(b"250 yes\r\n")

    return answer


@pytest.mark.parametrize("last", [b"500 no\r\n", b"421 away\r\n", b"garbage", b"250-" * 20_000, b""])
def test_an_email_that_was_accepted_is_delivered_whatever_follows(last: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "_QUIT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            serve_mail(last)(listening.accept()[0])

        server = threading.Thread(target=accept, daemon=True)
        server.start()
        port = listening.getsockname()[1]
        assert send(make_channel("email", port)) == f"127.0.0.1:{port} took it"
        server.join(10)


@pytest.mark.parametrize("cut", [b"25", b"4", b"250", b"550 n"])
def test_a_reply_of_mail_that_is_cut_off_is_not_an_answer(cut: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mail, "DEADLINE", 3.0)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            connection, _ = listening.accept()
            with suppress(OSError), connection, connection.makefile("rb") as lines:
                connection.sendall(GREETING)
                lines.readline()
                connection.sendall(b"250 yes\r\n")
                lines.readline()
                connection.sendall(cut)
                over.wait(30)

        server = threading.Thread(target=accept, daemon=True)
        server.start()
        with pytest.raises(DeliveryError) as refused:
            send(make_channel("email", listening.getsockname()[1]))
        over.set()
        server.join(10)
    assert refused.value.is_transient and "did not answer within" in refused.value.what


@pytest.mark.parametrize("kind", ["mail: EHLO", "web: 100 Continue"])
def test_the_test_command_needs_little_memory_for_an_answer_without_end(tmp_path: Path, kind: str) -> None:
    _, first, again = ENDLESS[kind]
    orch = Orch(tmp_path)
    with endless_server(first, again, 0.0) as (port, sent):
        if kind.startswith("mail"):
            for key, value in (
                ("email_to", "ann@example.org"), ("email_from", "orch@example.org"), ("smtp", f"127.0.0.1:{port}"),
                ("smtp_security", "none"),
            ):  # fmt: skip
                orch.ok("config", "set", f"notify.{key}", value)
        else:
            orch.ok("config", "set", "notify.webhook", f"http://127.0.0.1:{port}/hook")
        done = orch("notify", "test")
    assert done.returncode == 1 and "bytes" in done.stdout + done.stderr, done.stdout + done.stderr
    assert sum(sent) < 16 << 20


def test_a_token_in_the_query_of_an_address_is_hidden() -> None:
    assert os.environ.get("http_proxy", "") == ""
    url_path = "/services/T0"
    query = "token=canary-abc%2Fdef&x=1"
    answers = (f"{url_path}?{query}", query, "canary-abc%2Fdef", "canary-abc/def")
    for said in answers:
        body = said.encode()
        head = b"HTTP/1.1 404 No\r\nContent-Length: %d\r\n\r\n" % len(body)
        with endless_server(head + body, b"", 0.05) as (port, _), pytest.raises(DeliveryError) as refused:
            send(SlackChannel(url=f"http://127.0.0.1:{port}{url_path}?{query}"))
        assert "canary" not in str(refused.value) and "***" in str(refused.value), said
