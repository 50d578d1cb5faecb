"""A stand-in for IAP's TCP forwarding on this computer: as much of its WebSocket protocol as gcloud 528 speaks.

Messages are binary, each begins with a tag of two bytes (source: gcloud 528, iap_tunnel_websocket_utils): 1 connected
(length of 4 bytes and a session's name), 4 data (length and bytes), 7 acknowledgement (8 bytes: how much has come).
"""

from __future__ import annotations

import base64
import hashlib
import select
import socket
import ssl
import struct
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_BINARY, _CLOSE = 0x2, 0x8
_CONNECTED, _DATA, _ACK = 1, 4, 7
_REFUSED = 4003  # what IAP closes with when it cannot reach the instance ("failed to connect to backend")


@dataclass(slots=True)
class IapService:
    """workers: where each instance's port 22 is in truth. asked: the parameters of each connection."""

    workers: Mapping[str, tuple[str, int]]
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    def serve(self, near: ssl.SSLSocket) -> None:
        with near, suppress(OSError, EOFError):
            stream = _Stream(near)
            self.asked.append(stream.shake_hands())
            place = self.workers.get(self.asked[-1].get("instance", ""))
            if place is None:
                stream.send(_CLOSE, struct.pack(">H", _REFUSED) + b"failed to connect to backend")
                stream.read()
                return
            with socket.create_connection(place, 5) as far:
                stream.send(_BINARY, struct.pack(">HI", _CONNECTED, 3) + b"sid")
                self._forward(stream, far)

    def _forward(self, stream: _Stream, far: socket.socket) -> None:
        """In one thread: TLS of this Python is not for two at once."""
        come = 0
        while True:
            ready, _, _ = select.select([stream.sock, far], [], [])
            if far in ready:
                block = far.recv(16384)
                if not block:
                    stream.send(_CLOSE, struct.pack(">H", 1000))
                    return
                stream.send(_BINARY, struct.pack(">HI", _DATA, len(block)) + block)
            for kind, payload in stream.read() if stream.sock in ready else ():
                if kind == _CLOSE:
                    return
                if kind == _BINARY and struct.unpack_from(">H", payload)[0] == _DATA:
                    far.sendall(payload[6:])
                    come += len(payload) - 6
                    stream.send(_BINARY, struct.pack(">HQ", _ACK, come))


class _Stream:
    """WebSocket frames, RFC 6455."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock
        self._held = b""

    def shake_hands(self) -> dict[str, str]:
        """The parameters in the address."""
        while b"\r\n\r\n" not in self._held:
            self._fill()
        head, _, self._held = self._held.partition(b"\r\n\r\n")
        target, *lines = head.split(b"\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines)}
        digest = hashlib.sha1(fields[b"sec-websocket-key"] + _MAGIC, usedforsecurity=False).digest()
        self.sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: relay.tunnel.cloudproxy.app\r\n"
            b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n"
        )
        return dict(parse_qsl(urlsplit(target.split()[1].decode()).query))

    def send(self, kind: int, payload: bytes) -> None:
        size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e" + struct.pack(">H", len(payload))
        self.sock.sendall(bytes([0x80 | kind]) + size + payload)

    def read(self) -> list[tuple[int, bytes]]:
        """Wait for bytes; the whole messages that are there then."""
        self._fill()
        while self.sock.pending():
            self._fill()
        found: list[tuple[int, bytes]] = []
        while (one := self._message()) is not None:
            found.append(one)
        return found

    def _message(self) -> tuple[int, bytes] | None:
        if len(self._held) < 2:
            return None
        size, at = self._held[1] & 0x7F, 2
        assert self._held[1] & 0x80, "a client masks what it sends"
        if size >= 126:
            width = 2 if size == 126 else 8
            size, at = int.from_bytes(self._held[at : at + width], "big"), at + width
        if len(self._held) < at + 4 + size:
            return None
        kind, mask, masked = self._held[0] & 0x0F, self._held[at : at + 4], self._held[at + 4 : at + 4 + size]
        self._held = self._held[at + 4 + size :]
        key = (mask * (size // 4 + 1))[:size]
        return kind, (int.from_bytes(masked, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")

    def _fill(self) -> None:
        block = self.sock.recv(65536)
        if not block:
            raise EOFError
        self._held += block


def _certificate(folder: Path) -> ssl.SSLContext:
    """Signed by itself; gcloud is told not to mind."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    path = folder / "iap.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@contextmanager
def iap_service(workers: Mapping[str, tuple[str, int]], folder: Path) -> Generator[IapService]:
    """folder: for the certificate."""
    context = _certificate(folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service = IapService(workers, f"wss://127.0.0.1:{listener.getsockname()[1]}")

        def serve(plain: socket.socket) -> None:
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as near:
                service.serve(near)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield service
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
