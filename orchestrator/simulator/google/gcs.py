"""A strict Cloud Storage on loopback: the part of the XML API that our client uses.

Each rule names the reference page it comes from ("XML API" = Cloud Storage documentation, "XML API overview" and
the pages below it, read in 2026). What is not written there is refused with 400 or 501, so that a client which
leans on more than the documented subset fails here.

Faults: `fail_next` answers without acting, `lose_answer` acts and hangs up, `cut_next` ends a body early,
`corrupt` changes stored bytes under an unchanged ETag.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import sys
import threading
import time
import urllib.parse
import xml.etree.ElementTree as ET
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from xml.sax.saxutils import escape

MIN_PART = 5 << 20
MAX_PARTS = 10_000
MAX_PAGE = 1000


@dataclass(frozen=True)
class StoredObject:
    data: bytes
    e_tag: str
    generation: int
    modified: float
    metadata: dict[str, str]
    content_type: str


@dataclass
class Upload:
    key: str
    metadata: dict[str, str]
    content_type: str
    parts: dict[int, tuple[str, bytes]] = field(default_factory=dict[int, tuple[str, bytes]])


@dataclass
class Fault:
    """What to do to the next matching request. kind: status | lose | cut."""

    kind: str
    method: str
    times: int
    status: int = 503
    after_bytes: int = 0


@dataclass(frozen=True)
class Seen:
    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


class GcsServer(http.server.ThreadingHTTPServer):
    """State and faults. token: the one bearer token that is let in; None lets any token in. create: see gcs_server."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, token: str | None = None, *, create: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.token = token
        self.create = create
        self.lock = threading.Lock()
        self.buckets: dict[str, dict[str, StoredObject]] = {}
        self.forbidden: set[str] = set()
        self.uploads: dict[str, Upload] = {}
        self.seen: list[Seen] = []
        self._faults: list[Fault] = []
        self._generation = 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up midway is part of the tests; anything else is a fault here and is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # the base class says Any

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def create_bucket(self, name: str) -> None:
        with self.lock:
            self.buckets.setdefault(name, {})

    def fail_next(self, times: int, status: int = 503, method: str = "") -> None:
        self._faults.append(Fault("status", method, times, status=status))

    def lose_answer(self, times: int, method: str) -> None:
        self._faults.append(Fault("lose", method, times))

    def cut_next(self, times: int, after_bytes: int) -> None:
        self._faults.append(Fault("cut", "GET", times, after_bytes=after_bytes))

    def corrupt(self, bucket: str, key: str, data: bytes) -> None:
        with self.lock:
            old = self.buckets[bucket][key]
            self.buckets[bucket][key] = StoredObject(
                data, old.e_tag, old.generation, old.modified, old.metadata, old.content_type
            )

    def fault_for(self, method: str) -> Fault | None:
        with self.lock:
            for fault in self._faults:
                if fault.times and fault.method in ("", method):
                    fault.times -= 1
                    return fault
        return None

    def next_generation(self) -> int:
        """Generations rise with every write ("Object versioning"). Call it under the lock."""
        self._generation = max(self._generation + 1, time.time_ns() // 1000)
        return self._generation


@contextmanager
def gcs_server(token: str | None = None, *, create: bool = False) -> Generator[GcsServer]:
    """create: every bucket that is asked for is there."""
    server = GcsServer(token, create=create)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # TCP_NODELAY: without it each kept-alive request waits 40 ms
    server: GcsServer  # pyright: ignore[reportIncompatibleVariableOverride]  # it is made by no other

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output quiet."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the base class looks for these names

    def _serve(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parsed = urllib.parse.urlsplit(self.path)
        # XML API, "Request URIs": path-style /BUCKET/OBJECT, percent-encoded UTF-8
        bucket, _, key = parsed.path.removeprefix("/").partition("/")
        self.bucket, self.key = urllib.parse.unquote(bucket), urllib.parse.unquote(key, errors="strict")
        self.query = dict(urllib.parse.parse_qsl(parsed.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(self.command, self.key, self.query, headers))
        self.fault = self.server.fault_for(self.command)
        try:
            if self.fault is not None and self.fault.kind == "status":
                raise Refusal(self.fault.status, "ServiceUnavailable", "We encountered an internal error.")
            self._authorize()
            self._route()
        except Refusal as refusal:
            self._refuse(refusal)

    def _authorize(self) -> None:
        """XML API, "Authentication" and "HTTP status and error codes for XML API": 401 and 403."""
        given = self.headers.get("Authorization", "")
        if self.server.token is not None and given != f"Bearer {self.server.token}":
            raise Refusal(401, "AuthenticationRequired", "Authentication required.")
        if self.bucket in self.server.forbidden:
            raise Refusal(403, "AccessDenied", "Access denied.")

    def _route(self) -> None:
        if self.server.create and self.bucket:
            self.server.create_bucket(self.bucket)
        if self.bucket not in self.server.buckets:
            raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        if not self.key:
            if self.command == "GET" and self.query.get("list-type") == "2":
                return self._list()
            raise Refusal(501, "NotImplemented", "Only list-type=2 is served on a bucket.")
        if len(self.key.encode()) > 1024 or "\n" in self.key or "\r" in self.key or self.key in (".", ".."):
            # "About Cloud Storage objects", section "Object name requirements"
            raise Refusal(400, "InvalidObjectName", "The object name is not valid.")
        if "uploads" in self.query and self.command == "POST":
            return self._initiate()
        if "uploadId" in self.query:
            return self._multipart()
        if self.query:
            raise Refusal(501, "NotImplemented", f"Unknown query {self.query}.")
        if self.command == "PUT":
            return self._put()
        if self.command in ("GET", "HEAD"):
            return self._read()
        if self.command == "DELETE":
            return self._delete()
        raise Refusal(405, "MethodNotAllowed", "The method is not allowed.")

    def _check_generation(self, current: StoredObject | None) -> None:
        """XML API, "x-goog-if-generation-match": 0 means that no live object may exist; else 412."""
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is None:
            return
        if not wanted.isdigit():
            raise Refusal(400, "InvalidArgument", "x-goog-if-generation-match is not a number.")
        if int(wanted) != (current.generation if current else 0):
            raise Refusal(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")

    def _metadata(self) -> dict[str, str]:
        """XML API, "x-goog-meta-": custom metadata, names without regard to case."""
        prefix = "x-goog-meta-"
        return {n.lower()[len(prefix) :]: v for n, v in self.headers.items() if n.lower().startswith(prefix)}

    def _put(self) -> None:
        """XML API, "PUT Object": whole object, visible at once; Content-MD5 is verified when it is sent."""
        md5 = hashlib.md5(self.body, usedforsecurity=False)
        sent = self.headers.get("Content-MD5")
        if sent is not None and base64.b64decode(sent) != md5.digest():
            raise Refusal(400, "BadDigest", "The Content-MD5 you specified did not match what we received.")
        with self.server.lock:
            objects = self.server.buckets[self.bucket]
            self._check_generation(objects.get(self.key))
            stored = self._store(objects, self.body, f'"{md5.hexdigest()}"', self._metadata(), self._content_type())
        self._answer(200, b"", {"ETag": stored.e_tag, "x-goog-generation": str(stored.generation)})

    def _content_type(self) -> str:
        return self.headers.get("Content-Type", "application/octet-stream")

    def _store(
        self, objects: dict[str, StoredObject], data: bytes, e_tag: str, metadata: dict[str, str], content_type: str
    ) -> StoredObject:
        stored = StoredObject(data, e_tag, self.server.next_generation(), time.time(), metadata, content_type)
        objects[self.key] = stored
        return stored

    def _read(self) -> None:
        """XML API, "GET Object" and "HEAD Object"."""
        with self.server.lock:
            stored = self.server.buckets[self.bucket].get(self.key)
        if stored is None:
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        if self.headers.get("If-Match") not in (None, "*", stored.e_tag):
            raise Refusal(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
        headers = {
            "ETag": stored.e_tag,
            "Last-Modified": formatdate(stored.modified, usegmt=True),
            "x-goog-generation": str(stored.generation),
            "x-goog-stored-content-length": str(len(stored.data)),
            "Content-Type": stored.content_type,
            "Accept-Ranges": "bytes",
        }
        headers |= {f"x-goog-meta-{name}": value for name, value in stored.metadata.items()}
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._answer(200, stored.data, headers)
        first, last = _range(wanted, len(stored.data))
        headers["Content-Range"] = f"bytes {first}-{last}/{len(stored.data)}"
        return self._answer(206, stored.data[first : last + 1], headers)

    def _delete(self) -> None:
        """XML API, "DELETE Object": 204; 404 if there is none; the precondition is honoured."""
        with self.server.lock:
            objects = self.server.buckets[self.bucket]
            self._check_generation(objects.get(self.key))
            if objects.pop(self.key, None) is None:
                raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        self._answer(204, b"", {})

    def _list(self) -> None:
        """XML API, "GET Bucket (List Objects)" with list-type=2: byte order, at most 1,000 entries a page."""
        unknown = self.query.keys() - _LIST_PARAMETERS
        if unknown:
            raise Refusal(400, "InvalidArgument", f"Unknown parameters {sorted(unknown)}.")
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("start-after", "")
        if token := self.query.get("continuation-token"):
            after = base64.urlsafe_b64decode(token).decode()
        page = min(int(self.query.get("max-keys", MAX_PAGE)), MAX_PAGE)
        with self.server.lock:
            objects = dict(self.server.buckets[self.bucket])
        entries: list[str] = []
        last, truncated, folder = "", False, ""
        for key in sorted(objects, key=str.encode):
            rest = key[len(prefix) :]
            skipped = not key.startswith(prefix) or key.encode() <= after.encode()
            if skipped or (after.endswith(delimiter) and delimiter and key.startswith(after)):
                continue
            if folder and key.startswith(folder):
                continue
            if len(entries) == page:
                truncated = True
                break
            if delimiter and delimiter in rest:
                last = folder = prefix + rest[: rest.index(delimiter) + len(delimiter)]
                entries.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
            else:
                last = key
                entries.append(_entry(key, objects[key]))
        next_token = base64.urlsafe_b64encode(last.encode()).decode()
        more = f"<NextContinuationToken>{next_token}</NextContinuationToken>" if truncated else ""
        self._xml(
            f"<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Name>{escape(self.bucket)}</Name>"
            f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(entries)}</KeyCount>"
            f"<IsTruncated>{str(truncated).lower()}</IsTruncated>{more}{''.join(entries)}</ListBucketResult>"
        )

    def _initiate(self) -> None:
        """XML API, "Initiate a multipart upload": an upload id; metadata is given here."""
        upload_id = f"upload-{time.time_ns():x}"
        with self.server.lock:
            self.server.uploads[upload_id] = Upload(self.key, self._metadata(), self._content_type())
        self._xml(
            f"<InitiateMultipartUploadResult><Bucket>{escape(self.bucket)}</Bucket><Key>{escape(self.key)}</Key>"
            f"<UploadId>{upload_id}</UploadId></InitiateMultipartUploadResult>"
        )

    def _multipart(self) -> None:
        upload_id = self.query["uploadId"]
        with self.server.lock:
            upload = self.server.uploads.get(upload_id)
            if upload is None or upload.key != self.key:
                raise Refusal(404, "NoSuchUpload", "The requested upload was not found.")
            if self.command == "PUT":
                return self._part(upload)
            if self.command == "DELETE":
                # XML API, "Abort a multipart upload": its parts are gone at once
                del self.server.uploads[upload_id]
                return self._answer(204, b"", {})
            if self.command == "POST":
                return self._complete(upload_id, upload)
        raise Refusal(405, "MethodNotAllowed", "The method is not allowed.")

    def _part(self, upload: Upload) -> None:
        """XML API, "Upload a part": numbers 1 to 10,000; a part sent again replaces the first."""
        number = int(self.query.get("partNumber", "0"))
        if not 1 <= number <= MAX_PARTS:
            raise Refusal(400, "InvalidArgument", "Part number must be between 1 and 10000.")
        e_tag = f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'
        upload.parts[number] = (e_tag, self.body)
        self._answer(200, b"", {"ETag": e_tag})

    def _complete(self, upload_id: str, upload: Upload) -> None:
        """XML API, "Complete a multipart upload": ascending parts, right ETags, 5 MiB each but the last."""
        numbers: list[int] = []
        for part in ET.fromstring(self.body).iter("Part"):  # noqa: S314  # it comes from this computer
            number, e_tag = int(part.findtext("PartNumber", "0")), part.findtext("ETag", "")
            if number not in upload.parts or upload.parts[number][0].strip('"') != e_tag.strip('"'):
                raise Refusal(400, "InvalidPart", "A part was not found or its ETag does not match.")
            numbers.append(number)
        if not numbers or numbers != sorted(set(numbers)):
            raise Refusal(400, "InvalidPartOrder", "The parts are not in ascending order.")
        pieces = [upload.parts[number][1] for number in numbers]
        if any(len(piece) < MIN_PART for piece in pieces[:-1]):
            raise Refusal(400, "EntityTooSmall", "A part is smaller than 5 MiB.")
        del self.server.uploads[upload_id]
        objects, data = self.server.buckets[self.bucket], b"".join(pieces)
        e_tag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}-{len(pieces)}"'
        stored = self._store(objects, data, e_tag, upload.metadata, upload.content_type)
        self._xml(
            f"<CompleteMultipartUploadResult><Bucket>{escape(self.bucket)}</Bucket><Key>{escape(self.key)}</Key>"
            f"<ETag>{escape(stored.e_tag)}</ETag></CompleteMultipartUploadResult>",
            {"x-goog-generation": str(stored.generation)},
        )

    def _refuse(self, refusal: Refusal) -> None:
        """XML API, "HTTP status and error codes for XML API": <Error> with Code and Message."""
        text = f"<Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>"
        self._answer(refusal.status, text.encode(), {"Content-Type": "application/xml; charset=UTF-8"})

    def _xml(self, text: str, headers: dict[str, str] | None = None) -> None:
        body = f"<?xml version='1.0' encoding='UTF-8'?>{text}".encode()
        self._answer(200, body, {"Content-Type": "application/xml; charset=UTF-8", **(headers or {})})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        if self.fault is not None and self.fault.kind == "lose":
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault is not None and self.fault.kind == "cut":
            body = body[: self.fault.after_bytes]
            self.close_connection = True
        self.wfile.write(body)


_LIST_PARAMETERS = frozenset({"list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after"})


def _entry(key: str, stored: StoredObject) -> str:
    modified = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(stored.modified))
    return (
        f"<Contents><Key>{escape(key)}</Key><Generation>{stored.generation}</Generation>"
        f"<MetaGeneration>1</MetaGeneration><LastModified>{modified}</LastModified>"
        f"<ETag>{escape(stored.e_tag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
    )


def _range(header: str, size: int) -> tuple[int, int]:
    """XML API, "Range": one range of bytes; 416 when it starts past the end."""
    unit, _, span = header.partition("=")
    first_text, _, last_text = span.partition("-")
    if unit != "bytes" or "," in span:
        raise Refusal(400, "InvalidArgument", "Only one range of bytes is served.")
    if not first_text:
        first, last = max(0, size - int(last_text)), size - 1
    else:
        first, last = int(first_text), min(int(last_text or size - 1), size - 1)
    if first >= size or last < first:
        raise Refusal(416, "InvalidRange", "The requested range cannot be satisfied.")
    return first, last
