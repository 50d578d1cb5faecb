"""An SSH server that logs everyone in, takes every command, and answers as one of MODES says.

Real sshd keeps the protocol; this server breaks what a client may rely on.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Generator

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED, cMSG_CHANNEL_DATA
from paramiko.message import Message

_BLOCK = b"y" * 30_000 + b"\n"


def _transport_of(channel: paramiko.Channel) -> paramiko.Transport:
    transport = channel.get_transport()
    assert transport is not None
    return transport


def _flood(channel: paramiko.Channel, _over: threading.Event) -> None:
    while True:
        channel.sendall(_BLOCK)


def _drip(channel: paramiko.Channel, over: threading.Event) -> None:
    while not over.wait(0.05):
        channel.sendall(b"\n")


def _flood_beyond_the_window(channel: paramiko.Channel, _over: threading.Event) -> None:
    while True:
        message = Message()
        message.add_byte(cMSG_CHANNEL_DATA)
        message.add_int(channel.remote_chanid)
        message.add_string(_BLOCK)
        _transport_of(channel)._send_user_message(message)  # type: ignore[attr-defined]  # paramiko's own name


def _ignore(channel: paramiko.Channel, over: threading.Event) -> None:
    """Send messages without content, which keep the connection busy."""
    while not over.wait(0.01):
        _transport_of(channel).send_ignore(1000)


def _end_without_closing(channel: paramiko.Channel, over: threading.Event) -> None:
    channel.send_exit_status(0)
    over.wait()


def _be_silent(_channel: paramiko.Channel, over: threading.Event) -> None:
    over.wait()


MODES: dict[str, Callable[[paramiko.Channel, threading.Event], None]] = {
    "flood": _flood,
    "drip": _drip,
    "flood beyond the window": _flood_beyond_the_window,
    "ignore": _ignore,
    "no close": _end_without_closing,
    "silence": _be_silent,
}


class _Server(paramiko.ServerInterface):
    def __init__(self, mode: str, over: threading.Event) -> None:
        self._mode, self._over = mode, over

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        def run() -> None:
            with contextlib.suppress(paramiko.SSHException, EOFError, OSError):
                MODES[self._mode](channel, self._over)

        threading.Thread(target=run, daemon=True).start()
        return True


@contextlib.contextmanager
def evil_ssh(mode: str) -> Generator[tuple[int, str]]:
    """Yield the port and the public host key of such a server."""
    key = paramiko.ECDSAKey.generate()
    over = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(paramiko.SSHException, EOFError, OSError):
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            transport.start_server(server=_Server(mode, over))
            while transport.is_active() and not over.wait(0.1):
                pass
            transport.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1], f"{key.get_name()} {key.get_base64()}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
