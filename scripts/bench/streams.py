"""The clients of `service.py`: many readers of the event stream in one process, and a writer that makes changes.

The readers wait with epoll and keep the bytes of an answer only until a message is complete. Of every stream the
numbers of the events are checked: each comes once and in order. Of every hundredth stream each message is parsed.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import resource
import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

_NUMBER = b"\nid: "
_END = b"\n\n\r\n"  # of the last message in a chunk
_MESSAGE = re.compile(rb"\nid: (\d+)\ndata: (.*)\n(?=\n)")
_BEGUN_TOGETHER = 50  # connections: fewer than the server's backlog, or the system waits a second before it tries again
_WAIT_SECONDS = 20.0  # for the last event
_SAMPLED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What the readers saw.

    Attributes:
        latest: When the last stream had each event, in epoch seconds, by the event's number.
        incomplete: Streams that missed an event, had one twice, or lacked the newest.
        cpu: Seconds of a processor that reading took.
    """

    latest: dict[int, float]
    incomplete: int
    cpu: float


@dataclass(slots=True)
class Stream:
    """One reader."""

    sampled: bool
    last: int | None = None  # the newest event; None before the first message
    left: bytes = b""
    is_broken: bool = False

    def take(self, block: bytes) -> tuple[int, int] | None:
        """Read on; return the number before the new events and the newest one's, or None without an event."""
        whole = self.left + block if self.left else block
        if not whole.endswith(_END):
            self.left = whole
            return None
        self.left = b""
        at = whole.rfind(_NUMBER)
        if at < 0:
            return None
        newest = int(whole[at + len(_NUMBER) : whole.index(b"\n", at + 1)])
        before, self.last = self.last, newest
        if before is None:  # the number from which on the stream sends events
            return None
        self.is_broken |= whole.count(_NUMBER) != newest - before
        if self.sampled:
            numbers = [int(one[1]) for one in _MESSAGE.finditer(whole) if json.loads(one[2])["seq"] == int(one[1])]
            self.is_broken |= numbers != list(range(before + 1, newest + 1))
        return before, newest


@dataclass(slots=True)
class _Readers:
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    streams: list[Stream] = field(default_factory=list[Stream])
    marks: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])

    def begin(self, port: int, tokens: Sequence[str], count: int) -> None:
        """Open the streams; each member has a network, since a service shares its connections out among them."""
        lines = ("GET /v1/events/stream HTTP/1.1", f"Host: 127.0.0.1:{port}")
        while len(self.streams) < count:
            for _ in range(min(_BEGUN_TOGETHER, count - len(self.streams))):
                member = len(self.streams) % len(tokens)
                connection = socket.create_connection(("127.0.0.1", port), None, (f"127.0.1.{member + 1}", 0))
                connection.sendall("\r\n".join((*lines, f"Authorization: Bearer {tokens[member]}", "", "")).encode())
                stream = Stream(sampled=len(self.streams) % _SAMPLED == 0)
                self.streams.append(stream)
                self.selector.register(connection, selectors.EVENT_READ, stream)
            while any(one.last is None for one in self.streams):
                self.read()

    def read(self) -> None:
        for key, _ in self.selector.select(0.1):
            connection, stream = cast(socket.socket, key.fileobj), cast(Stream, key.data)
            block = connection.recv(1 << 18)
            if not block:
                raise ConnectionError("the server closed a stream")
            if (found := stream.take(block)) is not None:
                self.marks.append((time.time(), *found))

    def count_incomplete(self, number: int) -> int:
        """Return how many streams have not this event, or not all before it."""
        return sum(one.is_broken or one.last != number for one in self.streams)


def _read_streams(port: int, tokens: Sequence[str], count: int, pipe: Connection) -> None:
    readers = _Readers()
    readers.begin(port, tokens, count)
    before = time.process_time()
    pipe.send("ready")
    while not pipe.poll():
        readers.read()
    newest, end = pipe.recv(), time.monotonic() + _WAIT_SECONDS
    while readers.count_incomplete(newest) and time.monotonic() < end:
        readers.read()
    cpu = time.process_time() - before
    latest = {number: at for at, begin, last in readers.marks for number in range(begin + 1, last + 1)}
    pipe.send(Arrivals(latest=latest, incomplete=readers.count_incomplete(newest), cpu=cpu))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """What was measured while the streams were read.

    Attributes:
        changes: How many were made.
        rate: Changes a second.
        delays: From each commit until the last stream had its event, in seconds, in order.
        memory: Of the server, in MiB, at the end.
        server, readers, writer: Share of a processor that each took.
    """

    changes: int
    rate: float
    delays: list[float]
    memory: float
    server: float
    readers: float
    writer: float


def measure_streams(
    port: int, tokens: Sequence[str], server: int, database: Path, *, streams: int, seconds: float, rate: int
) -> StreamFigures:
    """Read streams while changes are made in a fixed rhythm. Raises AssertionError where a stream lacks an event."""
    _allow_files(streams + 100)
    here, there = multiprocessing.Pipe()
    readers = multiprocessing.get_context("fork").Process(target=_read_streams, args=(port, tokens, streams, there))
    readers.start()
    try:
        there.close()  # so that the end of the readers is noticed
        assert here.recv() == "ready"
        before = read_cpu(server)
        made, took, writer = make_changes(database, round(rate * seconds), rate)
        here.send(max(made))
        arrived: Arrivals = here.recv()
        spent = read_cpu(server) - before
        memory = read_memory(server)
    finally:
        readers.terminate()
        readers.join()
    assert not arrived.incomplete, f"{arrived.incomplete} of {streams} streams did not have every event once, in order"
    delays = sorted(arrived.latest[number] - at for number, at in made.items())
    return StreamFigures(
        changes=len(made), rate=len(made) / max(took, seconds), delays=delays, memory=memory, server=spent / took,
        readers=arrived.cpu / took, writer=writer / took,
    )  # fmt: skip


def make_changes(database: Path, count: int, rate: int) -> tuple[dict[int, float], float, float]:
    """Change the store, each time when it is due, and immediately where that has passed.

    Returns:
        When each event was committed, in epoch seconds, by its number; how long it took; and seconds of a processor.
    """
    with Store(database) as store, open_reader_at(database) as reader:
        cluster, first = store.clusters()[0], reader.head().seq + 1
        desired = "stopped" if cluster.desired_state == "up" else "up"
        made: dict[int, float] = {}
        begun, cpu = time.monotonic(), time.process_time()
        for number in range(count):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            store.set_desired_state(cluster, desired)
            made[first + number] = time.time()
            desired = "stopped" if desired == "up" else "up"
        took, cpu = time.monotonic() - begun, time.process_time() - cpu
        assert reader.head().seq == first + count - 1, "a change is not one event"
    return made, took, cpu


def read_cpu(process: int) -> float:
    """Return the seconds of a processor that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100  # USER_HZ of Linux


def read_memory(process: int) -> float:
    """Return the memory of a process, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else min(hard, count), hard)
        )
