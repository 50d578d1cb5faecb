"""One command on one open connection: its input, its streamed output, its end, and how it is ended early."""

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
from orchestrator.remote.deadlines import Deadline, Stall
from orchestrator.remote.failures import HostFailure, describe_error
from orchestrator.remote.session_channel import SessionChannel
from orchestrator.remote.transport import TunedTransport

_LINGER = 0.5  # seconds of silence after the exit status until output of processes left behind is ignored
_LONGEST_WAIT = 1.0  # seconds between checks of the exit status while the output stays open
_STDIN_BLOCK = 1 << 20
_MOST_UNREAD = 64 << 20  # bytes of output of a command without `on_output`: apt prints some hundred KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a command. Exactly one of exit_code, signal and failure is set; output: the last `keep` bytes."""

    exit_code: int | None
    signal: str | None
    failure: HostFailure | None
    output: bytes


class Halt:
    """A request to end the running commands of one call. `reason` is that of the first request."""

    def __init__(self) -> None:
        self.reason: HostFailure | None = None
        self.requested = threading.Event()
        self._lock = threading.Lock()
        self._open: set[SessionChannel] = set()

    def request(self, why: HostFailure) -> None:
        """End the commands for a reason."""
        with self._lock:
            self.reason = self.reason or why
            channels = tuple(self._open)
        self.requested.set()
        for channel in channels:
            channel.interrupt()

    @contextlib.contextmanager
    def reaches(self, channel: SessionChannel) -> Generator[None]:
        """Interrupt a read from `channel` when an end is requested inside the block."""
        with self._lock:
            self._open.add(channel)
            requested = self.reason is not None
        if requested:
            channel.interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(channel)


