"""A store around another one, for tests that change some of its requests."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from trainer.checkpoint.store import Buffer, ObjectEntry, Store, StoredObject, Version


class WrappedStore(Store):
    """Passes every request on."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner.uri, retry_seconds=inner.retry_seconds)
        self._inner = inner

    @property
    def in_trouble(self) -> bool:
        return self._inner.in_trouble

    def limit_retries(self, seconds: float) -> Store:
        limited = copy.copy(self)
        limited._inner = self._inner.limit_retries(seconds)
        return limited

    def find(self, path: str) -> StoredObject | None:
        return self._inner.find(path)

    def put(self, path: str, data: Buffer) -> None:
        self._inner.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        return self._inner.create(path, data)

    def replace_if_unchanged(self, path: str, data: bytes, expected: Version | None) -> bool:
        return self._inner.replace_if_unchanged(path, data, expected)

    def list_objects(self, prefix: str, *, most: int | None = None) -> list[ObjectEntry]:
        return self._inner.list_objects(prefix, most=most)

    def list_folders(self) -> list[str]:
        return self._inner.list_folders()

    def read_ranges(self, path: str, offsets: Sequence[int], counts: Sequence[int]) -> list[bytes]:
        return self._inner.read_ranges(path, offsets, counts)

    def read_into(self, path: str, offset: int, target: memoryview) -> None:
        self._inner.read_into(path, offset, target)

    def delete(self, paths: Sequence[str]) -> None:
        self._inner.delete(paths)

    def remove_leftovers(self, folder: str) -> None:
        self._inner.remove_leftovers(folder)
