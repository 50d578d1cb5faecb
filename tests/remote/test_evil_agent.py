"""An agent that answers wrongly, late or without end: its other keys and the key files still log in."""

from __future__ import annotations

import base64
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.evil_protocol import text
from support.own_ssh import run_program
from support.sshd import Farm, sshd_farm

from orchestrator.hosts import Failure, HostAddress, OwnSsh
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.identities import KeyRing

Answer = Callable[[socket.socket], None]

_ED25519 = text(b"ssh-ed25519")
_UNKNOWN = _ED25519 + text(b"1" * 32)  # a key that no host accepts


def _listing(*keys: tuple[bytes, bytes], count: int | None = None) -> bytes:
    """The list of keys and their comments (draft-ietf-sshm-ssh-agent, section 3.5)."""
    listed = b"".join(text(blob) + text(comment) for blob, comment in keys)
    return text(b"\x0c" + struct.pack(">I", len(keys) if count is None else count) + listed)


def _hang_up(_connection: socket.socket) -> None: ...


def _refuse(connection: socket.socket) -> None:
    while connection.recv(4096):
        connection.sendall(text(b"\x05"))


def _sign_wrongly(connection: socket.socket) -> None:
    while connection.recv(4096):
        connection.sendall(text(b"\x0e" + text(b"no signature")))


def _flood(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(struct.pack(">I", 0x7FFFFFFF))
    while True:
        connection.sendall(b"\0" * 65536)


def _trickle(connection: socket.socket) -> None:
    for byte in _listing((_UNKNOWN, b"slow")):
        time.sleep(1)
        connection.sendall(bytes([byte]))


def _wait(connection: socket.socket) -> None:
    connection.recv(4096)
    while connection.recv(4096):
        pass


_AGENTS: dict[str, tuple[bytes, Answer]] = {
    "another protocol": (b"HTTP/1.0 400\r\n\r\n", _hang_up),
    "empty answer": (text(b""), _refuse),
    "key of three bytes": (_listing((_ED25519 + text(b"abc"), b"")), _refuse),
    "key without a kind": (_listing((text(b"\xff\xfe"), b"")), _refuse),
    "RSA key of 16 bits": (_listing((text(b"ssh-rsa") + text(b"\x01\0\x01") + text(b"\0\xff\xff"), b"")), _refuse),
    "key of no bytes": (_listing((b"", b"")), _refuse),
    "four billion keys": (_listing((_UNKNOWN, b""), count=0xFFFFFFFF), _refuse),
    "list that ends in the middle": (_listing((_UNKNOWN, b""))[:30], _hang_up),
    "list in single bytes": (b"", _trickle),
    "list of gigabytes": (b"", _flood),
    "signs nothing": (_listing((_UNKNOWN, b"")), _refuse),
    "signs wrongly": (_listing((_UNKNOWN, b"")), _sign_wrongly),
    "closes when it is to sign": (_listing((_UNKNOWN, b"")), _hang_up),
    "signature of gigabytes": (_listing((_UNKNOWN, b"")), _flood),
}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("agents"), 2) as farm:
        yield farm


@contextlib.contextmanager
def _agent(folder: Path, listing: bytes, then: Answer) -> Generator[str]:
    """Yield the socket of an agent that sends `listing` as the list of its keys."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(4096)
            connection.sendall(listing)
            then(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "agent"))
        listener.listen()
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield str(folder / "agent")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _addresses(farm: Farm, agent: str, *keys: Path) -> list[HostAddress]:
    own = OwnSsh(keys=keys, agent=agent, known_as="box")
    return [replace(address, own=own) for address in farm.addresses]


@pytest.mark.parametrize("kind", _AGENTS)
def test_key_file_logs_in_beside_an_agent_that_misbehaves(farm: Farm, tmp_path: Path, kind: str) -> None:
    began = time.monotonic()
    with (
        _agent(tmp_path, *_AGENTS[kind]) as agent,
        Fleet(_addresses(farm, agent, farm.identity), deadline=15, keys=KeyRing()) as fleet,
    ):
        result = fleet.run("true", timeout=60)
    assert result.ok, [outcome.detail for outcome in result.failed]
    assert time.monotonic() - began < 12, "it is waited for once, for both hosts"


def test_key_whose_comment_is_not_text_is_used_and_shown_plainly(farm: Farm, tmp_path: Path) -> None:
    blob = base64.b64decode(run_program("ssh-keygen", "-y", "-f", str(farm.identity)).split()[1])
    comment = b"m\xfcller\x1b]0;evil\x07\nNext step: rm" + b"x" * 100_000
    with (
        _agent(tmp_path, _listing((_UNKNOWN, b"other"), (blob, comment)), _sign_wrongly) as agent,
        Fleet(_addresses(farm, agent), deadline=15, keys=KeyRing()) as fleet,
    ):
        outcome = fleet.run("true", timeout=60).hosts[0].outcome
    assert outcome.failure is Failure.AUTH
    assert "m\ufffdller\\x1b]0;evil\\x07 Next step: rm" in outcome.detail
    assert outcome.detail.isprintable()
    assert len(outcome.detail) < 500


def test_signature_that_is_waited_for_is_named(farm: Farm, tmp_path: Path) -> None:
    """As of a security key that no one touches."""
    with (
        _agent(tmp_path, _listing((_UNKNOWN, b"token")), _wait) as agent,
        Fleet(_addresses(farm, agent)[:1], deadline=3, keys=KeyRing()) as fleet,
    ):
        outcome = fleet.run("true", timeout=60).hosts[0].outcome
    assert "token by the agent did not sign within " in outcome.detail
