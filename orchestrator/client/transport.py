"""The connection of a client to a service: requests, their answers, and what the service refused.

Needs the standard library alone.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, cast
from urllib.parse import urlsplit

from orchestrator import __version__
from orchestrator.conversation import make_bounded_response
from orchestrator.errors import CloudError, OrchError, UserError
from orchestrator.service_version import HEADER, is_older, parse_version

Document = dict[str, Any]
SECONDS = 60.0  # for an answer, and again for each MiB of it; streams have no end, and send something every 15 s
MOST_BYTES = 64 << 20  # of an answer, unpacked: lists come in pages


def read_exit_status(value: object) -> int:
    """Return the exit status of a failure: a service of another kind, or a hostile one, sends what it likes."""
    return value if isinstance(value, int) and 1 <= value <= 125 else OrchError.exit_status


class ServiceError(OrchError):
    """The service refused a request. Code, exit status and next step are those that it gave."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        what, why, step = (str(problem.get(name) or "") for name in ("title", "detail", "next_step"))
        super().__init__(what, why, step)
        self.code = str(problem.get("code") or self.code)
        self.exit_status = read_exit_status(problem.get("exit_status"))
        self.http_status = int(problem.get("status") or 0)
        self.trees: tuple[str, ...] = tuple(problem.get("trees") or ())  # names of files that have to be sent first
        self.__notes__: list[str] = []

    def __str__(self) -> str:
        """Return the whole explanation: programs log this, and show it in a traceback."""
        known = f"{self.what}: {self.why}" if self.why else self.what
        return f"{known}\nnext: {self.next_step}" if self.next_step else known


class OlderServiceError(ServiceError):
    """The service is of an older orch, which does not know what was asked."""

    def __init__(self, url: str, theirs: str, problem: Mapping[str, Any]) -> None:
        version = f"orch {theirs}" if theirs else "an older orch"
        super().__init__(
            {
                **problem,
                "title": f"{url} has {version}, which cannot do this",
                "detail": f"this is orch {__version__}; it answers: {problem['title']}",
                "next_step": f"have the service upgraded to orch {__version__}: servers come first (docs/service.md)",
                "code": "old-service",
            }
        )


class Answer:
    """An answer of the service, whose content is bounded: a service of another kind, or a hostile one, never ends."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def get_header(self, name: str) -> str:
        """Return a header, "" where there is none."""
        return self._response.getheader(name) or ""

    def read_document(self) -> Document:
        """Return the content. Raises ValueError for one that is no JSON object, or too long."""
        content = self.read_content()
        try:
            found: Any = json.loads(content)
        except RecursionError:
            raise ValueError("its answer is nested too deeply") from None
        if not isinstance(found, dict):
            raise ValueError("its answer is not a JSON object")  # noqa: TRY004  # it is a fault of the service
        return cast("Document", found)

    def read_content(self) -> bytes:
        """Return the content. Raises ValueError for one that is too long."""
        content = self._response.read()
        if self.get_header("Content-Encoding") == "gzip":
            content = _unpack(content)
        if len(content) > MOST_BYTES:
            raise ValueError(f"its answer has more than {MOST_BYTES:,} bytes")
        return content


def _unpack(content: bytes) -> bytes:
    """Return what gzip packed, at most one byte more than an answer has. Raises ValueError for anything else."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacker.decompress(content, MOST_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"the answer is not gzip: {error}") from error
    if not unpacker.eof and len(unpacked) <= MOST_BYTES:
        raise ValueError("the answer is not gzip: it is incomplete")
    return unpacked


