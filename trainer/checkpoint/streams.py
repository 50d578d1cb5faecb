"""Large objects in stretches, in order, with the following ones on their way already.

A bucket gives one request about 90 MB/s, however fast the network is. Amazon advises requests of 8 to 16 MB, and one at
once for each 85 to 90 MB/s that are wanted (S3 user guide, "Performance design patterns", as of 2026-11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from trainer.checkpoint.store import Store

STRETCH = 16 << 20  # bytes of one request
AT_ONCE = 8  # requests for one object


def stretches(
    store: Store, path: str, offset: int, size: int, into: memoryview | None = None, *, stretch: int = STRETCH
) -> Iterator[memoryview]:
    """`size` bytes of an object from `offset` on. into: of that size, where they stay.

    Without it, AT_ONCE stretches are in memory at most, and each is valid until the next one is drawn. Raises
    StorageError.
    """
    count = -(-size // stretch)
    ring = into if into is not None else np.empty(min(size, AT_ONCE * stretch), np.uint8).data

    def begin(number: int) -> tuple[memoryview, Future[None]]:
        at = number * stretch
        start = at if into is not None else at % (AT_ONCE * stretch)
        target = ring[start : start + min(stretch, size - at)]
        return target, pool.submit(store.read_into, path, offset + at, target)

    with ThreadPoolExecutor(max(1, min(count, AT_ONCE)), thread_name_prefix="stretch") as pool:
        begun = deque(begin(number) for number in range(min(count, AT_ONCE)))
        try:
            for number in range(len(begun), count + len(begun)):
                target, future = begun.popleft()
                future.result()
                yield target
                if number < count:
                    begun.append(begin(number))
        finally:
            for _, future in begun:
                future.cancel()


def fill(store: Store, path: str, offset: int, target: memoryview) -> None:
    """Fill `target` (bytes, writable) with what lies at `offset` of an object. Raises StorageError."""
    if len(target) <= STRETCH:
        store.read_into(path, offset, target)
        return
    for _ in stretches(store, path, offset, len(target), target):
        pass
