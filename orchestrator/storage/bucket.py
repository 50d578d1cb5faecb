"""A bucket: the one interface to gs://, s3:// and file:// storage, with the same guarantees on all three.

Writes are atomic, `put_if_absent` and `replace_if` have exactly one winner, names may hold any printable character,
and every failure is an OrchError with the next step.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.cloud_access import CloudAccess, read_cloud_access
from orchestrator.errors import StorageError
from orchestrator.received_files import ReceivingFolder
from orchestrator.storage.address import Address, check_key
from orchestrator.storage.faults import translate_disk_errors
from orchestrator.storage.objects import Backend, Listing, ObjectInfo, OnBytes, Version, ignore_bytes
from orchestrator.storage.source import SourceFile

PROBE = ".orch-write-test"
"""The object that `check_access(write=True)` writes and deletes."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A folder of a bucket. Paths are relative to it, use `/`, and never begin or end with one.

    Every method may raise NotFoundError (no such bucket), AccessError (no or refused credentials), StorageError
    (unreachable, full, broken) and, for a path that cannot be a name, UserError.
    """

    address: Address
    backend: Backend

    @classmethod
    def open(cls, uri: str, access: CloudAccess | None = None) -> Bucket:
        """Open `gs://…`, `s3://…` or `file:///…`; `access` is read from the environment by default.

        Sends nothing; `check_access` does. Raises UserError for a malformed URI.
        """
        address = Address.parse(uri)
        if address.scheme == "file":
            from orchestrator.storage.folder import FolderBackend

            return cls(address, FolderBackend(Path(address.container)))
        from orchestrator.storage.connect import connect_bucket

        return cls(address, connect_bucket(address, access or read_cloud_access(os.environ)))

    @property
    def uri(self) -> str:
        """The address as a URI."""
        return self.address.uri

    def uri_of(self, path: str) -> str:
        """Return the URI of an object or folder."""
        return f"{self.uri.rstrip('/')}/{path}" if path else self.uri

    def check_access(self, *, write: bool = False) -> None:
        """Verify that the bucket exists and may be listed, and with `write` that objects may be written and deleted.

        The folder of a file: bucket is made by a write. Raises as every method does.
        """
        if write:
            key = self.address.full_key(PROBE)
            self.backend.put(key, b"")
            self.backend.delete([key])
        self.backend.probe(self.address.prefix)

    def head(self, path: str) -> ObjectInfo | None:
        """Return the object's size, time and version, or None if there is none."""
        found = self.backend.head(self._key(path))
        return None if found is None else self._relative(found)

    def exists(self, path: str) -> bool:
        """Return whether there is such an object."""
        return self.head(path) is not None

    def get(self, path: str) -> bytes:
        """Return the complete content. Raises NotFoundError if there is no such object."""
        return self.backend.get(self._key(path))

    def get_bounded(self, path: str, most: int) -> bytes:
        """Return the complete content of an object of at most `most` bytes, and read no more than that of any other.

        Raises StorageError if it is larger, NotFoundError if there is no such object.
        """
        found = bytearray()
        with self.backend.download(self._key(path)) as download:
            if download.info.size <= most:
                for chunk in download.chunks:
                    found += chunk
                    if len(found) > most:
                        break
            if max(download.info.size, len(found)) > most:
                why = f"it has more than the {most:,} bytes that orch reads of such a file"
                step = f"is it what orch wrote? orch storage ls -r {self.uri}"
                raise StorageError(f"{self.uri_of(path)} is not read", why, step)
        return bytes(found)

    def read_chunks(self, path: str) -> Iterator[bytes]:
        """Yield the content in order, about a MiB at a time. Raises NotFoundError if there is no such object."""
        with self.backend.download(self._key(path)) as download:
            yield from download.chunks

    def put(self, path: str, data: bytes) -> Version:
        """Write an object, replacing any earlier one."""
        return self.backend.put(self._key(path), data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write if there is no such object. Return True when this call made it; exactly one of many callers gets True.

        `data` should be unique, for example by owner and time: when an answer is lost, the result is whether the
        object holds exactly these bytes.
        """
        return self.backend.create(self._key(path), data)

    def replace_if(self, path: str, data: bytes, expected: Version) -> bool:
        """Write if the object still has the `expected` version. Return True when this call wrote; see put_if_absent."""
        return self.backend.replace(self._key(path), data, expected)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield every object below a folder in byte order of their paths. An unknown folder is empty.

        On Cloud Storage the versions carry no generation (its listing has none); replace_if reads it.
        """
        for info in self.backend.list(self._folder(prefix)):
            yield self._relative(info)

    def list_dir(self, prefix: str = "") -> Listing:
        """Return the folders and objects directly in a folder."""
        found = self.backend.list_dir(self._folder(prefix))
        folders = tuple(self._strip(folder) for folder in found.folders)
        return Listing(folders, tuple(self._relative(info) for info in found.objects))

    def delete(self, path: str) -> None:
        """Delete one object; a missing one is no error."""
        self.backend.delete([self._key(path)])

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete many objects, in batches where the cloud supports them."""
        self.backend.delete([self._key(path) for path in paths])

    def sha256(self, path: str) -> str:
        """Return the object's SHA-256 in hex as `upload_file` stored it, "" if another program wrote the object.

        A file: bucket computes it from the content.
        """
        return self.backend.sha256(self._key(path))

    def upload_file(self, source: Path, path: str, on_bytes: OnBytes = ignore_bytes) -> None:
        """Upload a local file as a stream (about 32 MiB of memory), with its SHA-256 beside it.

        Raises StorageError if the file changes while it is read; then the object is unchanged.
        """
        self.backend.upload(self._key(path), SourceFile.measure(source), on_bytes)

    def download_file(self, path: str, target: Path, on_bytes: OnBytes = ignore_bytes) -> ObjectInfo:
        """Download an object to a file that the user named; see `download_into`."""
        with translate_disk_errors(f"write {target}"):
            folder = ReceivingFolder(target.parent)
        with folder:
            return self.download_into(folder, target.name, path, on_bytes)

    def download_into(
        self, folder: ReceivingFolder, name: str, path: str, on_bytes: OnBytes = ignore_bytes
    ) -> ObjectInfo:
        """Download an object as a stream to the file `name` in the folder, completely or not at all.

        Size and, where one was stored, SHA-256 are compared. The file takes the object's time.
        Raises NotFoundError if there is no such object, StorageError if the content is damaged, RefusedEntryError if
        the folder does not accept the name.
        """
        digest, size = hashlib.sha256(), 0
        with self.backend.download(self._key(path)) as download:
            modified = download.info.modified.timestamp()
            # the chunks translate their own failures, so an OSError here is one of the local disk
            with (
                translate_disk_errors(f"write {folder.folder / name}"),
                folder.write_file(name, modified=modified, flush=True) as write,
            ):
                for chunk in download.chunks:
                    write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                    on_bytes(len(chunk))
                _verify(self.uri_of(path), download.info.size, download.sha256, size, digest.hexdigest())
            return self._relative(download.info)

    def _key(self, path: str) -> str:
        return check_key(self.address.full_key(check_key(path)))

    def _folder(self, prefix: str) -> str:
        prefix = prefix.strip("/")
        return self.address.full_key(check_key(prefix)) if prefix else self.address.prefix

    def _strip(self, key: str) -> str:
        return key[len(self.address.prefix) + 1 :] if self.address.prefix else key

    def _relative(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, path=self._strip(info.path)) if self.address.prefix else info


def _verify(uri: str, size: int, sha256: str, got_size: int, got_sha256: str) -> None:
    if got_size != size:
        why = f"{got_size} of {size} bytes arrived"
    elif sha256 and got_sha256 != sha256:
        why = f"its SHA-256 is {got_sha256[:16]}…, stored was {sha256[:16]}…"
    else:
        return
    raise StorageError(f"{uri} is damaged", why, "copy it again; if that fails too, upload it again")
