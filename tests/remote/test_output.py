"""Lines of many hosts on one stream."""

from __future__ import annotations

import io
import random
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.hosts import HostAddress
from orchestrator.remote.output import LinePrinter


def host(rank: int) -> HostAddress:
    return HostAddress(
        rank=rank,
        alias=f"h{rank}",
        host="h",
        port=22,
        user="me",
        identity_file=Path("k"),
        known_hosts=Path("kh"),
        internal_ip=f"10.0.0.{rank}",
    )


def test_every_line_carries_its_hosts_name() -> None:
    stream = io.BytesIO()
    printer = LinePrinter(stream)
    printer(host(0), b"a\nb")
    printer(host(2), b"c\n")
    printer(host(0), b"b\n\n")
    printer.close()
    assert stream.getvalue() == (
        b"(head, rank=0, 10.0.0.0) a\n(worker2, rank=2, 10.0.0.2) c\n"
        b"(head, rank=0, 10.0.0.0) bb\n(head, rank=0, 10.0.0.0) \n"
    )


def test_the_last_line_without_an_end_is_written_when_all_is_over() -> None:
    stream = io.BytesIO()
    printer = LinePrinter(stream)
    printer(host(1), b"no end")
    assert stream.getvalue() == b""
    printer.close()
    printer.close()
    assert stream.getvalue() == b"(worker1, rank=1, 10.0.0.1) no end\n"


def test_without_prefix_the_bytes_are_the_hosts_own() -> None:
    stream = io.BytesIO()
    printer = LinePrinter(stream, prefix=False)
    printer(host(1), b"one\ntw")
    printer(host(1), b"o\n")
    printer.close()
    assert stream.getvalue() == b"one\ntwo\n"


def test_a_line_that_never_ends_is_seen_all_the_same() -> None:
    stream = io.BytesIO()
    printer = LinePrinter(stream, prefix=False)
    for _ in range(5):
        printer(host(0), b"x" * 300_000)
    assert len(stream.getvalue()) > 1_000_000


@given(st.lists(st.binary(max_size=20), max_size=30))
def test_however_it_is_cut_into_blocks_the_lines_come_out_complete(blocks: list[bytes]) -> None:
    stream = io.BytesIO()
    printer = LinePrinter(stream)
    for block in blocks:
        printer(host(3), block)
    printer.close()
    whole = b"".join(blocks)
    lines = whole.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    assert stream.getvalue() == b"".join(b"(worker3, rank=3, 10.0.0.3) " + line + b"\n" for line in lines)


def test_lines_of_many_threads_are_never_mixed() -> None:
    stream = io.BytesIO()
    printer = LinePrinter(stream)

    def speak(rank: int) -> None:
        whole = b"".join(b"%d:%d %s\n" % (rank, number, b"y" * (number % 50)) for number in range(2000))
        at = 0
        dice = random.Random(rank)
        while at < len(whole):
            size = dice.randrange(1, 700)
            printer(host(rank), whole[at : at + size])
            at += size

    threads = [threading.Thread(target=speak, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    printer.close()
    for rank in range(8):
        mine = [line for line in stream.getvalue().split(b"\n") if f"rank={rank}," in line.decode()]
        assert [int(line.split(b":")[1].split()[0]) for line in mine] == list(range(2000))
