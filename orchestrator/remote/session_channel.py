"""One command on a connection: paramiko's channel, with what transport.py changes about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from paramiko import SSHException
from paramiko.channel import Channel
from paramiko.common import cMSG_CHANNEL_OPEN, cMSG_CHANNEL_REQUEST
from paramiko.message import Message
from paramiko.transport import Transport

from orchestrator.remote.wire import BlockPipe

Handler: TypeAlias = Callable[[Channel, Message], None]

if TYPE_CHECKING:

    class _Channel(Channel):
        def _set_transport(self, transport: Transport) -> None: ...
        def _set_window(self, window_size: int, max_packet_size: int) -> None: ...
        def _send_eof(self) -> Message | None: ...
        def _send(self, s: bytes, m: Message) -> int: ...
        def _close_internal(self) -> tuple[Message | None, Message | None]: ...
        def _handle_request(self, m: Message) -> None: ...
        def _request_failed(self, m: Message) -> None: ...

else:
    _Channel = Channel


class Connection(Protocol):
    """The part of a connection that a session uses."""

    def send_together(self, messages: Sequence[Message]) -> None:
        """Send all messages in one write. Raises SSHException."""
        ...

    def reserve_session(self) -> list[Message]:
        """Return the messages that open the next session ahead."""
        ...


class SessionMessage(Message):
    """A message to sshd about one session. is_last: it closes the session."""

    def __init__(self, session: SessionChannel, begin: Message, *, is_last: bool = False) -> None:
        super().__init__()
        self.add_bytes(begin.asbytes())
        self.session, self.is_last = session, is_last


class SessionChannel(_Channel):
    """One command: stdout and stderr in one stream, its exit status or the signal that ended it."""

    def __init__(self, chanid: int) -> None:
        super().__init__(chanid)
        self.in_buffer = self._blocks = BlockPipe(0)
        self.combine_stderr = True
        self.opened = threading.Event()  # set on success, refusal and the end of the connection
        self.open_request = Message()
        self.refusal = ""
        self.exit_signal: str | None = None
        self.ended_here = False  # our last message for it is sent
        self._connection: Connection | None = None

    def attach(self, transport: Transport, connection: Connection, window: int, packet: int) -> None:
        """Prepare the request that opens the session.

        Args:
            transport: the connection, as paramiko types it.
            connection: the same connection, as this module types it.
            window: bytes of the receive window.
            packet: bytes of the largest packet.
        """
        self._connection = connection
        self._set_transport(transport)
        self._set_window(window, packet)
        self._blocks.most = window
        self.open_request.add_byte(cMSG_CHANNEL_OPEN)
        self.open_request.add_string("session")
        self.open_request.add_int(self.chanid)
        self.open_request.add_int(window)
        self.open_request.add_int(packet)

    def start(self, command: bytes, *, more: bool) -> None:
        """Send the command, and in the same write the request that opens the next session.

        Input cannot be sent along: a session's window is 0 until sshd has started the command.

        Args:
            command: the command line.
            more: whether input follows.
        """
        request = Message()
        request.add_byte(cMSG_CHANNEL_REQUEST)
        request.add_int(self.remote_chanid)
        request.add_string("exec")
        request.add_boolean(True)
        request.add_string(command)
        messages = [request]
        if not more:
            with self.lock:
                end = self._send_eof()
            messages += [] if end is None else [end]
        connection = self._connection
        if connection is None:
            raise SSHException("the connection is closed")
        connection.send_together([*messages, *connection.reserve_session()])

    def read(self, timeout: float) -> bytes | None:
        """Return the next block of output, b"" at its end, None when `timeout` passed or `interrupt` was called."""
        self.timeout = timeout
        try:
            return self.recv(1 << 20)
        except TimeoutError:
            return None

    def send_all(self, data: memoryview) -> None:
        """Send as the host takes it, for as long as the command runs. Raises EOFError when it ended before."""
        while data:
            try:
                sent = self.send(bytes(data[: self.out_max_packet_size]))
            except TimeoutError:  # the reader's timeout, which paramiko keeps for both directions
                continue
            if sent == 0:
                raise EOFError("the command ended before it had read its input")
            data = data[sent:]

    def _send(self, s: bytes, m: Message) -> int:
        return super()._send(s, SessionMessage(self, m))

    def _send_eof(self) -> Message | None:
        end = super()._send_eof()
        return None if end is None else SessionMessage(self, end)

    def _close_internal(self) -> tuple[Message | None, Message | None]:
        end, close = super()._close_internal()
        return end, None if close is None else SessionMessage(self, close, is_last=True)

    def interrupt(self) -> None:
        """Make a waiting `read` return None immediately, and every later one without output."""
        self._blocks.interrupt()

    def handle_request(self, m: Message) -> None:
        """Handle a message about this command: exit-signal here (RFC 4254, 6.10), the others by paramiko."""
        position = m.packet.tell()
        if m.get_text() == "exit-signal":
            m.get_boolean()
            self.exit_signal = m.get_text()
            self.status_event.set()
            return
        m.packet.seek(position)
        self._handle_request(m)

    def request_failed(self, m: Message) -> None:
        """Record that the host refused to run the command."""
        self.refusal = "the host refused to run a command"
        self._request_failed(m)

    def _log(self, level: int, msg: str, *args: object) -> None:
        """Log nothing, as TunedTransport._log."""


def on_request(usual: Handler, channel: Channel, m: Message) -> None:
    """Give a channel request to our session, or to paramiko's handler."""
    if isinstance(channel, SessionChannel):
        channel.handle_request(m)
    else:
        usual(channel, m)


def on_failure(usual: Handler, channel: Channel, m: Message) -> None:
    """Give a channel failure to our session, or to paramiko's handler."""
    if isinstance(channel, SessionChannel):
        channel.request_failed(m)
    else:
        usual(channel, m)
