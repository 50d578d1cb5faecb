"""Reads large objects in chunks, in order, with the next ones already requested.

A bucket serves one request at about 90 MB/s, however fast the network is. Amazon advises requests of 8 to 16 MB, and
one concurrent request for each 85 to 90 MB/s of throughput (S3 user guide, "Performance design patterns", 2026-11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from trainer.checkpoint.store import Store

CHUNK_BYTES = 16 << 20  # bytes of one request
MAX_CONCURRENT_REQUESTS = 8  # requests for one object


def read_in_chunks(
    store: Store, path: str, offset: int, size: int, into: memoryview | None = None, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[memoryview]:
    """Yield `size` bytes of an object from `offset` on, in chunks.

    Without `into`, at most MAX_CONCURRENT_REQUESTS chunks are in memory, and each is valid until the next one is drawn.

    Args:
        store: Where the object is.
        path: Of the object.
        offset: First byte.
        size: Number of bytes.
        into: Memory of that size, where the bytes stay.
        chunk_bytes: Size of one request.

    Raises:
        StorageError: The object cannot be read.
    """
    count = -(-size // chunk_bytes)
    ring = into if into is not None else np.empty(min(size, MAX_CONCURRENT_REQUESTS * chunk_bytes), np.uint8).data

    def begin(number: int) -> tuple[memoryview, Future[None]]:
        at = number * chunk_bytes
        start = at if into is not None else at % (MAX_CONCURRENT_REQUESTS * chunk_bytes)
        target = ring[start : start + min(chunk_bytes, size - at)]
        return target, pool.submit(store.read_into, path, offset + at, target)

    with ThreadPoolExecutor(max(1, min(count, MAX_CONCURRENT_REQUESTS)), thread_name_prefix="stretch") as pool:
        begun = deque(begin(number) for number in range(min(count, MAX_CONCURRENT_REQUESTS)))
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


def read_object_into(store: Store, path: str, offset: int, target: memoryview) -> None:
    """Fill `target` (bytes, writable) from `offset` of an object.

    Raises:
        StorageError: The object cannot be read.
    """
    if len(target) <= CHUNK_BYTES:
        store.read_into(path, offset, target)
        return
    for _ in read_in_chunks(store, path, offset, len(target), target):
        pass
