"""A host that speaks SSH wrongly: it sends bytes of its choice to everybody who connects."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Generator

BANNER = b"SSH-2.0-OpenSSH_9.9\r\n"


def packet(payload: bytes) -> bytes:
    """A packet before the first key exchange (RFC 4253, section 6)."""
    padding = 8 - (len(payload) + 5) % 8
    padding += 8 if padding < 4 else 0
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + b"\0" * padding


def text(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def key_exchange(exchange: bytes = b"curve25519-sha256@libssh.org", key: bytes = b"ssh-ed25519") -> bytes:
    """The server's first message (RFC 4253, section 7.1)."""
    ciphers = text(b"aes128-gcm@openssh.com") * 2 + text(b"hmac-sha2-256") * 2
    return packet(
        b"\x14" + b"c" * 16 + text(exchange) + text(key) + ciphers + text(b"none") * 2 + text(b"") * 2 + b"\0" * 5
    )


def key_reply(key: bytes, point: bytes, signature: bytes) -> bytes:
    """The answer that shows the host's key (RFC 8731)."""
    return packet(b"\x1f" + text(key) + text(point) + text(signature))


def goodbye(message: bytes) -> bytes:
    return packet(b"\x01" + struct.pack(">I", 2) + text(message) + text(b""))


@contextlib.contextmanager
def evil_host(sent: bytes, again: bytes = b"") -> Generator[int]:
    """Yield the port of a host that sends `sent`, then `again` without end, and then waits until it is left."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.sendall(sent)
            while again:
                connection.sendall(again)
            while connection.recv(4096):
                pass

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
