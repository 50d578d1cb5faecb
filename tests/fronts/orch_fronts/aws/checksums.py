"""Checksums of S3: what a client says of its bytes, and what S3 says of them later.

Source: S3 User Guide, "Checking object integrity in Amazon S3" (read in 2026). CRC32, SHA-1 and SHA-256 are verified.
CRC32C and CRC64NVME are kept as the client says them: in Python alone they would take seconds for one file.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence

from orch_fronts.buckets import Refusal

_PREFIX = "x-amz-checksum-"
_TYPE = f"{_PREFIX}type"
_VERIFIED: Mapping[str, Callable[[bytes], bytes]] = {
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "sha1": lambda data: hashlib.sha1(data, usedforsecurity=False).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
}
_TAKEN = ("crc32c", "crc64nvme")


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def check_payload(said: str, data: bytes) -> None:
    """x-amz-content-sha256: the digest of the body, or a word instead of it. Raises Refusal."""
    if len(said) == 64 and said != hashlib.sha256(data).hexdigest():
        words = "The provided 'x-amz-content-sha256' header does not match what was computed."
        raise Refusal(400, "XAmzContentSHA256Mismatch", words)


def check(headers: Mapping[str, str], data: bytes) -> Mapping[str, str]:
    """headers: by lower-case name. The checksums among them, verified. Raises Refusal."""
    found: dict[str, str] = {}
    for name in (*_VERIFIED, *_TAKEN):
        said = headers.get(_PREFIX + name)
        if said is None:
            continue
        if name in _VERIFIED and said != _text(_VERIFIED[name](data)):
            words = f"The {name.upper()} you specified did not match the calculated checksum."
            raise Refusal(400, "BadDigest", words)
        found[_PREFIX + name] = said
    if len(found) > 1:
        raise Refusal(400, "InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple were specified.")
    return found | {_TYPE: "FULL_OBJECT"} if found else {}


def of_parts(
    begun: Mapping[str, str], given: Mapping[str, str], parts: Sequence[bytes], data: bytes
) -> Mapping[str, str]:
    """Of an object made of parts, by the algorithm that CreateMultipartUpload named. Raises Refusal.

    Composite: the checksum of the parts' checksums, and how many they are. begun, given: headers of the first and of
    the last request, by lower-case name.
    """
    name = begun.get("x-amz-checksum-algorithm", "").lower()
    digest = _VERIFIED.get(name)
    if digest is None:
        return {}
    full = begun.get(_TYPE) == "FULL_OBJECT"
    value = _text(digest(data)) if full else f"{_text(digest(b''.join(map(digest, parts))))}-{len(parts)}"
    if given.get(_PREFIX + name, value) not in (value, value.partition("-")[0]):
        raise Refusal(400, "BadDigest", f"The {name} you specified did not match the calculated checksum.")
    return {_PREFIX + name: value, _TYPE: "FULL_OBJECT" if full else "COMPOSITE"}


def unchunk(body: bytes) -> tuple[bytes, Mapping[str, str]]:
    """The bytes and the trailing headers of an aws-chunked body. Raises ValueError."""
    pieces: list[bytes] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].partition(b";")[0], 16)
        if not size:
            lines = [line.partition(":") for line in body[end + 2 :].decode().split("\r\n") if line]
            return b"".join(pieces), {name.strip().lower(): value.strip() for name, _, value in lines}
        at = end + 2 + size
        if body[at : at + 2] != b"\r\n":
            raise ValueError("a chunk does not end where it says")
        pieces.append(body[end + 2 : at])
        at += 2


def _text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()
