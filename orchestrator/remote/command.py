"""One command on one open connection: its input, its output as it comes, its end, and how it is ended early."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from paramiko import SSHException

from orchestrator.hosts import Failure
from orchestrator.remote.failures import HostFailure, words
from orchestrator.remote.session_channel import SessionChannel
from orchestrator.remote.transport import TunedTransport

_LINGER = 0.5  # seconds of silence after the exit status until processes left behind are no longer listened to
_LONGEST_WAIT = 1.0  # seconds between looks whether the exit status has come while the output stays open
_STDIN_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. Exactly one of exit_code, signal and failure is set. output: the last `keep` bytes."""

    exit_code: int | None
    signal: str | None
    failure: HostFailure | None
    output: bytes


class Halt:
    """Asks the running commands of one call to end; `why` is set once, by the first who asks."""

    def __init__(self) -> None:
        self.why: HostFailure | None = None
        self.asked = threading.Event()
        self._lock = threading.Lock()
        self._open: set[SessionChannel] = set()

    def ask(self, why: HostFailure) -> None:
        with self._lock:
            self.why = self.why or why
            channels = tuple(self._open)
        self.asked.set()
        for channel in channels:
            channel.interrupt()

    @contextlib.contextmanager
    def reaches(self, channel: SessionChannel) -> Generator[None]:
        """While inside, asking wakes whoever reads from `channel`."""
        with self._lock:
            self._open.add(channel)
            asked = self.why is not None
        if asked:
            channel.interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(channel)


