"""Storage of a simulated object store, and the faults that a test plants in it; `bucket_http.py` serves it.

Faults: `fail_next` answers without acting, `lose_answer` acts and hangs up, `cut_next` ends a body early,
`corrupt` changes stored bytes under an unchanged ETag.
"""

from __future__ import annotations

import http.server
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

MIN_PART = 5 << 20
MAX_PARTS = 10_000
MAX_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """Stored object.

    Attributes:
        checksums: Further checksums of the bytes, as headers.
    """

    data: bytes
    e_tag: str
    generation: int
    modified: float
    metadata: dict[str, str]
    content_type: str
    checksums: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class Part:
    e_tag: str
    data: bytes
    checksums: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True)
class Upload:
    """Multipart upload.

    Attributes:
        headers: Headers of the request that began it, by lower-case name.
    """

    key: str
    metadata: dict[str, str]
    content_type: str
    bucket: str = ""
    began: float = field(default_factory=time.time)
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: dict[int, Part] = field(default_factory=dict[int, Part])


@dataclass(kw_only=True)
class Fault:
    """Fault of the next matching requests.

    Attributes:
        kind: "status", "lose" or "cut".
        code: Name of the error.
    """

    kind: str
    method: str
    times: int
    status: int = 503
    after_bytes: int = 0
    code: str = "ServiceUnavailable"


@dataclass(frozen=True, kw_only=True)
class Seen:
    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]


class Refusal(Exception):
    """Request that the server refuses.

    Attributes:
        headers: Further headers of the answer.
        inside: Further elements of the error, as XML.
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None, inside: str = ""
    ) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message
        self.headers, self.inside = dict(headers or {}), inside


class BucketServer(http.server.ThreadingHTTPServer):
    """Server of buckets on a free port of the loopback.

    Attributes:
        create: Whether a requested bucket is created if it is absent.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler], *, create: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.create = create
        self.lock = threading.Lock()
        self.buckets: dict[str, dict[str, StoredObject]] = {}
        self.forbidden: set[str] = set()
        self.uploads: dict[str, Upload] = {}
        self.seen: list[Seen] = []
        self._faults: list[Fault] = []
        self._generation = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """Print an error of the server; a client that disconnects is part of the tests."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # the base class says Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def create_bucket(self, name: str) -> None:
        with self.lock:
            self.buckets.setdefault(name, {})

    def fail_next(self, times: int, status: int = 503, method: str = "", code: str = "ServiceUnavailable") -> None:
        self._faults.append(Fault(kind="status", method=method, times=times, status=status, code=code))

    def lose_answer(self, times: int, method: str) -> None:
        self._faults.append(Fault(kind="lose", method=method, times=times))

    def cut_next(self, times: int, after_bytes: int) -> None:
        self._faults.append(Fault(kind="cut", method="GET", times=times, after_bytes=after_bytes))

    def corrupt(self, bucket: str, key: str, data: bytes) -> None:
        with self.lock:
            self.buckets[bucket][key] = replace(self.buckets[bucket][key], data=data)

    def fault_for(self, method: str) -> Fault | None:
        with self.lock:
            for fault in self._faults:
                if fault.times and fault.method in ("", method):
                    fault.times -= 1
                    return fault
        return None

    def next_generation(self) -> int:
        """Rises with every write. Call it under the lock."""
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        return self._generation


_Server = TypeVar("_Server", bound=BucketServer)


@contextmanager
def serve_buckets(server: _Server) -> Generator[_Server]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of a listing: keys and, with a delimiter, folders, in byte order.

    Attributes:
        entries: Pairs of a name and whether it is a folder.
        last: Name after which the next page begins; "" on the last page.
    """

    entries: tuple[tuple[str, bool], ...]
    last: str = ""


def list_page(objects: Mapping[str, StoredObject], prefix: str, delimiter: str, after: str, size: int) -> Listed:
    """List at most `size` entries after `after`; keys with the same prefix up to the delimiter are one folder."""
    entries: list[tuple[str, bool]] = []
    last, folder = "", ""
    for key in sorted(objects, key=str.encode):
        rest = key[len(prefix) :]
        skipped = not key.startswith(prefix) or key.encode() <= after.encode()
        if skipped or (delimiter and after.endswith(delimiter) and key.startswith(after)):
            continue
        if folder and key.startswith(folder):
            continue
        if len(entries) == size:
            return Listed(tuple(entries), last)
        if delimiter and delimiter in rest:
            last = folder = prefix + rest[: rest.index(delimiter) + len(delimiter)]
            entries.append((folder, True))
        else:
            last = key
            entries.append((key, False))
    return Listed(tuple(entries))


def byte_range(header: str, size: int) -> tuple[int, int]:
    """Parse a Range header of one range into its first and last byte.

    Raises:
        Refusal: It is malformed, or starts past the end (416; RFC 9110, section 14).
    """
    unit, _, span = header.partition("=")
    first_text, _, last_text = span.partition("-")
    if unit != "bytes" or "," in span or not (first_text or last_text):
        raise Refusal(400, "InvalidArgument", "Only one range of bytes is served.")
    if not first_text:
        first, last = max(0, size - int(last_text)), size - 1
    else:
        first, last = int(first_text), min(int(last_text or size - 1), size - 1)
    if first >= size or last < first:
        raise Refusal(416, "InvalidRange", "The requested range cannot be satisfied.")
    return first, last
