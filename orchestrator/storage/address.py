"""The address of a bucket: three kinds of URI, and the allowed object names.

Everything after the scheme is literal text: `%20`, `?` and `#` are part of a name, as in `aws s3` and `gcloud storage`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from orchestrator.bucket_names import NAME_RULE, is_bucket_name
from orchestrator.errors import UserError

Scheme: TypeAlias = Literal["file", "s3", "gs"]

MAX_KEY_BYTES = 1024
"""Longest object name in bytes of UTF-8, on both clouds.

Sources: Amazon S3 User Guide, "Naming Amazon S3 objects"; Cloud Storage, "About objects", section "Naming" (2026).
"""


@dataclass(frozen=True, slots=True)
class Address:
    """A bucket and a folder in it.

    Attributes:
        container: name of the bucket, or the absolute folder of a file: bucket.
        prefix: the folder in the bucket, without slashes at its ends.
    """

    scheme: Scheme
    container: str
    prefix: str = ""

    @classmethod
    def parse(cls, uri: str) -> Address:
        """Return the address in `gs://name/folder`, `s3://name/folder` or `file:///folder`. Raises UserError."""
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme not in get_args(Scheme):
            raise UserError(
                f"not a bucket URI: {uri!r}",
                "a bucket begins with gs://, s3:// or file://",
                "write for example gs://my-bucket/runs or file:///var/tmp/bucket",
            )
        if scheme == "file":
            return cls("file", _absolute(uri, rest))
        container, _, prefix = rest.partition("/")
        if not is_bucket_name(container):
            raise UserError(
                f"not a bucket URI: {uri!r}",
                f"{container!r} cannot be a bucket's name: {NAME_RULE}"
                if container
                else "the bucket's name is missing",
                f"write {scheme}://NAME or {scheme}://NAME/FOLDER",
            )
        prefix = prefix.rstrip("/")
        if prefix:
            check_key(prefix)
        return cls("s3" if scheme == "s3" else "gs", container, prefix)

    @property
    def uri(self) -> str:
        """The address as a URI."""
        path = f"{self.container}/{self.prefix}" if self.prefix else self.container
        return f"{self.scheme}://{path}"

    def full_key(self, path: str) -> str:
        """Return the object's name in the bucket, which begins with our folder."""
        return f"{self.prefix}/{path}" if self.prefix and path else self.prefix or path


def is_bucket_uri(text: str) -> bool:
    """Return whether a text begins with a scheme, unlike a local path."""
    return "://" in text


def split_object(uri: str) -> tuple[str, str]:
    """Return the URI of the folder and the name in an object's URI. Raises UserError when it has no name."""
    address = Address.parse(uri)
    path = address.container if address.scheme == "file" else address.prefix
    folder, _, name = path.rpartition("/")
    if not name:
        raise UserError(f"{uri} names a bucket, not an object", "", "add the object's name after a slash")
    if address.scheme == "file":
        return f"file://{folder or '/'}", name
    return Address(address.scheme, address.container, folder).uri, name


def check_key(path: str) -> str:
    """Return `path` if every backend can hold an object of this name. Raises UserError.

    Refused: empty segments, `.` and `..`, a slash at either end, control characters, more than 1,024 bytes,
    and a last part that ends with `#` and digits (the names of unfinished files in a file: bucket).
    """
    why = ""
    if not path or path.startswith("/") or path.endswith("/") or "//" in path:
        why = "it has an empty part between slashes"
    elif any(part in (".", "..") for part in path.split("/")):
        why = "a part is . or .."
    elif any(ord(character) < 32 or ord(character) == 127 for character in path):
        why = "it has a control character"
    elif any(0xD800 <= ord(character) <= 0xDFFF for character in path):
        why = "it is not valid UTF-8"
    elif len(path.encode()) > MAX_KEY_BYTES:
        why = f"it is longer than {MAX_KEY_BYTES} bytes"
    elif is_unfinished(path):
        why = "names that end with # and digits are reserved for unfinished files"
    if why:
        raise UserError(f"not an object name: {path!r}", why, "rename it")
    return path


def is_unfinished(path: str) -> bool:
    """Return whether a name is that of a temporary file in a file: bucket, with the ending of obstore's local store."""
    return re.search(r"#[0-9]+$", path) is not None


def _absolute(uri: str, rest: str) -> str:
    if not rest.startswith("/") or ".." in rest.split("/") or "\0" in rest:
        raise UserError(
            f"not a bucket URI: {uri!r}",
            "a file: bucket is an absolute folder without ..",
            "write file:///FOLDER, with three slashes",
        )
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    return "/" + "/".join(parts)