class Command:
    """Runs one command once; `run` may be called once.

    deadline: seconds without a byte from the host after which it counts as frozen (or lost, when its kernel is
    silent too). timeout: seconds the command may take, None for no limit.
    """

    def __init__(
        self,
        transport: TunedTransport,
        *,
        deadline: float,
        timeout: float | None,
        halt: Halt,
        keep: int,
        on_output: Callable[[bytes], None] | None = None,
        on_sent: Callable[[int], None] | None = None,
        talk: Callable[[Conversation], memoryview] | None = None,
    ) -> None:
        self._transport = transport
        self._talk = talk
        self._deadline = deadline * 0.9  # leaves time to report within the deadline
        self._timeout = timeout
        self._halt = halt
        self._tail = _Tail(keep)
        self._on_output = on_output
        self._on_sent = on_sent
        self._of_callback: _OfCallback | None = None
        self._began = self._heard = time.monotonic()

    def run(self, line: bytes, stdin: bytes | memoryview) -> Ended:
        """Raises HostFailure(retry=True) when the host opened no session: then nothing was sent."""
        try:
            channel = self._transport.open_session(timeout=self._deadline)
        except (SSHException, EOFError, OSError) as error:
            raise self._transport.verdict or HostFailure(Failure.LOST, words(error), retry=True) from error
        self._began = self._heard = time.monotonic()
        with _closing(channel), self._halt.reaches(channel):
            try:
                more = self._talk is not None or len(stdin) > 0
                channel.start(line, more=more)
                if self._talk is not None:
                    stdin = self._talk(Conversation(functools.partial(self._next, channel), channel.send_all))
                if more:
                    self._feed(channel, memoryview(stdin))
                failure = self._follow(channel)
            except HostFailure as error:
                failure = error
            except _OfCallback as error:
                raise error.cause from None
            except (SSHException, EOFError, OSError) as error:
                failure = self._lost(words(error))
        return self._ended(channel, failure)

    def _follow(self, channel: SessionChannel) -> HostFailure | None:
        """Read until the command ended; returns why we stopped earlier, if we did."""
        while self._next(channel):
            pass
        while not channel.status_event.wait(min(self._wait(), 0.25 if self._halt.why is None else 0.0)):
            if (failure := self._overdue()) is not None:  # the output is closed, the command may still run
                return failure
        return None

    def _next(self, channel: SessionChannel) -> bytes:
        """The next block of output, b"" at its end. Raises HostFailure when we stop earlier."""
        while True:
            exited = channel.status_event.is_set() and not channel.closed
            block = channel.read(_LINGER if exited else min(_LONGEST_WAIT, self._wait()))
            if block is None and exited:  # what it left in the background may keep the output open for ever
                self._transport.answers(self._deadline)  # after the answer, all that was on its way is here
                block = channel.read(0.01) or b""
            if block is not None:
                if block:
                    self._deliver(block)
                return block
            if (failure := self._overdue()) is not None:
                raise failure

    def _deliver(self, block: bytes) -> None:
        self._tail.add(block)
        if self._on_output:
            try:
                self._on_output(block)
            except Exception as error:
                raise _OfCallback(error) from error
            self._heard = time.monotonic()  # a slow reader of ours is not a silent host

    def _wait(self) -> float:
        """Seconds until something has to be looked at when nothing comes."""
        now = time.monotonic()
        waits = [self._deadline / 4, self._deadline - self._idle(now)]
        if self._timeout is not None:
            waits.append(self._began + self._timeout - now)
        return max(0.01, min(waits))

    def _idle(self, now: float) -> float:
        return now - max(self._transport.wire.last_received, self._heard)

    def _overdue(self) -> HostFailure | None:
        now = time.monotonic()
        if self._of_callback is not None:
            raise self._of_callback
        if self._halt.why is not None:
            return self._halt.why
        if self._timeout is not None and now - self._began >= self._timeout:
            return HostFailure(Failure.TIMEOUT, f"it ran longer than its limit of {self._timeout:g} s")
        idle = self._idle(now)
        if idle >= self._deadline:
            return self._silent(idle)
        if idle >= self._deadline / 5:
            self._transport.probe()
        return None

    def _silent(self, idle: float) -> HostFailure:
        gone = self._transport.unacknowledged()
        what = "no packet is acknowledged" if gone else "connected, but no answer to keepalives"
        verdict = HostFailure(Failure.LOST if gone else Failure.FROZEN, f"{what} for {idle:.1f} s")
        self._transport.end(verdict)
        return verdict

    def _feed(self, channel: SessionChannel, rest: memoryview) -> None:
        """Send the input beside the reading, so that a command that writes before it has read all goes on."""
        sender = threading.Thread(target=self._send, args=(channel, rest), daemon=True)
        sender.start()

    def _send(self, channel: SessionChannel, rest: memoryview) -> None:
        # An error here is one of the connection or an early end of the command: the reader sees the same one.
        with contextlib.suppress(SSHException, EOFError, OSError):
            while rest:
                block, rest = rest[:_STDIN_BLOCK], rest[_STDIN_BLOCK:]
                channel.send_all(block)
                if not self._told(channel, len(block)):
                    return
            channel.shutdown_write()

    def _told(self, channel: SessionChannel, size: int) -> bool:
        """Report progress; an exception of the callback is raised by the thread that reads."""
        try:
            if self._on_sent:
                self._on_sent(size)
        except Exception as error:
            self._of_callback = _OfCallback(error)
            channel.interrupt()
            return False
        return True

    def _lost(self, detail: str) -> HostFailure:
        if self._transport.verdict is not None:
            return self._transport.verdict
        return HostFailure(Failure.LOST, self._transport.farewell or detail)

    def _ended(self, channel: SessionChannel, failure: HostFailure | None) -> Ended:
        output = self._tail.bytes()
        if failure is not None:
            return Ended(None, None, failure, output)
        if channel.exit_signal is not None:
            return Ended(None, channel.exit_signal, None, output)
        if channel.exit_status >= 0:
            return Ended(channel.exit_status, None, None, output)
        if channel.refusal:
            return Ended(None, None, HostFailure(Failure.LOST, channel.refusal), output)
        detail = "the connection broke while the command ran"
        if self._transport.is_active():
            detail = "the host closed the session without an exit status"
        return Ended(None, None, self._lost(detail), output)


class _OfCallback(Exception):
    """An error of the caller's own function, kept apart from the connection's: a full disk here is no lost host."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def _closing(channel: SessionChannel) -> Generator[None]:
    """Close the session at the end; on a broken connection there is nothing to close, and that is known already."""
    try:
        yield
    finally:
        with contextlib.suppress(SSHException, EOFError, OSError):
            channel.close()


class Conversation:
    """For a command that asks back: its output so far, and answers to it. Ends with the last of its input."""

    def __init__(self, read: Callable[[], bytes], send: Callable[[memoryview], None]) -> None:
        self._read, self._send = read, send
        self._heard = b""

    def say(self, line: str) -> None:
        self._send(memoryview(line.encode() + b"\n"))

    def expect(self, end: bytes) -> bytes | None:
        """What comes before `end`, which is consumed; None when the command has ended without it."""
        while end not in self._heard:
            block = self._read()
            if not block:
                return None
            self._heard += block
        found, _, self._heard = self._heard.partition(end)
        return found


class _Tail:
    """The last `keep` bytes of a stream."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._blocks: deque[bytes] = deque()
        self._size = 0

    def add(self, block: bytes) -> None:
        self._blocks.append(block)
        self._size += len(block)
        while self._blocks and self._size - len(self._blocks[0]) >= self._keep:
            self._size -= len(self._blocks.popleft())

    def bytes(self) -> bytes:
        joined = b"".join(self._blocks)
        return joined[max(0, len(joined) - self._keep) :]
