"""Conversations with servers that a person configures: bounded in bytes, lines and time, whatever the server sends.

A timeout of a socket counts from each byte again, so a server that sends a byte every few seconds would hold a thread
for hours. `250-` and `100 Continue` can be repeated without end, which smtplib keeps and http.client skips for ever. So
one object owns the sockets of a conversation, counts what comes through them, and shuts them at its end.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass, field
from email.message import Message
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_HEAD_BYTES = 65_536  # of an answer, beside its content; http.client takes as many for one line
_FAILURE_BYTES = 2000  # of the content of an answer that refuses


class StatusError(OSError):
    """The answer has another status than that of a success."""

    def __init__(self, status: int, text: str, headers: Message) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.text = text
        self.headers = headers


class LongAnswerError(OSError):
    """The server sent more than the conversation takes."""


@dataclass(kw_only=True)
class Conversation:
    """The sockets of one exchange with a server, which ends with the block.

    Names are resolved by the system, within the limits of its resolver; all that follows is within the time.

    Attributes:
        seconds: For everything, with the connection.
        most_bytes: That the server may send.
        most_lines: That it may send; None where the bytes are limit enough.
    """

    seconds: float
    most_bytes: int
    most_lines: int | None = None
    _end: float = 0.0
    _bytes: int = 0
    _lines: int = 0
    _is_over: bool = False
    _is_long: bool = False
    _sockets: list[socket.socket] = field(default_factory=list[socket.socket])
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _timer: threading.Timer = field(init=False)

    def __post_init__(self) -> None:
        self._timer = threading.Timer(self.seconds, self._end_in_time)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        """Begin the time."""
        self._end = time.monotonic() + self.seconds
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Shut and close every socket, also where a library still has it."""
        self._timer.cancel()
        self._shut()
        with self._lock:
            for one in self._sockets:
                one.close()
            self._sockets.clear()

    def check(self) -> None:
        """Return while nothing was cut off: what was may look as if it were whole.

        Raises:
            TimeoutError: The time is over.
            LongAnswerError: The server sent too much.
        """
        if self._is_over or time.monotonic() >= self._end:
            raise TimeoutError(f"its answer did not come within {self.seconds:.0f} s")
        if self._is_long:
            raise self._describe_length()

    def open_socket(self, address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        """Return a socket that is connected to an address; the form is that of `socket.create_connection`.

        Raises:
            OSError: No address of the name answers in time.
        """
        fault: OSError | None = None
        for family, kind, protocol, _name, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            made = socket.socket(family, kind, protocol)
            try:
                self._own(made)
                made.connect(place)
            except OSError as error:
                made.close()
                fault = error
            else:
                return made
        self.check()
        raise fault or OSError(f"{address[0]} has no address")

    def count(self, file: io.RawIOBase) -> io.BufferedReader:
        """Return a reader of a socket's file that counts what comes, and ends at the limit."""
        return io.BufferedReader(_CountedFile(self, file))

    def _own(self, made: socket.socket) -> None:
        """Take a second handle of a socket: TLS gives the first one up, and shutting one shuts the connection."""
        with self._lock:
            made.settimeout(max(0.1, self._end - time.monotonic()))
            self._sockets.append(made.dup())
        if self._is_over:
            raise TimeoutError

    def note(self, content: memoryview) -> None:
        """Count what came. Raises LongAnswerError beyond the limit."""
        self._bytes += len(content)
        if self.most_lines is not None:
            self._lines += bytes(content).count(b"\n")
        if self._bytes > self.most_bytes or (self.most_lines is not None and self._lines > self.most_lines):
            self._is_long = True
            self._shut()
            raise self._describe_length()

    def _describe_length(self) -> LongAnswerError:
        lines = f" or {self.most_lines:,} lines" if self.most_lines is not None else ""
        return LongAnswerError(f"its answer has more than {self.most_bytes:,} bytes{lines}")

    def _end_in_time(self) -> None:
        self._is_over = True
        self._shut()

    def _shut(self) -> None:
        with self._lock:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


class _Counter(Protocol):
    """Counts what came."""

    def note(self, content: memoryview) -> None:
        """Count it. Raises OSError beyond the limits."""
        ...


@dataclass(kw_only=True)
class _AnswerCounter:
    """Counts one answer. A timeout of the socket bounds the time of each block."""

    most_bytes: int  # of its content
    seconds: float
    seconds_per_mebibyte: float
    _bytes: int = 0
    _end: float = 0.0

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def note(self, content: memoryview) -> None:
        self._bytes += len(content)
        if self._bytes > self.most_bytes + _HEAD_BYTES:
            raise LongAnswerError(f"its answer has more than {self.most_bytes:,} bytes")
        more = self.seconds_per_mebibyte * self._bytes / (1 << 20)
        if time.monotonic() >= self._end + more:
            raise TimeoutError(f"its answer did not come within {self.seconds + more:.0f} s")


def make_bounded_response(
    seconds: float, most_bytes: int, seconds_per_mebibyte: float = 0.0
) -> type[http.client.HTTPResponse]:
    """Return a class of answers that end in TimeoutError or LongAnswerError beyond a time or size.

    It becomes `response_class` of a connection whose socket has a timeout, which is added to the time at most.

    Args:
        seconds: For a whole answer, since it is waited for.
        most_bytes: Of its content; its head comes on top.
        seconds_per_mebibyte: More time for what has come, so that a long answer may take a slow link.
    """

    # Which a process may have replaced, to record answers.
    base: type[http.client.HTTPResponse] = http.client.HTTPConnection.response_class

    class BoundedResponse(base):  # type: ignore[misc, valid-type]  # it is known at run time alone
        fp: io.BufferedReader

        def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
            super().__init__(sock, *arguments, **options)
            self.fp.close()
            counter = _AnswerCounter(most_bytes=most_bytes, seconds=seconds, seconds_per_mebibyte=seconds_per_mebibyte)
            self.fp = io.BufferedReader(_CountedFile(counter, sock.makefile("rb", buffering=0)))

    return BoundedResponse


class _CountedFile(io.RawIOBase):
    """The file of a socket, of which every block is counted."""

    def __init__(self, counter: _Counter, file: io.RawIOBase) -> None:
        self._counter = counter
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        size = self._file.readinto(buffer)
        if size:
            self._counter.note(memoryview(buffer)[:size])
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


@contextlib.contextmanager
def open_answer(request: urllib.request.Request, conversation: Conversation) -> Generator[http.client.HTTPResponse]:
    """Send a request, and yield its answer. Redirects are not followed. The proxy of the environment is used.

    Raises:
        TimeoutError: It did not come in time.
        LongAnswerError: It is too long.
        StatusError: Its status is that of a failure; its first bytes say why.
        OSError, http.client.HTTPException: The server does not answer.
    """
    opener = urllib.request.build_opener(_NoRedirect, *_make_handlers(conversation))
    try:
        with opener.open(request, timeout=conversation.seconds) as answer:
            conversation.check()
            yield answer
    except urllib.error.HTTPError as error:
        text = b""
        with error, contextlib.suppress(OSError, http.client.HTTPException):
            text = error.read(_FAILURE_BYTES)
        conversation.check()
        raise StatusError(error.code, text.decode("utf-8", "replace"), error.headers) from None
    except (OSError, http.client.HTTPException):
        conversation.check()
        raise


def fetch_within(request: urllib.request.Request, seconds: float, most_bytes: int) -> bytes:
    """Return the content at an address.

    Args:
        request: What is sent.
        seconds: For the whole answer, with the connection.
        most_bytes: Of the content.

    Raises:
        TimeoutError, LongAnswerError, StatusError, OSError, http.client.HTTPException: As `open_answer`.
    """
    with Conversation(seconds=seconds, most_bytes=most_bytes + _HEAD_BYTES) as conversation:
        with open_answer(request, conversation) as answer:
            content = answer.read(most_bytes + 1)
        conversation.check()
    if len(content) > most_bytes:
        raise LongAnswerError(f"its answer has more than {most_bytes:,} bytes")
    return content


def _make_handlers(conversation: Conversation) -> tuple[urllib.request.BaseHandler, ...]:
    """Return handlers whose connections belong to a conversation."""

    class Answer(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
            super().__init__(sock, *arguments, **options)
            self.fp.close()
            self.fp = conversation.count(sock.makefile("rb", buffering=0))

    class Plain(http.client.HTTPConnection):
        response_class = Answer

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._create_connection = conversation.open_socket

    class Secure(http.client.HTTPSConnection):
        response_class = Answer

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._create_connection = conversation.open_socket

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(Plain, req)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(Secure, req)

    return PlainHandler(), SecureHandler()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead a signed message, or a secret, to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
