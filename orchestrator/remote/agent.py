"""The keys of an SSH agent. Only this file uses a private name of paramiko's agent: `_send_message`.

paramiko's own class knows only the agent of the environment, mixes up the answers when several threads sign, waits
without end for an answer that arrives in pieces, and fails as a whole for one key that it cannot read.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

from paramiko import SSHException
from paramiko.agent import SSH2_AGENT_IDENTITIES_ANSWER, AgentKey, AgentSSH, cSSH2_AGENTC_REQUEST_IDENTITIES
from paramiko.message import Message

from orchestrator.hosts import Failure
from orchestrator.remote.failures import HostFailure, describe_error

_LIST_SECONDS = 5.0
_SIGN_SECONDS = 60.0  # an agent may ask its user to confirm, or to touch a security key
_LONGEST_ANSWER = 256 * 1024  # AGENT_MAX_LEN of OpenSSH (ssh-agent.c, 9.9)

if TYPE_CHECKING:

    class _AgentSSH(AgentSSH):
        """The private name of paramiko.agent.AgentSSH that this file uses, for the type checkers."""

        def _send_message(self, msg: Any) -> tuple[int, Message]: ...

else:
    _AgentSSH = AgentSSH


class Agent(_AgentSSH):
    """One connection to an agent. Thread-safe."""

    def __init__(self, path: str) -> None:
        """Connect and list the keys.

        Raises:
            HostFailure: Nothing that speaks the protocol answers at `path`.
        """
        super().__init__()
        self._lock = threading.Lock()
        self._seconds = _LIST_SECONDS
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_LIST_SECONDS)
        self._connection: socket.socket | None = connection
        try:
            connection.connect(path)
            self._found = tuple(self._list_keys())
        except (OSError, SSHException) as error:
            self._hang_up()
            raise HostFailure(
                Failure.AUTH, f"the SSH agent at {path} does not answer: {describe_error(error)}"
            ) from error
        self._seconds = _SIGN_SECONDS

    @property
    def keys(self) -> tuple[AgentKey, ...]:
        """The keys that it had when it was asked."""
        return self._found

    def _list_keys(self) -> list[AgentKey]:
        """Return the keys that can be read; an agent may have others, of kinds that paramiko does not know."""
        kind, answer = self._send_message(cSSH2_AGENTC_REQUEST_IDENTITIES)
        if kind != SSH2_AGENT_IDENTITIES_ANSWER:
            raise SSHException("it lists no keys")
        found = list[AgentKey]()
        for _ in range(answer.get_int()):
            blob, comment = answer.get_binary(), answer.get_binary()
            if not blob:
                break  # it announced more keys than it sent
            try:
                found.append(AgentKey(self, blob, comment.decode("utf-8", "replace")))
            except (ValueError, LookupError, SSHException):
                continue
        return found

    def _send_message(self, msg: Any) -> tuple[int, Message]:
        with self._lock:
            try:
                return self._exchange(_to_bytes(msg), time.monotonic() + self._seconds)
            except OSError as error:
                self._hang_up()  # a late answer would be taken for that to the next request
                raise SSHException(f"the SSH agent does not answer: {describe_error(error)}") from error

    def _exchange(self, request: bytes, limit: float) -> tuple[int, Message]:
        if self._connection is None:
            raise ConnectionError("it was given up")
        self._connection.settimeout(self._seconds)
        self._connection.sendall(struct.pack(">I", len(request)) + request)
        (length,) = struct.unpack(">I", self._receive(self._connection, 4, limit))
        if not 1 <= length <= _LONGEST_ANSWER:
            raise ConnectionError(f"it announced an answer of {length} bytes")
        answer = self._receive(self._connection, length, limit)
        return answer[0], Message(answer[1:])

    @staticmethod
    def _receive(connection: socket.socket, size: int, limit: float) -> bytes:
        received = b""
        while len(received) < size:
            connection.settimeout(max(0.001, limit - time.monotonic()))
            block = connection.recv(size - len(received))
            if not block:
                raise ConnectionError("it closed the connection")
            received += block
        return received

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _to_bytes(message: Any) -> bytes:
    return message.asbytes() if isinstance(message, Message) else bytes(message)


def find_agent(setting: str) -> str:
    """Return the socket of an agent as IdentityAgent names it; "" for none."""
    if setting == "none":
        return ""
    if setting.startswith("$"):
        return os.environ.get(setting[1:].strip("{}"), "")
    return setting if setting not in ("", "SSH_AUTH_SOCK") else os.environ.get("SSH_AUTH_SOCK", "")
