"""The address of this computer, as a server on the other side tells it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from access_support import PROJECT

from orchestrator.errors import CloudError
from orchestrator.providers import caller
from orchestrator.providers.caller import PLACES, caller_address
from orchestrator.providers.google.session import Session

GOOGLE = Session(None, PROJECT)


@contextmanager
def place(body: bytes, status: str = "200 OK", *, silent: bool = False) -> Iterator[str]:
    """A server that answers every connection so, or never."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    if silent:
                        time.sleep(3)
                    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                    connection.sendall(head + body)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_a_public_address_is_taken() -> None:
    with place(b"8.8.4.4\n") as good:
        assert caller_address(GOOGLE, [good]) == "8.8.4.4"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"10.0.0.7", "200 OK"),
        (b"127.0.0.1", "200 OK"),
        (b"0.0.0.0", "200 OK"),
        (b"224.0.0.5", "200 OK"),
        (b"2001:4860:4860::8888", "200 OK"),
        (b"8.8.4.4/8", "200 OK"),
        (b"<html>8.8.4.4</html>", "200 OK"),
        (b"", "200 OK"),
        (b"\xff\xfe", "200 OK"),
        (b"8.8.4.4" + b" " * 1000 + b"x", "302 Found"),
        (b"8.8.4.4", "503 Unavailable"),
    ],
)
def test_what_is_no_public_address_is_not_taken_and_the_next_is_asked(body: bytes, status: str) -> None:
    with place(body, status) as bad, place(b"8.8.8.8") as good:
        assert caller_address(GOOGLE, [bad, good]) == "8.8.8.8"
        with pytest.raises(CloudError) as told:
            caller_address(GOOGLE, [bad])
    assert "ssh_cidr" in told.value.next_step
    assert told.value.why.startswith("127.0.0.1: ")


def test_a_place_that_says_nothing_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller, "ASK_SECONDS", 0.3)
    began = time.monotonic()
    with place(b"8.8.4.4", silent=True) as silent:
        with pytest.raises(CloudError, match="timed out"):
            caller_address(GOOGLE, [silent])
        assert time.monotonic() - began < 2


def test_on_the_loopback_nobody_is_asked() -> None:
    assert caller_address(Session(None, PROJECT, "http://127.0.0.1:1"), []) == "127.0.0.1"


def test_the_places_are_asked_over_tls() -> None:
    assert len(PLACES) == 2
    assert all(place.startswith("https://") for place in PLACES)
