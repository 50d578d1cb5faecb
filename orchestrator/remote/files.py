"""Small files sent to the hosts over standard input, secrets among them, and files and folders copied from them."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, TypeAlias

from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.received_files import ReceivingFolder, ReceivingLimits
from orchestrator.remote.archive import unpack_archive
from orchestrator.remote.deadlines import SHORT, TRANSFER_SECONDS, Stall
from orchestrator.remote.failures import describe_error
from orchestrator.remote.fleet import Fleet, FleetResult, HostCall, HostResult
from orchestrator.remote.scripts import shell_command

Content: TypeAlias = "bytes | Callable[[HostAddress], bytes]"
_MEASURE = 300.0  # seconds for the size of a folder with very many files
_MAX_OTHERS = 1 << 18  # bytes that a login shell may print before the archive, and by which tar fills its last block


def put_files(
    fleet: Fleet, files: Mapping[str, Content], mode: int = 0o600, *, ranks: Sequence[int] | None = None
) -> FleetResult:
    """Write `files` (path to content) on the hosts, each by rename; the mode is set before the content.

    A path that is relative or begins with ~/ is below the home directory. Missing folders are made.
    """
    chosen = fleet.hosts if ranks is None else [host for host in fleet.hosts if host.rank in set(ranks)]
    contents = {
        host: [content if isinstance(content, bytes) else content(host) for content in files.values()]
        for host in chosen
    }

    def command(host: HostAddress) -> str:
        sizes = [str(len(content)) for content in contents[host]]
        pairs = [part for pair in zip(files, sizes, strict=True) for part in pair]
        return shell_command("put.sh", f"{mode:o}", *pairs)

    return fleet.run(command, ranks=ranks, stdin=lambda host: b"".join(contents[host]), timeout=Stall(SHORT))


def fetch_tree(
    fleet: Fleet,
    path: str,
    into: Callable[[HostAddress], Path],
    *,
    ranks: Sequence[int] | None = None,
    limits: ReceivingLimits | None = None,
    skip_link: Callable[[HostAddress, str], None] | None = None,
) -> FleetResult:
    """Copy a file or folder of each host into the folder `into(host)`, under its own name, as it streams in.

    Args:
        fleet: The hosts.
        path: On the hosts; relative to the home directory, or absolute.
        into: The folder of each host.
        ranks: The hosts to copy from; None for all.
        limits: What each host may send.
        skip_link: Called with each symbolic link instead of making it; None makes those that stay inside the folder.
    """

    def download(call: HostCall) -> HostResult:
        skip = None if skip_link is None else partial(skip_link, call.host)
        with ReceivingFolder(into(call.host), limits) as folder:
            return _Download(call, path, folder, skip).run()

    return fleet.each(download, ranks=ranks)


def measure_tree(fleet: Fleet, path: str) -> tuple[FleetResult, int | None]:
    """Return the bytes of a file or folder on all hosts together; None where one of them does not say it.

    Args:
        fleet: The hosts.
        path: As for fetch_tree.
    """
    result = fleet.run(shell_command("measure.sh", path), keep=4096, timeout=_MEASURE)
    sizes = [(one.output.split() or [b""])[-1] for one in result.hosts]
    known = result.ok and all(size.isdigit() for size in sizes)
    return result, sum(map(int, sizes)) if known else None


class _OverError(Exception):
    """The rest of what one host sends is not needed."""


class _Download:
    """One download: tar runs on the host, and a second thread unpacks here through a pipe."""

    def __init__(
        self, call: HostCall, path: str, folder: ReceivingFolder, skip_link: Callable[[str], None] | None
    ) -> None:
        self._call, self._path, self._folder, self._skip_link = call, path, folder, skip_link
        self._mark = f"\n{secrets.token_hex(16)}\n".encode()
        self._head: bytes | None = b""
        self._error: Exception | None = None
        self._is_unpacked = False
        self._others = 0  # bytes before and after the archive
        self._began = time.monotonic()

    def run(self) -> HostResult:
        try:
            return self._receive()
        except _OverError as over:
            host, seconds = self._call.host, time.monotonic() - self._began
            outcome = HostOutcome(
                rank=host.rank, host=host.host, exit_code=1, seconds=seconds, last_line=str(over)
            )  # fmt: skip
            return HostResult(outcome, b"")

    def _receive(self) -> HostResult:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as source:
            unpacker = threading.Thread(target=self._unpack, args=(source,), daemon=True)
            unpacker.start()
            try:
                with os.fdopen(writing, "wb") as sink:
                    mark = self._mark.strip().decode("ascii")
                    command = shell_command("fetch.sh", mark, self._path)
                    result = self._call.run(
                        command,
                        keep=4096,
                        on_output=lambda block: self._take(block, sink),
                        timeout=Stall(TRANSFER_SECONDS),
                    )
            finally:
                unpacker.join()
        if result.outcome.ok and self._error is not None:
            failed = replace(result.outcome, exit_code=1, last_line=describe_error(self._error))
            return HostResult(failed, b"")
        return HostResult(replace(result.outcome, last_line=""), b"") if result.outcome.ok else result

    def _take(self, block: bytes, sink: IO[bytes]) -> None:
        if self._head is None:
            self._forward(block, sink)
            return
        self._head += block
        _, found, rest = self._head.partition(self._mark)
        if found:
            self._head = None
            self._forward(rest, sink)
        else:
            self._count_others(block)
            self._head = self._head[-len(self._mark) :]

    def _forward(self, block: bytes, sink: IO[bytes]) -> None:
        if self._error is not None:
            raise _OverError(describe_error(self._error))
        if self._is_unpacked:
            self._count_others(block)
        sink.write(block)

    def _count_others(self, block: bytes) -> None:
        self._others += len(block)
        if self._others > _MAX_OTHERS:
            raise _OverError("the host sent something else than the files")

    def _unpack(self, source: IO[bytes]) -> None:
        try:
            unpack_archive(source, self._folder, top_name(self._path), self._skip_link)
            self._is_unpacked = True
        except Exception as error:  # any error fails this host; a silent end would block the writer
            self._error = error
        while source.read(1 << 16):
            pass  # the bytes after the archive or an error: they must not block the writer


def top_name(path: str) -> str:
    """Return the name under which a host sends this path, "" when only the host knows it."""
    name = path.rstrip("/").rpartition("/")[2]
    return "" if name in ("", ".", "..", "~") else name
