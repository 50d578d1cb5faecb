"""JSON values over a TCP connection: four bytes with the length, then the text; every call has a deadline."""

from __future__ import annotations

import errno
import json
import socket
import struct
import time
from typing import Any, cast

_HEAD = struct.Struct("!I")
MAX_GREETING_BYTES = 64 << 10  # of the first value, before it is known who sends it
MAX_BYTES = 256 << 20  # of a value; other protocols' first bytes, read as a length, exceed it (`GET ` is 1.2 GB)
_UNREACHABLE = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 4))


class ConnectionClosed(Exception):
    """The other end has closed the connection, or it broke."""


class PeerUnreachable(ConnectionClosed):
    """The other end, or the network path to it, vanished without closing the connection."""


class InvalidMessage(Exception):
    """The bytes received are no message of a trainer."""


def configure_socket(connection: socket.socket) -> socket.socket:
    """Send small values without delay, and detect a silently vanished host after about 20 s."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):  # Linux has all three, macOS two
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def send_value(connection: socket.socket, value: Any, deadline: float) -> None:
    """Send one value.

    Args:
        connection: To the other rank.
        value: JSON-able.
        deadline: Of time.monotonic().

    Raises:
        ConnectionClosed: The connection is closed.
        TimeoutError: The deadline passed.
    """
    data = json.dumps(value).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"a value of {len(data):,} bytes is too long for the team")
    send_bytes(connection, _HEAD.pack(len(data)) + data, deadline)


def encode_value(value: Any) -> bytes:
    """Return the bytes that `send_value` sends, for many receivers."""
    data = json.dumps(value).encode()
    return _HEAD.pack(len(data)) + data


def send_bytes(connection: socket.socket, data: bytes, deadline: float) -> None:
    """Send bytes of `encode_value`; raises like `send_value`."""
    try:
        connection.settimeout(_remaining_seconds(deadline))
        connection.sendall(data)
    except OSError as error:
        raise _translate_error(error) from error


class Inbox:
    """Collects what one connection sends, as it arrives.

    Attributes:
        limit: Bytes that one value may have.
    """

    def __init__(self, connection: socket.socket, limit: int = MAX_BYTES) -> None:
        self.connection = connection
        self.limit = limit
        self._data = bytearray()

    def pull(self) -> None:
        """Read what has arrived; wait if nothing has, up to the socket's own limit.

        Raises:
            ConnectionClosed: The connection is closed.
        """
        try:
            data = self.connection.recv(1 << 20)
        except OSError as error:
            raise _translate_error(error) from error
        if not data:
            raise ConnectionClosed("the connection was closed")
        self._data += data

    def take(self) -> tuple[bool, Any]:
        """Return (True, the next value) if one is complete, else (False, None).

        Raises:
            InvalidMessage: The bytes are no message of a trainer.
        """
        if len(self._data) < _HEAD.size:
            return False, None
        (count,) = _HEAD.unpack_from(self._data)
        if count > self.limit:
            raise InvalidMessage("these are not bytes of a trainer")
        if len(self._data) < _HEAD.size + count:
            return False, None
        text = bytes(self._data[_HEAD.size : _HEAD.size + count])
        del self._data[: _HEAD.size + count]
        try:
            return True, json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidMessage("this is no JSON") from error

    def receive(self, deadline: float) -> Any:
        """Return the next value.

        Raises:
            ConnectionClosed: The connection is closed.
            InvalidMessage: The bytes are no message of a trainer.
            TimeoutError: The deadline passed.
        """
        while True:
            complete, value = self.take()
            if complete:
                return value
            self.connection.settimeout(_remaining_seconds(deadline))
            self.pull()


def as_object(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _translate_error(error: OSError) -> Exception:
    """Tell apart our own time limit, a vanished path and a closed connection.

    When the kernel gives a host up, Python raises TimeoutError too, but with an errno.
    """
    if isinstance(error, TimeoutError) and error.errno is None:
        return TimeoutError()
    kind = PeerUnreachable if error.errno in _UNREACHABLE else ConnectionClosed
    return kind(str(error.strerror or error))


def _remaining_seconds(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