class Command:
    """One run of one command; `run` may be called once."""

    def __init__(
        self,
        transport: TunedTransport,
        *,
        deadline: float,
        timeout: Deadline,
        halt: Halt,
        keep: int,
        on_output: Callable[[bytes], None] | None = None,
        on_sent: Callable[[int], None] | None = None,
        talk: Callable[[Conversation], memoryview] | None = None,
    ) -> None:
        """Prepare a command.

        Args:
            transport: an open connection.
            deadline: seconds without a byte from the host after which it counts as frozen, or as lost when its
                kernel is silent too.
            timeout: when it is ended although the host answers.
            halt: ends the command early.
            keep: bytes of output to keep.
            on_output: gets each block of output.
            on_sent: gets the count of input bytes just sent.
            talk: answers a command that sends questions, and returns the rest of its input.
        """
        self._transport = transport
        self._talk = talk
        self._deadline = deadline * 0.9  # leaves time to report within the deadline
        self._limit = timeout.seconds if isinstance(timeout, Stall) else timeout
        self._renewed = isinstance(timeout, Stall)
        self._longest = timeout.longest if isinstance(timeout, Stall) else 0.0
        self._halt = halt
        self._tail = _Tail(keep)
        self._on_output = on_output
        self._on_sent = on_sent
        self._callback_error: _CallbackError | None = None
        self._received = 0
        self._heard = self._counted_from = self._taken = time.monotonic()

    def run(self, line: bytes, stdin: bytes | memoryview) -> Ended:
        """Run the command and return how it ended.

        Raises:
            HostFailure: with retry=True, when the host opened no session: then nothing was sent.
        """
        try:
            channel = self._transport.open_session(timeout=self._deadline)
        except (SSHException, EOFError, OSError) as error:
            raise self._transport.verdict or HostFailure(Failure.LOST, describe_error(error), retry=True) from error
        self._heard = self._counted_from = self._taken = time.monotonic()
        with _closing(channel), self._halt.reaches(channel):
            try:
                more = self._talk is not None or len(stdin) > 0
                channel.start(line, more=more)
                if self._talk is not None:
                    stdin = self._talk(Conversation(functools.partial(self._next, channel), channel.send_all))
                    # Packing 100,000 files takes long on a busy computer: that is no silence of the host.
                    self._heard = self._counted_from = self._taken = time.monotonic()
                if more:
                    self._feed(channel, memoryview(stdin))
                failure = self._follow(channel)
            except HostFailure as error:
                failure = error
            except _CallbackError as error:
                raise error.cause from None
            except (SSHException, EOFError, OSError) as error:
                failure = self._lost(describe_error(error))
        return self._ended(channel, failure)

    def _follow(self, channel: SessionChannel) -> HostFailure | None:
        """Read until the command ends. Return the reason for an earlier end, or None."""
        while self._next(channel):
            pass
        while not channel.status_event.wait(min(self._wait(), 0.25 if self._halt.reason is None else 0.0)):
            if (failure := self._overdue()) is not None:  # the output is closed, the command may still run
                return failure
        return None

    def _next(self, channel: SessionChannel) -> bytes:
        """Return the next block of output, b"" at its end. Raises HostFailure for an earlier end."""
        while True:
            exited = channel.status_event.is_set() and not channel.closed
            block = channel.read(_LINGER if exited else min(_LONGEST_WAIT, self._wait()))
            if block is None and exited:  # a process in the background may keep the output open for ever
                self._transport.answers(self._deadline)  # when this answer is here, so is all earlier output
                block = channel.read(0.01) or b""
            if block is not None:
                if block:
                    self._deliver(block)
                return block
            if (failure := self._overdue()) is not None:
                raise failure

    def _deliver(self, block: bytes) -> None:
        self._tail.add(block)
        self._received += len(block)
        if self._on_output:
            began = time.monotonic()
            try:
                self._on_output(block)
            except Exception as error:
                raise _CallbackError(error) from error
            self._heard = time.monotonic()  # a slow callback is not a silent host
            self._taken += self._heard - began  # nor one that prints for long: a person reads in a pager
        elif self._received > _MOST_UNREAD:
            raise HostFailure(Failure.TIMEOUT, f"it printed more than {_MOST_UNREAD >> 20} MiB, and did not end")
        now = time.monotonic()
        if self._renewed and now - self._taken < self._longest:
            self._counted_from = now
        elif now - self._counted_from >= self._limit:  # a host that always has output is never waited for
            raise HostFailure(Failure.TIMEOUT, self._describe_limit())

    def _wait(self) -> float:
        """Return the seconds until the next check when no output arrives."""
        now = time.monotonic()
        waits = (self._deadline / 4, self._deadline - self._idle(now), self._counted_from + self._limit - now)
        return max(0.01, min(waits))

    def _idle(self, now: float) -> float:
        return now - max(self._transport.wire.last_received, self._heard)

    def _overdue(self) -> HostFailure | None:
        now = time.monotonic()
        if self._callback_error is not None:
            raise self._callback_error
        if self._halt.reason is not None:
            return self._halt.reason
        if now - self._counted_from >= self._limit:
            return HostFailure(Failure.TIMEOUT, self._describe_limit())
        idle = self._idle(now)
        if idle >= self._deadline:
            return self._silent(idle)
        if idle >= self._deadline / 5:
            self._transport.probe()
        return None

    def _describe_limit(self) -> str:
        if self._renewed:
            return f"it made no progress for {self._limit:g} s, although the host answers SSH"
        return f"it ran longer than its limit of {self._limit:g} s"

    def _silent(self, idle: float) -> HostFailure:
        lost = self._transport.unacknowledged()
        what = "no packet is acknowledged" if lost else "connected, but no answer to keepalives"
        verdict = HostFailure(Failure.LOST if lost else Failure.FROZEN, f"{what} for {idle:.1f} s")
        self._transport.end(verdict)
        return verdict

    def _feed(self, channel: SessionChannel, rest: memoryview) -> None:
        """Send the input in another thread, since a command may write output before it has read all input."""
        sender = threading.Thread(target=self._send, args=(channel, rest), daemon=True)
        sender.start()

    def _send(self, channel: SessionChannel, rest: memoryview) -> None:
        # The reading thread gets the same error: a broken connection, or an early end of the command.
        with contextlib.suppress(SSHException, EOFError, OSError):
            while rest:
                block, rest = rest[:_STDIN_BLOCK], rest[_STDIN_BLOCK:]
                channel.send_all(block)
                if not self._report_sent(channel, len(block)):
                    return
            channel.shutdown_write()

    def _report_sent(self, channel: SessionChannel, size: int) -> bool:
        """Report progress. An exception of the callback is raised by the thread that reads."""
        self._taken = time.monotonic()
        if self._renewed:
            self._counted_from = self._taken
        try:
            if self._on_sent:
                self._on_sent(size)
        except Exception as error:
            self._callback_error = _CallbackError(error)
            channel.interrupt()
            return False
        return True

    def _lost(self, detail: str) -> HostFailure:
        if self._transport.verdict is not None:
            return self._transport.verdict
        return HostFailure(Failure.LOST, self._transport.end_message or detail)

    def _ended(self, channel: SessionChannel, failure: HostFailure | None) -> Ended:
        output = self._tail.bytes()
        if failure is not None:
            return Ended(exit_code=None, signal=None, failure=failure, output=output)
        if channel.exit_signal is not None:
            return Ended(exit_code=None, signal=channel.exit_signal, failure=None, output=output)
        if channel.exit_status >= 0:
            return Ended(exit_code=channel.exit_status, signal=None, failure=None, output=output)
        if channel.refusal:
            return Ended(exit_code=None, signal=None, failure=HostFailure(Failure.LOST, channel.refusal), output=output)
        detail = "the connection broke while the command ran"
        if self._transport.is_active():
            detail = "the host closed the session without an exit status"
        return Ended(exit_code=None, signal=None, failure=self._lost(detail), output=output)


class _CallbackError(Exception):
    """An error of a callback, distinct from errors of the connection: a full local disk is not a lost host."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@contextlib.contextmanager
def _closing(channel: SessionChannel) -> Generator[None]:
    """Close the session at the end. On a broken connection, whose error is known already, nothing is to be closed."""
    try:
        yield
    finally:
        with contextlib.suppress(SSHException, EOFError, OSError):
            channel.close()


class Conversation:
    """A dialogue with a command that sends questions: read its output, send answers."""

    def __init__(self, read: Callable[[], bytes], send: Callable[[memoryview], None]) -> None:
        self._read, self._send = read, send
        self._heard = b""

    def send_line(self, line: str) -> None:
        """Send one line of input."""
        self._send(memoryview(line.encode() + b"\n"))

    def read_until(self, end: bytes) -> bytes | None:
        """Return the output before `end`, which is consumed; None when the command ended without it."""
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
