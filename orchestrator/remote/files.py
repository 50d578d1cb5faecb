"""Small files sent to the hosts over standard input, secrets among them, and files and folders fetched from them."""

from __future__ import annotations

import io
import os
import secrets
import tarfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TypeAlias

from orchestrator.hosts import HostAddress, HostOutcome
from orchestrator.remote.failures import describe_error
from orchestrator.remote.fleet import Fleet, FleetResult, HostCall, HostResult
from orchestrator.remote.scripts import shell_command
from orchestrator.remote.unpack import unpack_archive

Content: TypeAlias = "bytes | Callable[[HostAddress], bytes]"
_ALL = 1 << 31
_MAX_GREETING = 1 << 16  # bytes that a login shell may print before the archive


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file of many hosts: contents by rank; result.failed has the hosts without it, with their messages."""

    result: FleetResult
    contents: Mapping[int, bytes]


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

    return fleet.run(command, ranks=ranks, stdin=lambda host: b"".join(contents[host]))


def fetch_file(fleet: Fleet, path: str, *, ranks: Sequence[int] | None = None) -> Fetched:
    """Return the content of one small file of each host, in memory; `fetch_tree` is for large ones and folders."""
    mark = secrets.token_hex(16)
    result = fleet.run(shell_command("fetch.sh", mark, path), ranks=ranks, keep=_ALL)
    contents: dict[int, bytes] = {}
    hosts: list[HostResult] = []
    for host in result.hosts:
        found = _single_file(host.output.partition(f"\n{mark}\n".encode())[2]) if host.outcome.ok else None
        if found is not None:
            contents[host.outcome.rank] = found
            hosts.append(HostResult(replace(host.outcome, last_line=""), b""))
        elif host.outcome.ok:
            why = replace(host.outcome, exit_code=1, last_line=f"{path} is not a regular file")
            hosts.append(HostResult(why, b""))
        else:
            hosts.append(host)
    return Fetched(_failing(tuple(hosts), result.first_failure), contents)


def fetch_tree(
    fleet: Fleet, path: str, into: Callable[[HostAddress], Path], *, ranks: Sequence[int] | None = None
) -> FleetResult:
    """Copy a file or folder of each host into the folder `into(host)`, under its own name, as it streams in.

    Names that would leave that folder are refused.
    """
    return fleet.each(lambda call: _Download(call, path, into(call.host)).run(), ranks=ranks)


class _Download:
    """One download: tar runs on the host, and a second thread unpacks here through a pipe."""

    def __init__(self, call: HostCall, path: str, folder: Path) -> None:
        self._call, self._path, self._folder = call, path, folder
        self._mark = f"\n{secrets.token_hex(16)}\n".encode()
        self._head: bytes | None = b""
        self._error: Exception | None = None

    def run(self) -> HostResult:
        self._folder.mkdir(parents=True, exist_ok=True)
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as source:
            unpacker = threading.Thread(target=self._unpack, args=(source,), daemon=True)
            unpacker.start()
            with os.fdopen(writing, "wb") as sink:
                mark = self._mark.strip().decode("ascii")
                command = shell_command("fetch.sh", mark, self._path)
                result = self._call.run(command, keep=4096, on_output=lambda block: self._take(block, sink))
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
            self._head = self._head[-_MAX_GREETING:]

    def _forward(self, block: bytes, sink: IO[bytes]) -> None:
        if self._error is None:  # after a local error the rest is read and dropped
            sink.write(block)

    def _unpack(self, source: IO[bytes]) -> None:
        try:
            with tarfile.open(fileobj=source, mode="r|") as archive:
                unpack_archive(archive, self._folder)
        except Exception as error:  # any error fails this host; a silent end would block the writer
            self._error = error
        while source.read(1 << 16):
            pass  # the bytes after the archive or an error: they must not block the writer


def _single_file(archive: bytes) -> bytes | None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as members:
        member = members.next()
        content = members.extractfile(member) if member is not None and member.isreg() else None
        return None if content is None else content.read()


def _failing(hosts: tuple[HostResult, ...], first: HostOutcome | None) -> FleetResult:
    failed = [host.outcome for host in hosts if not host.outcome.ok]
    return FleetResult(hosts, first or (failed[0] if failed else None))
