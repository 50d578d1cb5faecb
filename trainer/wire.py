"""JSON values over a TCP connection: a length of four bytes, then the text. Every call has a deadline."""

from __future__ import annotations

import errno
import json
import socket
import struct
import time
from typing import Any, cast

_HEAD = struct.Struct("!I")
LONGEST = 256 << 20  # bytes of a value; a stranger's first bytes read as a length are above it (`GET ` is 1.2 GB)
_NO_WAY = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 4))


class Closed(Exception):
    """The other end has closed the connection, or it broke."""


class Unreachable(Closed):
    """The other end, or the way to it, is gone without a word."""


class Foreign(Exception):
    """What came is not a value of ours."""


def prepare(connection: socket.socket) -> socket.socket:
    """No delay for small values; a host that vanished without a word is noticed after about 20 s."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # Linux has all three, macOS two
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def send(connection: socket.socket, value: Any, deadline: float) -> None:
    """deadline: of time.monotonic(). Raises Closed and TimeoutError."""
    data = json.dumps(value).encode()
    if len(data) > LONGEST:
        raise ValueError(f"a value of {len(data):,} bytes is too long for the team")
    send_bytes(connection, _HEAD.pack(len(data)) + data, deadline)


def packed(value: Any) -> bytes:
    """What `send` would send, for many receivers."""
    data = json.dumps(value).encode()
    return _HEAD.pack(len(data)) + data


def send_bytes(connection: socket.socket, data: bytes, deadline: float) -> None:
    try:
        connection.settimeout(_left(deadline))
        connection.sendall(data)
    except OSError as error:
        raise _meant(error) from error


class Inbox:
    """Collects what one connection sends, as it comes."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._data = bytearray()

    def pull(self) -> None:
        """Read what is there; waits when nothing is, up to the socket's own limit. Raises Closed."""
        try:
            data = self.connection.recv(1 << 20)
        except OSError as error:
            raise _meant(error) from error
        if not data:
            raise Closed("the connection was closed")
        self._data += data

    def take(self) -> tuple[bool, Any]:
        """(True, the next value) when one is complete. Raises Foreign."""
        if len(self._data) < _HEAD.size:
            return False, None
        (count,) = _HEAD.unpack_from(self._data)
        if count > LONGEST:
            raise Foreign("these are not bytes of a trainer")
        if len(self._data) < _HEAD.size + count:
            return False, None
        text = bytes(self._data[_HEAD.size : _HEAD.size + count])
        del self._data[: _HEAD.size + count]
        try:
            return True, json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Foreign("this is no JSON") from error

    def receive(self, deadline: float) -> Any:
        """The next value. Raises Closed, Foreign, TimeoutError."""
        while True:
            complete, value = self.take()
            if complete:
                return value
            self.connection.settimeout(_left(deadline))
            self.pull()


def as_object(value: Any) -> dict[str, Any]:
    """value as a JSON object; an empty one when it is something else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _meant(error: OSError) -> Exception:
    """Our own limit, a way that is gone, or an end. (The kernel, giving a host up, is a TimeoutError in Python too.)"""
    if isinstance(error, TimeoutError) and error.errno is None:
        return TimeoutError()
    kind = Unreachable if error.errno in _NO_WAY else Closed
    return kind(str(error.strerror or error))


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
