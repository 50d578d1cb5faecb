"""The two ends of a paramiko transport: packets on the wire, and the output of a command.

Both replace classes of paramiko by their public names: `packetizer_class`, and a channel's `in_buffer`.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from paramiko import SSHException
from paramiko.buffered_pipe import BufferedPipe, PipeTimeout
from paramiko.channel import Channel
from paramiko.message import Message
from paramiko.packet import Packetizer

from orchestrator.remote.failures import describe_error

_FIRST_READ = 16 * 1024
_LARGEST_READ = 256 * 1024
_LONGEST_BANNER = 64 * 1024
_LONGEST_PACKET = 256 * 1024 + 64  # PACKET_MAX_SIZE of OpenSSH (packet.c, 9.9), and its code for authentication
_QUICKACK = getattr(socket, "TCP_QUICKACK", 0)  # Linux only

Wire: TypeAlias = "socket.socket | Channel"

if TYPE_CHECKING:
    _Pipe = BufferedPipe[bytes]  # generic in the stubs only
else:
    _Pipe = BufferedPipe


class BlockPipe(_Pipe):
    """The output of a command as the blocks in which it came; a read returns all available bytes together.

    Attributes:
        most: Bytes that may wait for a read. paramiko does not compare what comes with the window that it announced.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self._size = 0
        self._arrived = threading.Condition()
        self._blocks: deque[bytes] = deque()
        self._ended = False
        self._interrupted = False

    def feed(self, data: bytes) -> None:
        with self._arrived:
            self._size += len(data)
            if self._size > self.most:
                raise SSHException(f"the host sent more than the {self.most} bytes that it may")
            self._blocks.append(data)
            self._arrived.notify()

    def read(self, nbytes: int, timeout: float | None = None) -> bytes:
        with self._arrived:
            if not self._blocks and not self._ended and not self._interrupted:
                self._arrived.wait(timeout)
            if not self._blocks:
                if self._ended:
                    return b""
                raise PipeTimeout
            if self._size <= nbytes:
                out = self._blocks[0] if len(self._blocks) == 1 else b"".join(self._blocks)
                self._blocks.clear()
                self._size = 0
                return out
            out = self._blocks.popleft()
            if len(out) > nbytes:
                self._blocks.appendleft(out[nbytes:])
                out = out[:nbytes]
            self._size -= len(out)
            return out

    def interrupt(self) -> None:
        with self._arrived:
            self._interrupted = True
            self._arrived.notify_all()

    def close(self) -> None:
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def empty(self) -> bytes:
        with self._arrived:
            out = b"".join(self._blocks)
            self._blocks.clear()
            self._size = 0
            return out

    def read_ready(self) -> bool:
        return bool(self._blocks)

    def __len__(self) -> int:
        return self._size


class TunedPacketizer(Packetizer):
    """A packetizer with large reads, writes without polling, joined writes, and the time of the last byte received."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self._wire: Wire = socket
        self._inbox = b""
        self._at = 0
        self._block = _FIRST_READ
        self._gate = threading.RLock()
        self._held: list[bytes] | None = None
        self._quick = bool(_QUICKACK) and not isinstance(socket, Channel)
        self.last_received = time.monotonic()

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        if n > _LONGEST_PACKET:
            raise SSHException(f"the host announced a packet of {n} bytes")
        while len(self._inbox) - self._at < n:
            self._fill()
        start, self._at = self._at, self._at + n
        return self._inbox[start : self._at]

    def readline(self, timeout: float) -> str:
        while (end := self._inbox.find(b"\n", self._at)) < 0:
            if len(self._inbox) - self._at > _LONGEST_BANNER:
                raise SSHException("it is not an SSH server: a line without end")
            self._fill()
        line = self._inbox[self._at : end]
        self._at = end + 1
        return line.rstrip(b"\r").decode("utf-8", "replace")

    def send_message(self, data: Message) -> None:
        with self._gate:
            super().send_message(data)

    def send_if_free(self, data: Message) -> bool:
        """Send unless another thread is writing or blocked in a write. Return whether it was sent."""
        if not self._gate.acquire(blocking=False):
            return False
        try:
            super().send_message(data)
        finally:
            self._gate.release()
        return True

    @contextlib.contextmanager
    def in_order(self) -> Generator[None]:
        """Keep other threads from writing inside the block."""
        with self._gate:
            yield

    @contextlib.contextmanager
    def corked(self) -> Generator[None]:
        """Collect the messages of the block and send them in one write."""
        with self._gate:
            self._held = []
            try:
                yield
            finally:
                held, self._held = b"".join(self._held), None
                if held:
                    self.write_all(held)

    def write_all(self, out: Any) -> None:
        if self._held is not None:
            self._held.append(out)
            return
        if isinstance(self._wire, socket.socket):
            out = memoryview(out)
        try:
            while out:
                sent = self._wire.send(out)
                if sent <= 0:
                    raise EOFError("the connection was closed")
                out = out[sent:]
        except OSError as error:
            self.close()  # a packet that was sent in part cannot be resumed
            raise EOFError(describe_error(error)) from error

    def end_handshake(self) -> None:
        self._quick = False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in recv
        super().close()

    def _fill(self) -> None:
        try:
            block = self._wire.recv(self._block)
            if self._quick:
                cast(socket.socket, self._wire).setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        except OSError as error:
            raise EOFError(describe_error(error)) from error
        if not block:
            raise EOFError("the connection was closed")
        self.last_received = time.monotonic()
        self._inbox = self._inbox[self._at :] + block
        self._at = 0
        if len(block) == self._block and self._block < _LARGEST_READ:
            self._block *= 2

    # paramiko's deadlines would be a timer thread for each connection; start_client has the deadline instead.

    def start_handshake(self, timeout: float) -> None: ...
    def handshake_timed_out(self) -> bool:
        return False

    def complete_handshake(self) -> None: ...
