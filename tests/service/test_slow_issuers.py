"""Issuers that are slow on purpose, over real sockets: each is waited for once, for seconds, and none holds others."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from service_ci import make_job_token, make_rule, serve_ci
from support.oidc_provider import oidc_provider

from orchestrator.conversation import LongAnswerError, StatusError, fetch_within
from orchestrator.service import token_exchange
from orchestrator.store.store import Store

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n"
SLOW = {
    "headers": (HEAD, b"X-A: b\r\n"),
    "body": (HEAD + b"\r\n", b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "refusal": (b"HTTP/1.1 500 No\r\n\r\n", b"x"),
    "continues": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "silence": (b"", b""),
    "whole-but-open": (b"HTTP/1.1 200 OK\r\n\r\n{}", b""),
}


@contextmanager
def slow_server(first: bytes, again: bytes, called: threading.Event | None = None) -> Generator[str]:
    """Answer by a few bytes every 50 ms, until the end of the block."""
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                connection.sendall(first)
                while not over.wait(0.05):
                    connection.sendall(again)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()
            if called is not None:
                called.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", SLOW)
def test_an_answer_that_goes_on_is_cut_off_at_its_time(kind: str) -> None:
    with slow_server(*SLOW[kind]) as url, pytest.raises(TimeoutError, match="did not come within"):
        fetch_within(urllib.request.Request(url), 0.4, 10_000)


def test_an_answer_in_time_is_whole() -> None:
    with slow_server(HEAD + b"\r\n" + b"x" * 100, b"") as url:
        assert fetch_within(urllib.request.Request(url), 60, 100) == b"x" * 100
        with pytest.raises(LongAnswerError, match="more than 99 bytes"):
            fetch_within(urllib.request.Request(url), 60, 99)
    refusal = b"HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nwhy"
    with slow_server(refusal, b"") as url, pytest.raises(StatusError) as refused:
        fetch_within(urllib.request.Request(url), 60, 100)
    assert (refused.value.status, refused.value.text) == (503, "why")


def test_slow_issuers_hold_no_job_of_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_exchange, "ANSWER_SECONDS", 600.0)  # longer than this test
    called, kinds = [threading.Event() for _ in range(5)], ("headers", "silence", "body", "chunks", "silence")
    with (
        oidc_provider("127.0.0.1") as good,
        serve_ci(tmp_path / "orch.db", tmp_path) as server,
        ThreadPoolExecutor(5) as pool,
        ExitStack() as stack,
    ):
        slow = [stack.enter_context(slow_server(*SLOW[kind], event)) for kind, event in zip(kinds, called, strict=True)]
        with Store(tmp_path / "orch.db") as store:
            store.add_trust_rule(make_rule(good.issuer))
            for number, issuer in enumerate(slow):
                store.add_trust_rule(make_rule(issuer, f"slow-{number}"))
        tokens = [good.key.sign({"iss": issuer}) for issuer in slow]
        waiting = [pool.submit(server.exchange, token) for token in tokens]
        assert all(event.wait(60) for event in called)
        assert {server.exchange(token)[0] for token in tokens} == {503}, "each is waited for once"
        assert server.exchange(make_job_token(good))[0] == 200
        assert not any(one.done() for one in waiting), "they are still waited for"
        stack.close()
        assert {one.result(60)[0] for one in waiting} == {502}
