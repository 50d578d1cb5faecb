"""The client of one bucket: requests repeated for a while, and signed for the region that the bucket is in.

obstore repeats a request whose answer says that it may be repeated, a few times within seconds. What it does not repeat
is repeated here, by time: outages of minutes, answers that are cut, and writes with a condition.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import GCSStore, S3Store

from .bucket_region import (
    DEFAULT_REGION,
    find_bucket_region,
    is_region_refusal,
    read_region_of_refusal,
)
from .store import METADATA_SERVER

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSCredential, RetryConfig

_PAUSE_SECONDS = 0.5  # after the first failure; doubles with each further one
_LONGEST_PAUSE_SECONDS = 15.0

Backend: TypeAlias = "S3Store | GCSStore"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Regions:
    """How a client finds and takes the region of its bucket.

    Attributes:
        first: For which it signs at first.
        connect: Returns a backend that signs for a region.
        find: Returns the region of the bucket, given a wrong one; "" where it is unknown.
    """

    first: str
    connect: Callable[[str], Backend]
    find: Callable[[str], str]


class UnsettledWrite(Exception):
    """A write with a condition was refused, and no other writer is to be seen: it is worth another try."""


class BucketClient:
    """The requests of one bucket; threads may share it."""

    def __init__(self, backend: Backend, regions: Regions | None = None) -> None:
        """Take a backend, and its regions where the service has them."""
        self._backend = backend
        self._regions = regions
        self._region = regions.first if regions is not None else ""
        self._lock = threading.Lock()
        self._repeating = 0

    @property
    def in_trouble(self) -> bool:
        """Whether a request is being repeated now."""
        return self._repeating > 0

    def run(self, call: Callable[[Backend], T], until: float) -> T:
        """Return the result of a call; repeat it while it fails in a way that may pass.

        Args:
            call: Gets the backend; may be called any number of times.
            until: By `time.monotonic`; no try begins later, except the first.

        Raises:
            BaseError: The last error of obstore; also OSError, ValueError and UnsettledWrite.
        """
        pause = _PAUSE_SECONDS
        with self._noting_trouble() as note_trouble:
            while True:
                backend = self._backend
                try:
                    return call(backend)
                except (BaseError, OSError, ValueError, UnsettledWrite) as error:
                    if self._follow_region(backend, str(error)):
                        continue
                    seconds = pause * random.uniform(0.75, 1.25)  # noqa: S311  # many hosts, not at the same time
                    if not is_transient(error) or time.monotonic() + seconds > until:
                        raise
                note_trouble()
                time.sleep(seconds)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    @contextmanager
    def _noting_trouble(self) -> Generator[Callable[[], None]]:
        noted = False

        def note() -> None:
            nonlocal noted
            if not noted:
                noted = True
                self._count(1)

        try:
            yield note
        finally:
            if noted:
                self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._repeating += change

    def _follow_region(self, used: Backend, refusal: str) -> bool:
        """Sign for the bucket's region from here on; return whether the request is worth another try."""
        if self._regions is None or not is_region_refusal(refusal):
            return False
        with self._lock:
            if self._backend is not used:
                return True  # another thread has done it meanwhile
            region = read_region_of_refusal(refusal) or self._regions.find(self._region)
            if region in ("", self._region):
                return False
            self._backend, self._region = self._regions.connect(region), region
            return True


def is_transient(error: BaseException) -> bool:
    """Return whether the same request may succeed later; obstore has the HTTP status only in its text."""
    if isinstance(error, UnsettledWrite):
        return True
    if isinstance(error, FileNotFoundError | AlreadyExistsError | PreconditionError) or METADATA_SERVER in str(error):
        return False
    text = str(error)
    status = re.search(r"status code: (\d{3})", text)
    if status is not None:
        return status[1][0] == "5" or status[1] in ("408", "409", "425", "429")
    return "HTTP error" in text


def connect_s3(bucket: str, prefix: str, environ: Mapping[str, str]) -> BucketClient:
    """Return the client of an S3 bucket.

    ORCH_BUCKET_REGION is the region of the run's bucket. AWS_REGION, which programs use for the region that they run
    in, is only a first guess, as us-east-1 is: a wrong one is found out by the first answer.
    """
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    region = read_run_bucket_region(bucket, environ) or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    client, retry = _client(endpoint), _retry()

    def connect(region: str) -> S3Store:
        if endpoint:
            return S3Store(
                bucket, prefix=prefix or None, region=region, endpoint=endpoint, client_options=client,
                retry_config=retry,
            )  # fmt: skip
        return S3Store(bucket, prefix=prefix or None, region=region, client_options=client, retry_config=retry)

    first = region or DEFAULT_REGION
    return BucketClient(connect(first), Regions(first, connect, partial(find_bucket_region, bucket, endpoint)))


def read_run_bucket_region(bucket: str, environ: Mapping[str, str]) -> str:
    """Return the region that the launcher named for the bucket of the run's checkpoints; "" for any other bucket."""
    of_run = f"{environ.get('ORCH_CHECKPOINT_URI', '')}/".startswith(f"s3://{bucket}/")
    return environ.get("ORCH_BUCKET_REGION", "") if of_run else ""


def connect_gcs(bucket: str, prefix: str, environ: Mapping[str, str]) -> BucketClient:
    """Return the client of a Cloud Storage bucket."""
    emulator = environ.get("STORAGE_EMULATOR_HOST", "")
    if not emulator:
        return BucketClient(GCSStore(bucket, prefix=prefix or None, client_options=_client(""), retry_config=_retry()))
    base = emulator if "://" in emulator else f"http://{emulator}"
    return BucketClient(
        GCSStore(
            bucket,
            prefix=prefix or None,
            config={"base_url": base},
            credential_provider=partial(_emulator_credential, environ.get("GOOGLE_BEARER_TOKEN", "")),
            client_options=_client(base),
            retry_config=_retry(),
        )
    )


def _emulator_credential(token: str) -> GCSCredential:
    """Return the token, or a placeholder: obstore sends no write without one, also where none is needed."""
    return {"token": token or "anonymous", "expires_at": None}


def _client(endpoint: str) -> ClientConfig:
    plain = urlsplit(endpoint).scheme == "http"
    return {"allow_http": plain, "connect_timeout": timedelta(seconds=10), "timeout": timedelta(seconds=300)}


def _retry() -> RetryConfig:
    """Return what obstore does by itself; see `BucketClient.run` for the rest."""
    return {"max_retries": 2, "retry_timeout": timedelta(seconds=30)}
