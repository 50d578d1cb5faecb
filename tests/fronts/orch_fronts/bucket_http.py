"""XML dialect that the simulated Cloud Storage and the simulated S3 share; each adds its own rules.

The common part is in both reference books: "XML API" of the Cloud Storage documentation, and the Amazon S3 API
reference (both read in 2026). A request outside it is refused with 400 or 501, so that a client which relies on more
than the documented subset fails here.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import time
import urllib.parse
import xml.etree.ElementTree as ET
from abc import abstractmethod
from collections.abc import Mapping
from email.utils import formatdate
from xml.sax.saxutils import escape

from orch_fronts.buckets import (
    MAX_PAGE,
    MAX_PARTS,
    MIN_PART,
    BucketServer,
    Fault,
    Part,
    Refusal,
    Seen,
    StoredObject,
    Upload,
    byte_range,
    list_page,
)
from orch_fronts.serving import LONGEST_UNPROVEN

XML = {"Content-Type": "application/xml; charset=UTF-8"}
_LIST_PARAMETERS = frozenset({"list-type", "prefix", "delimiter", "max-keys", "continuation-token", "start-after"})


class BucketHandler(http.server.BaseHTTPRequestHandler):
    """Handler of one connection; a dialect implements the abstract methods and adds its own."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # TCP_NODELAY: without it each kept-alive request waits 40 ms
    server: BucketServer  # pyright: ignore[reportIncompatibleVariableOverride]  # it is made by no other
    vendor = ""  # of the headers: "goog" or "amz"
    namespace = ""
    list_parameters = _LIST_PARAMETERS

    # --- implemented by a dialect -------------------------------------------------------------------------

    @abstractmethod
    def authenticate(self) -> None:
        """Check the signature or token of the request, before its body is read.

        Raises:
            Refusal: The caller is not known.
        """

    @abstractmethod
    def authorize(self) -> None:
        """Check whether the caller may send this request.

        Raises:
            Refusal: The caller may not.
        """

    @abstractmethod
    def check_body(self) -> Mapping[str, str]:
        """Verify the checksums of the body and return those to be kept, as headers.

        Raises:
            Refusal: A checksum does not match.
        """

    @abstractmethod
    def check_write(self, current: StoredObject | None) -> None:
        """Check the precondition of a write or a delete, under the lock.

        Raises:
            Refusal: It does not hold.
        """

    @abstractmethod
    def check_key(self) -> None:
        """Check the name of the object.

        Raises:
            Refusal: No object may have this name.
        """

    @abstractmethod
    def described(self, stored: StoredObject) -> dict[str, str]:
        """Return the headers of an answer about an object, beyond the common ones."""

    @abstractmethod
    def version_element(self, stored: StoredObject) -> str:
        """Return further XML for an entry of a listing."""

    @abstractmethod
    def on_absent(self) -> None:
        """Answer the delete of an absent object, or raise Refusal."""

    def checksums_of(self, upload: Upload, parts: list[Part], data: bytes) -> Mapping[str, str]:
        """Return the checksums of an object that was made of parts.

        Raises:
            Refusal: They are not those that the client sent.
        """
        del upload, parts, data
        return {}

    def refusal_headers(self) -> dict[str, str]:
        """Return the headers that every refusal carries."""
        return {}

    def check_read(self, stored: StoredObject) -> None:
        if self.headers.get("If-Match") not in (None, "*", stored.e_tag):
            raise Refusal(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")

    # --- one request --------------------------------------------------------------------------------------

    def log_message(self, format: str, *args: object) -> None:
        """Keep test output quiet."""

    def do_GET(self) -> None:
        parsed = urllib.parse.urlsplit(self.path)
        bucket, _, key = parsed.path.removeprefix("/").partition("/")  # path-style, percent-encoded UTF-8
        self.bucket, self.key = urllib.parse.unquote(bucket), urllib.parse.unquote(key, errors="strict")
        self.query = dict(urllib.parse.parse_qsl(parsed.query, keep_blank_values=True))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(method=self.command, key=self.key, query=self.query, headers=headers))
        self.fault: Fault | None = self.server.fault_for(self.command)
        try:
            self._receive()
            if self.fault is not None and self.fault.kind == "status":
                raise Refusal(self.fault.status, self.fault.code, "We encountered an internal error.")
            self.authorize()
            if self.server.create and self.bucket:
                self.server.create_bucket(self.bucket)
            self.route()
        except Refusal as refusal:
            said = f"<Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message>{refusal.inside}"
            self.answer(
                refusal.status, f"<Error>{said}</Error>".encode(), XML | self.refusal_headers() | refusal.headers
            )

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815 - the base class looks for these names

    def _receive(self) -> None:
        """Read the body; of a caller who is not known only a short one, so that the answer arrives."""
        length = int(self.headers.get("Content-Length") or 0)
        try:
            self.authenticate()
        except Refusal:
            self.close_connection = length > LONGEST_UNPROVEN
            self.rfile.read(0 if self.close_connection else length)
            raise
        self.body = self.rfile.read(length)

    def route(self) -> None:
        if self.bucket not in self.server.buckets:
            raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        if not self.key:
            return self.on_bucket()
        self.check_key()
        if "uploads" in self.query and self.command == "POST":
            return self.initiate()
        if "uploadId" in self.query:
            return self.multipart()
        if self.query:
            raise Refusal(501, "NotImplemented", f"Unknown query {self.query}.")
        return self.on_object()

    def on_bucket(self) -> None:
        if self.command == "GET" and self.query.get("list-type") == "2":
            return self.list_objects()
        raise Refusal(501, "NotImplemented", "Only list-type=2 is served on a bucket.")

    def on_object(self) -> None:
        if self.command == "PUT":
            return self.put()
        if self.command in ("GET", "HEAD"):
            return self.read()
        if self.command == "DELETE":
            return self.delete()
        raise Refusal(405, "MethodNotAllowed", "The method is not allowed.")

    # --- objects ------------------------------------------------------------------------------------------

    def put(self) -> None:
        """PUT Object: complete, visible immediately; Content-MD5 is verified when it is sent."""
        md5 = hashlib.md5(self.body, usedforsecurity=False)
        sent = self.headers.get("Content-MD5")
        if sent is not None and base64.b64decode(sent) != md5.digest():
            raise Refusal(400, "BadDigest", "The Content-MD5 you specified did not match what we received.")
        checksums = self.check_body()
        with self.server.lock:
            objects = self.server.buckets[self.bucket]
            self.check_write(objects.get(self.key))
            stored = self.keep(self.body, f'"{md5.hexdigest()}"', self.metadata(), self.content_type(), checksums)
        self.answer(200, b"", {"ETag": stored.e_tag, **self.described(stored)})

    def metadata(self) -> dict[str, str]:
        """Return the custom metadata, with names in lower case."""
        prefix = f"x-{self.vendor}-meta-"
        return {n.lower()[len(prefix) :]: v for n, v in self.headers.items() if n.lower().startswith(prefix)}

    def content_type(self) -> str:
        return self.headers.get("Content-Type", "application/octet-stream")

    def keep(
        self, data: bytes, e_tag: str, metadata: dict[str, str], content_type: str, checksums: Mapping[str, str]
    ) -> StoredObject:
        """Store the object. Call it under the lock."""
        now, generation = time.time(), self.server.next_generation()
        stored = StoredObject(
            data=data,
            e_tag=e_tag,
            generation=generation,
            modified=now,
            metadata=metadata,
            content_type=content_type,
            checksums=checksums,
        )
        self.server.buckets[self.bucket][self.key] = stored
        return stored

    def read(self) -> None:
        """GET Object and HEAD Object."""
        with self.server.lock:
            stored = self.server.buckets[self.bucket].get(self.key)
        if stored is None:
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        self.check_read(stored)
        headers = {
            "ETag": stored.e_tag,
            "Last-Modified": formatdate(stored.modified, usegmt=True),
            "Content-Type": stored.content_type,
            "Accept-Ranges": "bytes",
            **self.described(stored),
            **{f"x-{self.vendor}-meta-{name}": value for name, value in stored.metadata.items()},
        }
        requested = self.headers.get("Range")
        if requested is None:
            return self.answer(200, stored.data, headers)
        first, last = byte_range(requested, len(stored.data))
        headers["Content-Range"] = f"bytes {first}-{last}/{len(stored.data)}"
        return self.answer(206, stored.data[first : last + 1], headers)

    def delete(self) -> None:
        with self.server.lock:
            objects = self.server.buckets[self.bucket]
            self.check_write(objects.get(self.key))
            there = objects.pop(self.key, None) is not None
        if not there:
            return self.on_absent()
        return self.answer(204, b"", {})

    # --- listings -----------------------------------------------------------------------------------------

    def list_objects(self) -> None:
        """GET with list-type=2: byte order, at most 1,000 entries a page."""
        unknown = self.query.keys() - self.list_parameters
        if unknown:
            raise Refusal(400, "InvalidArgument", f"Unknown parameters {sorted(unknown)}.")
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("start-after", "")
        if token := self.query.get("continuation-token"):
            after = base64.urlsafe_b64decode(token).decode()
        size = min(int(self.query.get("max-keys", MAX_PAGE)), MAX_PAGE)
        with self.server.lock:
            objects = dict(self.server.buckets[self.bucket])
        page = list_page(objects, prefix, delimiter, after, size)
        entries = "".join(
            f"<CommonPrefixes><Prefix>{self.written(name)}</Prefix></CommonPrefixes>"
            if folder
            else self._entry(name, objects[name])
            for name, folder in page.entries
        )
        next_token = base64.urlsafe_b64encode(page.last.encode()).decode()
        more = f"<NextContinuationToken>{next_token}</NextContinuationToken>" if page.last else ""
        self.xml(
            "ListBucketResult",
            f"<Name>{escape(self.bucket)}</Name><Prefix>{self.written(prefix)}</Prefix>"
            f"<KeyCount>{len(page.entries)}</KeyCount><MaxKeys>{size}</MaxKeys>"
            f"<IsTruncated>{str(bool(page.last)).lower()}</IsTruncated>{self.list_echo()}{more}{entries}",
        )

    def list_echo(self) -> str:
        """Return further XML for a listing."""
        return ""

    def written(self, name: str) -> str:
        """Encode a name for a listing."""
        return escape(name)

    def _entry(self, key: str, stored: StoredObject) -> str:
        return (
            f"<Contents><Key>{self.written(key)}</Key>{self.version_element(stored)}"
            f"<LastModified>{format_iso_time(stored.modified)}</LastModified>"
            f"<ETag>{escape(stored.e_tag)}</ETag><Size>{len(stored.data)}</Size></Contents>"
        )

    # --- uploads in parts ---------------------------------------------------------------------------------

    def initiate(self) -> None:
        """Begin a multipart upload: an upload id; metadata is given here."""
        upload_id = f"upload-{time.time_ns():x}"
        headers = {name.lower(): value for name, value in self.headers.items()}
        upload = Upload(
            key=self.key,
            metadata=self.metadata(),
            content_type=self.content_type(),
            bucket=self.bucket,
            headers=headers,
        )
        with self.server.lock:
            self.server.uploads[upload_id] = upload
        self.xml("InitiateMultipartUploadResult", f"{self._place()}<UploadId>{upload_id}</UploadId>")

    def multipart(self) -> None:
        upload_id = self.query["uploadId"]
        with self.server.lock:
            upload = self.server.uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.key) != (self.bucket, self.key):
            raise Refusal(404, "NoSuchUpload", "The requested upload was not found.")
        if self.command == "PUT":
            return self.part(upload, self.body)
        if self.command == "POST":
            return self._complete(upload_id, upload)
        if self.command == "DELETE":  # its parts are deleted immediately
            with self.server.lock:
                self.server.uploads.pop(upload_id, None)
            return self.answer(204, b"", {})
        raise Refusal(405, "MethodNotAllowed", "The method is not allowed.")

    def part(self, upload: Upload, data: bytes) -> None:
        """Upload a part: numbers 1 to 10,000; a part sent again replaces the first."""
        part = self.keep_part(upload, data)
        self.answer(200, b"", {"ETag": part.e_tag, **part.checksums})

    def keep_part(self, upload: Upload, data: bytes) -> Part:
        number = self.query.get("partNumber", "0")
        if not number.isdecimal() or not 1 <= int(number) <= MAX_PARTS:
            raise Refusal(400, "InvalidArgument", "Part number must be between 1 and 10000.")
        part = Part(f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"', data, self.check_body())
        with self.server.lock:
            upload.parts[int(number)] = part
        return part

    def _complete(self, upload_id: str, upload: Upload) -> None:
        """Complete a multipart upload: ascending parts, right ETags, 5 MiB each but the last."""
        numbers: list[int] = []
        for part in parse_elements(self.body, "Part"):
            number, e_tag = int(part.get("PartNumber", "0")), part.get("ETag", "")
            if number not in upload.parts or upload.parts[number].e_tag.strip('"') != e_tag.strip('"'):
                raise Refusal(400, "InvalidPart", "A part was not found or its ETag does not match.")
            numbers.append(number)
        if not numbers or numbers != sorted(set(numbers)):
            raise Refusal(400, "InvalidPartOrder", "The parts are not in ascending order.")
        parts = [upload.parts[number] for number in numbers]
        if any(len(part.data) < MIN_PART for part in parts[:-1]):
            raise Refusal(400, "EntityTooSmall", "A part is smaller than 5 MiB.")
        data = b"".join(part.data for part in parts)
        checksums = self.checksums_of(upload, parts, data)
        with self.server.lock:
            self.check_write(self.server.buckets[self.bucket].get(self.key))
            self.server.uploads.pop(upload_id, None)
            e_tag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}-{len(parts)}"'
            stored = self.keep(data, e_tag, upload.metadata, upload.content_type, checksums)
        inside = f"{self._place()}<ETag>{escape(stored.e_tag)}</ETag>"
        self.xml("CompleteMultipartUploadResult", inside, self.described(stored))

    def _place(self) -> str:
        return f"<Bucket>{escape(self.bucket)}</Bucket><Key>{escape(self.key)}</Key>"

    # --- answers ------------------------------------------------------------------------------------------

    def xml(self, root: str, inside: str, headers: Mapping[str, str] | None = None) -> None:
        space = f" xmlns='{self.namespace}'" if self.namespace else ""
        body = f"<?xml version='1.0' encoding='UTF-8'?><{root}{space}>{inside}</{root}>".encode()
        self.answer(200, body, {**XML, **(headers or {})})

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        if self.fault is not None and self.fault.kind == "lose":
            self.close_connection = True
            return
        if status == 304:
            body = b""  # RFC 9110, section 15.4.5
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


def format_iso_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


def parse_elements(body: bytes, name: str) -> list[dict[str, str]]:
    """Return the texts of the children of all elements of this name, ignoring namespaces, which clients may omit."""
    try:
        root = ET.fromstring(body)  # noqa: S314  # it comes from this computer
    except ET.ParseError as error:
        raise Refusal(400, "MalformedXML", f"The XML you provided was not well-formed: {error}.") from error
    found = [element for element in root.iter() if _local(element) == name]
    return [{_local(child): child.text or "" for child in element} for element in found]


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
