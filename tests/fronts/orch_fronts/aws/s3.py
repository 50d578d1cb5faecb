"""A strict S3 on loopback: what orch, boto3, and `aws s3` ask of buckets.

Sources: the pages of the Amazon S3 API reference named beside each rule, the S3 User Guide ("Conditional requests",
"Checking object integrity"), read in 2026. What it shares with Cloud Storage is in `bucket_http.py`, the faults are in
`buckets.py`. Paths name the bucket (path-style). The signatures of single chunks of a body are not verified.
"""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Literal
from xml.sax.saxutils import escape

from orch_fronts.aws import checksums
from orch_fronts.aws.roles import Roles, is_signed_by_known
from orch_fronts.bucket_http import BucketHandler, format_iso_time, parse_elements
from orch_fronts.buckets import (
    MAX_PAGE,
    MAX_PARTS,
    BucketServer,
    Part,
    Refusal,
    StoredObject,
    Upload,
    byte_range,
    serve_buckets,
)

REGION = "us-east-1"
WrongRegion = Literal["redirect", "malformed", "opt-in"]
OWNER = "123456789012"
Admit = Callable[[str, str, Mapping[str, str]], None]
"""Is asked (action, ARN, condition keys) before each call; raises Refusal."""


class S3Server(BucketServer):
    """key: the one access key id that is let in; "" lets any in. regions: of the buckets that are not in us-east-1.

    secret: of that key; "" does not verify signatures. wrong_region: how a signature of another region than the
    bucket's is refused. roles: whose temporary keys are let in, too. callers: key ids that have called; calls: each
    with its path. Clients derive the endpoint from the region that they sign for, so "redirect" is the usual one.
    """

    def __init__(
        self,
        key: str = "",
        *,
        secret: str = "",
        create: bool = False,
        admit: Admit | None = None,
        roles: Roles | None = None,
    ) -> None:
        super().__init__(S3Handler, create=create)
        self.roles = roles or Roles()
        self.callers: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self.key = key
        self.secret = secret
        self.admit = admit
        self.regions: dict[str, str] = {}
        self.wrong_region: WrongRegion = "redirect"

    def region(self, bucket: str) -> str:
        return self.regions.get(bucket, REGION)

    def create_bucket_in(self, region: str, name: str) -> None:
        """Make a bucket in its own region."""
        self.create_bucket(name)
        self.regions[name] = region


@contextmanager
def s3_server(key: str = "", *, create: bool = False, admit: Admit | None = None) -> Generator[S3Server]:
    """create: every bucket that is asked for is there."""
    with serve_buckets(S3Server(key, create=create, admit=admit)) as server:
        yield server