class Transport:
    """A connection, which is opened again when it was cut. For one thread.

    Attributes:
        url: The address of the service.
        headers: Those of every request.
        renew: Gets another token when the present one is refused; None where there is no other.
    """

    def __init__(self, url: str, token: str, *, ca: str = "", socket_path: Path | None = None) -> None:
        """Prepare; nothing is sent. The arguments are those of a client.

        Raises:
            UserError: The address is not that of a service, or would send the token in clear over a network.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise UserError(f"`{url[:100]}` is not the address of a service", "", "https://orch.example.org")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self.headers = {"Authorization": f"Bearer {token}", HEADER: __version__}
        self.renew: Callable[[], None] | None = None
        self._ca = ca
        self._socket_path = socket_path
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise UserError(
                f"{self.url} has no TLS", "the token would be readable on the way", f"https://{parts.netloc}"
            )
        self._connection = self.make_connection()

    def close(self) -> None:
        """End the connection; the next request opens another."""
        self._connection.close()

    def set_timeout(self, seconds: float = SECONDS) -> None:
        """Set how long a connection, an answer, and each MiB of it, may take from the next connection on."""
        self._connection.timeout = seconds

    def make_connection(self) -> http.client.HTTPConnection:
        """Return another connection, which is not open yet."""
        parts = urlsplit(self.url)
        assert parts.hostname  # noqa: S101  # __init__ refuses an address without one
        if self._socket_path is not None:
            return _UnixConnection(self._socket_path, parts.netloc)
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=SECONDS)
        context = ssl.create_default_context(cafile=self._ca or None)
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=SECONDS, context=context)

    @contextmanager
    def answer(
        self,
        method: str,
        path: str,
        body: bytes | IO[bytes] | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Generator[Answer]:
        """Send a request, and yield its answer.

        Args:
            method: Of HTTP.
            path: With its query.
            body: What is sent; a file is sent from its beginning.
            headers: Beside those of every request.

        Raises:
            ServiceError: The service refused it.
            CloudError: It did not answer, or not as a service.
        """
        accept = {"Accept": "application/json", **headers}
        try:
            response = self._send(method, path, body, self.headers | accept)
            if response.status == http.client.UNAUTHORIZED and (renew := self.renew) is not None:
                response.read()
                renew()
                response = self._send(method, path, body, self.headers | accept)
            if response.status >= 300:
                raise _explain_refusal(self.url, method, path, response)
            yield Answer(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise CloudError(f"{self.url} does not answer", str(error), f"curl {self.url}/healthz") from error

    def _send(
        self, method: str, path: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        """Send a request, and return its answer. A service closes a connection that was silent for some seconds."""
        was_open = self._connection.sock is not None
        try:
            return self._send_once(method, path, body, headers)
        except ConnectionError:
            self._connection.close()
            if not was_open:
                raise
            return self._send_once(method, path, body, headers)

    def _send_once(
        self, method: str, path: str, body: bytes | IO[bytes] | None, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        if body is not None and not isinstance(body, bytes):
            body.seek(0)
        try:
            self._connection.request(method, path, body, dict(headers))
        except ConnectionError as error:
            if self._connection.sock is None:
                raise
            try:  # it may have refused what was being sent
                return self._read_answer()
            except (OSError, http.client.HTTPException):
                raise error from None
        return self._read_answer()

    def _read_answer(self) -> http.client.HTTPResponse:
        seconds = self._connection.timeout or SECONDS
        self._connection.response_class = make_bounded_response(seconds, MOST_BYTES, seconds_per_mebibyte=seconds)
        return self._connection.getresponse()


class _UnixConnection(http.client.HTTPConnection):
    """A connection over a Unix socket."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(name, timeout=SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _explain_refusal(url: str, method: str, path: str, answer: http.client.HTTPResponse) -> ServiceError:
    """Return why a request was refused, and whether that is as the service is older than this client."""
    problem, theirs = _read_problem(answer), answer.getheader(HEADER) or ""
    theirs = theirs if parse_version(theirs) else ""
    if theirs and not is_older(theirs, __version__):
        return ServiceError(problem)
    place = path.partition("?")[0][:80]
    unknown = {404: f"there is no {place}", 405: f"{place} is not called with {method}"}
    if unknown.get(answer.status) == problem["title"]:
        return OlderServiceError(url, theirs, problem)
    if theirs and answer.status == http.client.BAD_REQUEST:  # a parameter or field that came later
        step = f"if it came later than orch {theirs}, which the service has: have that upgraded to {__version__}"
        return ServiceError(problem | {"next_step": f"{problem.get('next_step') or ''}\n{step}".strip()})
    return ServiceError(problem)


def _read_problem(answer: http.client.HTTPResponse) -> Document:
    """Return why a request was refused; also an answer of something else than the service, such as a proxy."""
    content = answer.read(100_000)
    try:
        problem: Any = json.loads(content)
    except ValueError:
        problem = None
    usual = {"title": f"{answer.status} {answer.reason}", "detail": content.decode("utf-8", "replace")[:200].strip()}
    given = cast("Document", problem) if isinstance(problem, dict) else {}
    return usual | given | {"status": answer.status}
