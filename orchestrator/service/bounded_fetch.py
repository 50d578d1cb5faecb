"""Read an address within a time for the whole answer: a timeout of a socket counts from each byte again.

A server that sends a byte of its headers every few seconds would hold a thread for hours else.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


class StatusError(OSError):
    """The answer has another status than that of a success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.text = text


@dataclass(kw_only=True)
class _Watch:
    """Ends the connections of one request at its time."""

    end: float
    is_over: bool = False
    sockets: list[socket.socket] = field(default_factory=list[socket.socket])

    def connect(self, connection: http.client.HTTPConnection, connect: Callable[[], None]) -> None:
        connection.timeout = max(0.1, self.end - time.monotonic())
        connect()
        assert connection.sock is not None  # noqa: S101  # it is connected
        self.sockets.append(connection.sock)
        if self.is_over:
            self.finish()

    def finish(self) -> None:
        self.is_over = True
        for one in self.sockets:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(one, socket.SHUT_RDWR)  # that of TLS would change what another thread reads


def fetch_within(request: urllib.request.Request, seconds: float, most_bytes: int) -> bytes:
    """Return the content at an address. Redirects are not followed.

    Args:
        request: What is sent.
        seconds: For the whole answer, with the connection.
        most_bytes: Of the answer.

    Raises:
        TimeoutError: It did not come in time.
        StatusError: Its status is that of a failure; the first 1000 bytes say why.
        OSError, http.client.HTTPException: It does not answer.
        ValueError: It has more bytes.
    """
    watch = _Watch(end=time.monotonic() + seconds)
    timer = threading.Timer(seconds, watch.finish)
    timer.daemon = True
    timer.start()
    opener = urllib.request.build_opener(_NoRedirect, *_make_handlers(watch))
    content = b""
    fault: OSError | http.client.HTTPException | None = None
    try:
        with opener.open(request, timeout=seconds) as answer:
            content = answer.read(most_bytes + 1)
    except urllib.error.HTTPError as error:
        with contextlib.suppress(OSError, http.client.HTTPException):
            content = error.read(1000)
        fault = StatusError(error.code, content.decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException) as error:
        if not watch.is_over and not isinstance(error, TimeoutError):
            raise
        fault = error
    finally:
        timer.cancel()
    if watch.is_over or isinstance(fault, TimeoutError):  # what was cut off may look as if it were whole
        raise TimeoutError(f"its answer did not come within {seconds:.0f} s") from fault
    if fault is not None:
        raise fault
    if len(content) > most_bytes:
        raise ValueError(f"its answer has more than {most_bytes:,} bytes")
    return content


def _make_handlers(watch: _Watch) -> tuple[urllib.request.BaseHandler, ...]:
    """Return handlers whose connections are watched."""

    class Plain(http.client.HTTPConnection):
        def connect(self) -> None:
            watch.connect(self, super().connect)

    class Secure(http.client.HTTPSConnection):
        def connect(self) -> None:
            watch.connect(self, super().connect)

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(Plain, req)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(Secure, req)

    return PlainHandler(), SecureHandler()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None