class S3Handler(BucketHandler):
    server: S3Server  # pyright: ignore[reportIncompatibleVariableOverride]  # it is made by no other
    vendor = "amz"
    namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
    list_parameters = BucketHandler.list_parameters | {"encoding-type", "fetch-owner"}

    # --- who asks, and for what ---------------------------------------------------------------------------

    def authenticate(self) -> None:
        """ "Authenticating Requests (AWS Signature Version 4)" and "Error responses"."""
        scope = _SCOPE.match(self.headers.get("Authorization", ""))
        if scope is None:
            raise Refusal(403, "AccessDenied", "Access Denied")
        self.server.callers.add(scope["key"])
        self.server.calls.append((scope["key"], self.path))
        temporary = self.server.roles.find(self.headers.get("Authorization", ""))
        if self.server.key and temporary is None and scope["key"] != self.server.key:
            words = "The AWS Access Key Id you provided does not exist in our records."
            raise Refusal(403, "InvalidAccessKeyId", words)
        digest = self.headers.get("x-amz-content-sha256", "")
        known = (self.server.secret, self.server.roles)
        if self.server.secret and not is_signed_by_known(*known, self.command, self.path, self.headers, digest):
            words = "The request signature we calculated does not match the signature you provided."
            raise Refusal(403, "SignatureDoesNotMatch", words)
        self.region = scope["region"]

    def authorize(self) -> None:
        if self.bucket in self.server.forbidden:
            raise Refusal(403, "AccessDenied", "Access Denied")
        self._decode()
        if "delete" not in self.query:  # DeleteObjects is weighed object by object
            self._admit(self._action(), self.key)

    def _admit(self, action: str, key: str) -> None:
        if self.server.admit is not None:
            path = f"{self.bucket}/{key}" if key else self.bucket
            context = {"s3:prefix": self.query["prefix"]} if "prefix" in self.query else {}
            self.server.admit(action, f"arn:aws:s3:::{path}" if path else "*", context)

    def _action(self) -> str:
        """ "Required permissions for Amazon S3 API operations". A copy's source is not asked for."""
        if not self.bucket:
            return "s3:ListAllMyBuckets"
        if not self.key:
            return _bucket_action(self.command, self.query)
        if self.command == "DELETE" and "uploadId" in self.query:
            return "s3:AbortMultipartUpload"
        if self.command == "GET" and "uploadId" in self.query:
            return "s3:ListMultipartUploadParts"
        return {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "DELETE": "s3:DeleteObject"}.get(
            self.command, "s3:PutObject"
        )

    def _decode(self) -> None:
        """ "Signature calculations … multiple chunks", "… trailing headers": aws-chunked bodies."""
        self.trailer: Mapping[str, str] = {}
        digest = self.headers.get("x-amz-content-sha256", "")
        if not digest.startswith("STREAMING-"):
            if _SHA256.fullmatch(digest) and digest != hashlib.sha256(self.body).hexdigest():
                words = "The provided 'x-amz-content-sha256' header does not match what was computed."
                raise Refusal(400, "XAmzContentSHA256Mismatch", words)
            return
        try:
            self.body, self.trailer = checksums.unchunk(self.body)
        except ValueError as error:
            raise Refusal(400, "IncompleteBody", f"The request body is not aws-chunked: {error}.") from error
        if str(len(self.body)) != self.headers.get("x-amz-decoded-content-length"):
            raise Refusal(400, "IncompleteBody", "x-amz-decoded-content-length is not what was sent.")

    def route(self) -> None:
        if not self.bucket:
            return self._list_buckets()
        if self.command == "PUT" and not self.key and not self.query:
            return self._create_bucket()
        self._check_region()
        return super().route()

    def _check_region(self) -> None:
        """Refuse a signature of another region; GetBucketLocation is answered from everywhere.

        Verbatim: 301 of a regional endpoint in yanganto/s3rs#18 (2019-01-17); 400 of the global endpoint in
        jsoma/flatware#10 (2016-04-27); 400 of an opt-in region in cloud-custodian#8005 (2022-11-16).
        """
        home = self.server.region(self.bucket)
        if self.region == home or "location" in self.query or self.bucket not in self.server.buckets:
            return
        if self.server.wrong_region == "redirect":
            words = (
                "The bucket you are attempting to access must be addressed using the specified endpoint. "
                "Please send all future requests to this endpoint."
            )
            place = f"<Endpoint>{self.bucket}.s3-{home}.amazonaws.com</Endpoint><Bucket>{self.bucket}</Bucket>"
            raise Refusal(301, "PermanentRedirect", words, inside=place)
        if self.server.wrong_region == "opt-in":
            words = f"The {self.region} location constraint is incompatible for the region specific endpoint"
            raise Refusal(400, "IllegalLocationConstraintException", f"{words} this request was sent to.")
        words = f"The authorization header is malformed; the region '{self.region}' is wrong; expecting '{home}'"
        raise Refusal(400, "AuthorizationHeaderMalformed", words, inside=f"<Region>{home}</Region>")

    def refusal_headers(self) -> dict[str, str]:
        """HeadBucket: the bucket's region is told to whoever asks."""
        there = self.bucket in self.server.buckets
        return {"x-amz-bucket-region": self.server.region(self.bucket)} if there else {}

    # --- buckets ------------------------------------------------------------------------------------------

    def _list_buckets(self) -> None:
        """ListBuckets."""
        if self.command != "GET":
            raise Refusal(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        with self.server.lock:
            names = sorted(self.server.buckets)
        each = "".join(
            f"<Bucket><Name>{escape(name)}</Name><CreationDate>{format_iso_time(0)}</CreationDate>"
            f"<BucketRegion>{self.server.region(name)}</BucketRegion></Bucket>"
            for name in names
        )
        self.xml("ListAllMyBucketsResult", f"<Owner><ID>{OWNER}</ID></Owner><Buckets>{each}</Buckets>")

    def _create_bucket(self) -> None:
        """CreateBucket; names: "Bucket naming rules". The region in the body must be the one that is asked."""
        if not _BUCKET.fullmatch(self.bucket):
            raise Refusal(400, "InvalidBucketName", "The specified bucket is not valid.")
        found = parse_elements(self.body, "CreateBucketConfiguration") if self.body else []
        wanted = found[0].get("LocationConstraint", "") if found else ""
        if (wanted or REGION) != self.region or wanted == REGION:
            words = f"The {wanted or 'unspecified'} location constraint is incompatible for the region specific"
            raise Refusal(400, "IllegalLocationConstraintException", f"{words} endpoint this request was sent to.")
        with self.server.lock:
            if self.bucket in self.server.buckets and not self.server.create:
                words = "Your previous request to create the named bucket succeeded and you already own it."
                raise Refusal(409, "BucketAlreadyOwnedByYou", words)
            self.server.buckets.setdefault(self.bucket, {})
            self.server.regions[self.bucket] = self.region
        self.answer(200, b"", {"Location": f"/{self.bucket}"})

    def on_bucket(self) -> None:
        home = self.server.region(self.bucket)
        if self.command == "HEAD":  # HeadBucket
            return self.answer(200, b"", {"x-amz-bucket-region": home})
        if self.command == "GET" and "location" in self.query:  # GetBucketLocation: us-east-1 is written as nothing
            return self.xml("LocationConstraint", "" if home == REGION else home)
        if self.command == "GET" and "uploads" in self.query:
            return self._list_uploads()
        if self.command == "POST" and "delete" in self.query:
            return self._delete_objects()
        if self.command == "DELETE" and not self.query:
            return self._delete_bucket()
        return super().on_bucket()

    def _delete_bucket(self) -> None:
        """DeleteBucket."""
        with self.server.lock:
            if self.server.buckets[self.bucket]:
                raise Refusal(409, "BucketNotEmpty", "The bucket you tried to delete is not empty.")
            del self.server.buckets[self.bucket]
            self.server.regions.pop(self.bucket, None)
        self.answer(204, b"", {})

    def _delete_objects(self) -> None:
        """DeleteObjects: at most 1,000; what is not there counts as deleted. A checksum of the body is required."""
        if "Content-MD5" not in self.headers and not self.check_body():
            raise Refusal(400, "InvalidRequest", "Missing required header for this request: Content-MD5")
        named = parse_elements(self.body, "Object")
        if not 1 <= len(named) <= MAX_PAGE or any(one.keys() - {"Key", "ETag"} for one in named):
            raise Refusal(400, "MalformedXML", "Between 1 and 1,000 objects, each by its Key, are expected.")
        quiet = any(one.get("Quiet") == "true" for one in parse_elements(self.body, "Delete"))
        result = ""
        for one in named:
            key = f"<Key>{escape(one['Key'])}</Key>"
            try:
                self._delete_one(one["Key"], one.get("ETag"))
            except Refusal as refusal:
                why = f"<Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message>"
                result += f"<Error>{key}{why}</Error>"
            else:
                result += "" if quiet else f"<Deleted>{key}</Deleted>"
        self.xml("DeleteResult", result)

    def _delete_one(self, key: str, e_tag: str | None) -> None:
        self._admit("s3:DeleteObject", key)
        with self.server.lock:
            objects = self.server.buckets[self.bucket]
            if key in objects and not _fits(e_tag, objects[key].e_tag):
                raise _precondition("If-Match")
            objects.pop(key, None)

    def _list_uploads(self) -> None:
        """ListMultipartUploads: in one page, which our few always fit in."""
        prefix = self.query.get("prefix", "")
        with self.server.lock:
            found = [
                (one.key, name, one)
                for name, one in self.server.uploads.items()
                if one.bucket == self.bucket and one.key.startswith(prefix)
            ]
        each = "".join(
            f"<Upload><Key>{self.written(key)}</Key><UploadId>{name}</UploadId>"
            f"<Initiated>{format_iso_time(one.began)}</Initiated></Upload>"
            for key, name, one in sorted(found, key=lambda each: each[:2])
        )
        self.xml("ListMultipartUploadsResult", f"<Bucket>{self.bucket}</Bucket><IsTruncated>false</IsTruncated>{each}")

    def list_echo(self) -> str:
        """Without it a client does not take the names for encoded."""
        return "<EncodingType>url</EncodingType>" if self.query.get("encoding-type") == "url" else ""

    def written(self, name: str) -> str:
        """ListObjectsV2, "encoding-type"."""
        return escape(urllib.parse.quote(name, safe="/") if self.query.get("encoding-type") == "url" else name)

    # --- objects ------------------------------------------------------------------------------------------

    def check_key(self) -> None:
        """ "Naming Amazon S3 objects": at most 1,024 bytes of UTF-8."""
        if len(self.key.encode()) > 1024:
            raise Refusal(400, "KeyTooLongError", "Your key is too long")

    def check_body(self) -> Mapping[str, str]:
        """ "Checking object integrity for data uploads"; 411 and 400 of PutObject."""
        if "Content-Length" not in self.headers:
            raise Refusal(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")
        given = {name.lower(): value for name, value in self.headers.items()} | dict(self.trailer)
        checksums.check_payload(given.get("x-amz-content-sha256", ""), self.body)
        return checksums.check(given, self.body)

    def check_write(self, current: StoredObject | None) -> None:
        """ "Conditional requests", for PutObject, CompleteMultipartUpload and DeleteObject: 412, 404, 501."""
        absent, match = self.headers.get("If-None-Match"), self.headers.get("If-Match")
        if absent not in (None, "*"):
            raise Refusal(501, "NotImplemented", "A header you provided implies functionality that is not implemented")
        if absent == "*" and current is not None:
            raise _precondition("If-None-Match")
        if match is None:
            return
        if current is None and self.command != "DELETE":
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        if current is None or not _fits(match, current.e_tag):
            raise _precondition("If-Match")

    def check_read(self, stored: StoredObject) -> None:
        """GetObject: If-Match 412, If-None-Match 304."""
        if not _fits(self.headers.get("If-Match"), stored.e_tag):
            raise _precondition("If-Match")
        if "If-None-Match" in self.headers and _fits(self.headers["If-None-Match"], stored.e_tag):
            raise Refusal(304, "NotModified", "", {"ETag": stored.e_tag})

    def described(self, stored: StoredObject) -> dict[str, str]:
        """Checksums of what was written at once; of what is read, only when they are asked for."""
        if self.command in ("GET", "HEAD") and self.headers.get("x-amz-checksum-mode") != "ENABLED":
            return {}
        return {} if "Range" in self.headers else dict(stored.checksums)

    def version_element(self, stored: StoredObject) -> str:
        del stored
        return "<StorageClass>STANDARD</StorageClass>"

    def on_absent(self) -> None:
        """DeleteObject: 204 all the same."""
        self.answer(204, b"", {})

    def on_object(self) -> None:
        if self.command == "PUT" and "x-amz-copy-source" in self.headers:
            return self._copy()
        return super().on_object()

    def _copy(self) -> None:
        """CopyObject: at most 5 GB, metadata of the source unless the directive is REPLACE; onto itself only so."""
        source, key = self._source()
        replaced = self.headers.get("x-amz-metadata-directive", "COPY") == "REPLACE"
        if not replaced and key == (self.bucket, self.key):
            words = "This copy request is illegal because it is trying to copy an object to itself without changing it."
            raise Refusal(400, "InvalidRequest", words)
        metadata = self.metadata() if replaced else source.metadata
        kind = self.content_type() if replaced else source.content_type
        e_tag = f'"{checksums.md5(source.data)}"'
        with self.server.lock:
            self.check_write(self.server.buckets[self.bucket].get(self.key))
            stored = self.keep(source.data, e_tag, metadata, kind, {})
        self.xml("CopyObjectResult", _copied(stored.e_tag, stored.modified))

    def _source(self) -> tuple[StoredObject, tuple[str, str]]:
        """The object that x-amz-copy-source names."""
        path = urllib.parse.unquote(self.headers["x-amz-copy-source"].partition("?")[0]).removeprefix("/")
        bucket, _, key = path.partition("/")
        with self.server.lock:
            if bucket not in self.server.buckets:
                raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
            stored = self.server.buckets[bucket].get(key)
        if stored is None:
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
        if not _fits(self.headers.get("x-amz-copy-source-if-match"), stored.e_tag):
            raise _precondition("x-amz-copy-source-If-Match")
        return stored, (bucket, key)

    # --- uploads in parts ---------------------------------------------------------------------------------

    def multipart(self) -> None:
        if self.command == "GET":
            return self._list_parts()
        return super().multipart()

    def part(self, upload: Upload, data: bytes) -> None:
        if "x-amz-copy-source" not in self.headers:
            return super().part(upload, data)
        source, _ = self._source()  # UploadPartCopy
        if (wanted := self.headers.get("x-amz-copy-source-range")) is not None:
            first, last = byte_range(wanted, len(source.data))
            data = source.data[first : last + 1]
        else:
            data = source.data
        kept = self.keep_part(upload, data)
        return self.xml("CopyPartResult", _copied(kept.e_tag, upload.began))

    def _list_parts(self) -> None:
        """ListParts."""
        with self.server.lock:
            upload = self.server.uploads.get(self.query["uploadId"])
        if upload is None or (upload.bucket, upload.key) != (self.bucket, self.key):
            raise Refusal(404, "NoSuchUpload", "The specified upload does not exist.")
        each = "".join(
            f"<Part><PartNumber>{number}</PartNumber><LastModified>{format_iso_time(upload.began)}</LastModified>"
            f"<ETag>{escape(part.e_tag)}</ETag><Size>{len(part.data)}</Size></Part>"
            for number, part in sorted(upload.parts.items())
        )
        inside = f"<MaxParts>{MAX_PARTS}</MaxParts><IsTruncated>false</IsTruncated>{each}"
        self.xml("ListPartsResult", inside)

    def checksums_of(self, upload: Upload, parts: list[Part], data: bytes) -> Mapping[str, str]:
        """ "Checking object integrity", composite and full-object checksums."""
        given = {name.lower(): value for name, value in self.headers.items()}
        return checksums.of_parts(upload.headers, given, [part.data for part in parts], data)


_SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/]+)/\d{8}/(?P<region>[a-z0-9-]+)/s3/aws4_request\b")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BUCKET = re.compile(r"(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def _bucket_action(command: str, query: Mapping[str, str]) -> str:
    if command == "GET" and "location" in query:
        return "s3:GetBucketLocation"
    if command == "GET" and "uploads" in query:
        return "s3:ListBucketMultipartUploads"
    return {"PUT": "s3:CreateBucket", "DELETE": "s3:DeleteBucket"}.get(command, "s3:ListBucket")


def _fits(wanted: str | None, e_tag: str) -> bool:
    """Whether an ETag header lets this one pass. Clients write it with and without quotes."""
    return wanted in (None, "*") or wanted.strip('"') == e_tag.strip('"')


def _precondition(header: str) -> Refusal:
    words = "At least one of the pre-conditions you specified did not hold"
    return Refusal(412, "PreconditionFailed", words, inside=f"<Condition>{header}</Condition>")


def _copied(e_tag: str, modified: float) -> str:
    return f"<LastModified>{format_iso_time(modified)}</LastModified><ETag>{escape(e_tag)}</ETag>"
