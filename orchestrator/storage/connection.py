"""The clients of one cloud bucket: signed for the region that it is in, and repeated where an answer was cut.

A bucket's region is found out by the first refusal (trainer/checkpoint/bucket_region.py): neither the environment nor
the region of the machines says where a bucket is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from orchestrator.retries import BUCKET_BODY
from orchestrator.storage.faults import is_missing_credentials, is_network_failure
from trainer.checkpoint.bucket_region import is_region_refusal, read_region_of_refusal

if TYPE_CHECKING:
    from obstore.store import GCSStore, S3Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clients:
    """Two clients of the same bucket.

    Attributes:
        retrying: Repeats requests.
        single_try: Does not, for conditional writes.
    """

    retrying: S3Store | GCSStore
    single_try: S3Store | GCSStore


@dataclass(frozen=True, slots=True)
class Regions:
    """How the region of a bucket is found and taken.

    Attributes:
        first: For which the first requests are signed.
        connect: Returns clients that sign for a region.
        find: Returns the region of the bucket, given a wrong one; "" where it is unknown.
    """

    first: str
    connect: Callable[[str], Clients]
    find: Callable[[str], str]


class Connection:
    """Sends calls to a bucket; threads may share it."""

    def __init__(
        self, clients: Clients, regions: Regions | None = None, log_in: Callable[[], object] | None = None
    ) -> None:
        """Take clients, and the regions where the service has them.

        Args:
            clients: The clients.
            regions: How the region of the bucket is found.
            log_in: What gives the clients their credentials, and raises why it cannot: obstore reports that as text.
        """
        self._clients = clients
        self._log_in = log_in
        self._regions = regions
        self._region = regions.first if regions is not None else ""
        self._lock = threading.Lock()

    def run(self, call: Callable[[Clients], T]) -> T:
        """Return the result of a call, which is made again when the bucket is in another region."""
        clients = self._clients
        try:
            return call(clients)
        except Exception as error:
            if self._log_in is not None and is_missing_credentials(error):
                self._log_in()
            if not self._follow_region(clients, str(error)):
                raise
        return call(self._clients)

    def repeat(self, call: Callable[[Clients], T]) -> T:
        """Return the result of a call that may be repeated, also where its answer was cut."""
        return BUCKET_BODY.run(lambda: self.run(call), retry=is_network_failure)

    def _follow_region(self, used: Clients, refusal: str) -> bool:
        """Sign for the bucket's region from here on; return whether the call is worth another try."""
        if self._regions is None or not is_region_refusal(refusal):
            return False
        with self._lock:
            if self._clients is not used:
                return True  # another thread has done it meanwhile
            region = read_region_of_refusal(refusal) or self._regions.find(self._region)
            if region in ("", self._region):
                return False
            self._clients, self._region = self._regions.connect(region), region
            return True
