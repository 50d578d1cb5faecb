"""A strict Cloud Storage on loopback: the part of the XML API that our client uses.

Each rule names the reference page it comes from ("XML API" = Cloud Storage documentation, "XML API overview" and
the pages below it, read in 2026). What it shares with S3 is in `bucket_http.py`, the faults are in `buckets.py`.
"""

from __future__ import annotations

import hmac
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from orch_fronts.bucket_http import BucketHandler
from orch_fronts.buckets import BucketServer, Refusal, StoredObject, serve_buckets
from orch_fronts.google.tokens import Tokens


class GcsServer(BucketServer):
    """token: the one bearer token that is let in; None lets any token in. create: see gcs_server.

    tokens: of impersonated accounts, which are let in, too. callers: the accounts that have called, "" for the caller.
    """

    def __init__(self, token: str | None = None, *, create: bool = False, tokens: Tokens | None = None) -> None:
        super().__init__(GcsHandler, create=create)
        self.token = token
        self.tokens = tokens or Tokens()
        self.callers: set[str] = set()


@contextmanager
def gcs_server(token: str | None = None, *, create: bool = False, tokens: Tokens | None = None) -> Generator[GcsServer]:
    """create: every bucket that is asked for is there."""
    with serve_buckets(GcsServer(token, create=create, tokens=tokens)) as server:
        yield server


class GcsHandler(BucketHandler):
    server: GcsServer  # pyright: ignore[reportIncompatibleVariableOverride]  # it is made by no other
    vendor = "goog"
    namespace = "http://doc.s3.amazonaws.com/2006-03-01"

    def authenticate(self) -> None:
        """XML API, "Authentication" and "HTTP status and error codes for XML API": 401."""
        given = self.headers.get("Authorization", "")
        wanted = f"Bearer {self.server.token}"
        impersonated = self.server.tokens.find(given)
        self.server.callers.add(impersonated.account if impersonated is not None else "")
        if (
            impersonated is None
            and self.server.token is not None
            and not hmac.compare_digest(given.encode(), wanted.encode())
        ):
            raise Refusal(401, "AuthenticationRequired", "Authentication required.")

    def authorize(self) -> None:
        """XML API, "HTTP status and error codes for XML API": 403."""
        if self.bucket in self.server.forbidden:
            raise Refusal(403, "AccessDenied", "Access denied.")

    def check_body(self) -> Mapping[str, str]:
        """No checksum but Content-MD5 is served."""
        return {}

    def check_key(self) -> None:
        """ "About Cloud Storage objects", section "Object name requirements"."""
        if len(self.key.encode()) > 1024 or "\n" in self.key or "\r" in self.key or self.key in (".", ".."):
            raise Refusal(400, "InvalidObjectName", "The object name is not valid.")

    def check_write(self, current: StoredObject | None) -> None:
        """XML API, "x-goog-if-generation-match": 0 means that no live object may exist; else 412."""
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is None:
            return
        if not wanted.isdigit():
            raise Refusal(400, "InvalidArgument", "x-goog-if-generation-match is not a number.")
        if int(wanted) != (current.generation if current else 0):
            raise Refusal(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")

    def described(self, stored: StoredObject) -> dict[str, str]:
        """Generations rise with every write ("Object versioning")."""
        length = str(len(stored.data))
        return {"x-goog-generation": str(stored.generation), "x-goog-stored-content-length": length}

    def version_element(self, stored: StoredObject) -> str:
        return f"<Generation>{stored.generation}</Generation><MetaGeneration>1</MetaGeneration>"

    def on_absent(self) -> None:
        """XML API, "DELETE Object": 404 if there is none."""
        raise Refusal(404, "NoSuchKey", "The specified key does not exist.")
