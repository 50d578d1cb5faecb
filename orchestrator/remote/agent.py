"""The keys of an SSH agent. Only this file uses private names of paramiko's agent: `_connect` and `_send_message`.

paramiko's own class knows only the agent of the environment, and mixes up the answers when several threads sign.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING, Any

from paramiko import SSHException
from paramiko.agent import AgentKey, AgentSSH
from paramiko.message import Message

from orchestrator.hosts import Failure
from orchestrator.remote.failures import HostFailure, describe_error

_LIST_SECONDS = 5.0
_SIGN_SECONDS = 60.0  # an agent may ask its user to confirm, or to touch a security key

if TYPE_CHECKING:

    class _AgentSSH(AgentSSH):
        """The private names of paramiko.agent.AgentSSH that this file uses, for the type checkers."""

        def _connect(self, conn: socket.socket) -> None: ...
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
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_LIST_SECONDS)
        try:
            connection.connect(path)
            self._connect(connection)
            connection.settimeout(_SIGN_SECONDS)
        except (OSError, SSHException) as error:
            connection.close()
            raise HostFailure(
                Failure.AUTH, f"the SSH agent at {path} does not answer: {describe_error(error)}"
            ) from error

    @property
    def keys(self) -> tuple[AgentKey, ...]:
        """The keys that it had when it was asked."""
        return tuple(self.get_keys())

    def _send_message(self, msg: Any) -> tuple[int, Message]:
        with self._lock:
            try:
                return super()._send_message(msg)
            except OSError as error:
                raise SSHException(f"the SSH agent does not answer: {describe_error(error)}") from error


def find_agent(setting: str) -> str:
    """Return the socket of an agent as IdentityAgent names it; "" for none."""
    if setting == "none":
        return ""
    if setting.startswith("$"):
        return os.environ.get(setting[1:].strip("{}"), "")
    return setting if setting not in ("", "SSH_AUTH_SOCK") else os.environ.get("SSH_AUTH_SOCK", "")
