"""No member and no network keeps the others out: connections, streams and threads are shared out."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Generator, Iterator

import anyio
import pytest
from support.orch_process import Orch
from support.service_site import Served, serve

from orchestrator.service.connections import OF_NETWORK, choose_connection_limit
from orchestrator.service.event_stream import MOST_OF_MEMBER
from orchestrator.service.planners import MemberShares

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(Orch(tmp_path_factory.mktemp("shares"))) as served:
        yield served


def open_many(site: Served, count: int, head: str, *, source: str = "127.0.0.2") -> list[socket.socket]:
    """Open connections from an address of this computer, and begin a request on each."""
    opened: list[socket.socket] = []
    for _ in range(count):
        opened.append(socket.create_connection(("127.0.0.1", site.port), timeout=30, source_address=(source, 0)))
        with contextlib.suppress(OSError):  # it was refused
            opened[-1].sendall(head.encode())
    return opened


@contextlib.contextmanager
def closing(opened: list[socket.socket]) -> Generator[None]:
    try:
        yield
    finally:
        for one in opened:
            one.close()


def test_one_network_has_a_part_of_the_connections(site: Served) -> None:
    most = choose_connection_limit()
    with closing(open_many(site, most, "GET / HTTP/1.1\r\n")):
        assert site.ask("/v1/clusters").status == 200
        refused = open_many(site, 1, "GET /healthz HTTP/1.1\r\n")
        with closing(refused), contextlib.suppress(ConnectionError):
            assert refused[0].recv(1) == b"", "its network has no more"
    deadline = time.monotonic() + 30
    head = f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n\r\n"
    while time.monotonic() < deadline:
        again = open_many(site, 1, head)
        with closing(again), contextlib.suppress(ConnectionError):
            if again[0].recv(8) == b"HTTP/1.1":
                break
    else:
        raise AssertionError(f"{most // OF_NETWORK} connections were closed, and still count")


def test_one_member_has_a_part_of_the_streams(site: Served) -> None:
    tokens = {name: site.orch.ok("token", "create", name, "--member", name).split()[0] for name in ("ann", "bob")}
    of_bob = f"GET /v1/events/stream HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n"
    of_bob += f"Authorization: Bearer {tokens['bob']}\r\n\r\n"
    streams = open_many(site, MOST_OF_MEMBER, of_bob)
    with closing(streams):
        assert {stream.recv(12) for stream in streams} == {b"HTTP/1.1 200"}
        answer = site.ask("/v1/events/stream", authorization=f"Bearer {tokens['bob']}")
        assert (answer.status, answer.document["code"], answer.headers["retry-after"]) == (503, "streams-busy", "1")
        connection, response = site.open("/v1/events/stream", authorization=f"Bearer {tokens['ann']}")
        assert response.status == 200
        connection.close()


def test_a_member_who_sends_many_requests_waits_for_own_ones() -> None:
    shares, at_work, order = MemberShares(most=2), threading.Semaphore(0), list[str]()

    async def answer(member: str, pool: anyio.CapacityLimiter) -> None:
        async with shares.of(member):
            await anyio.to_thread.run_sync(work, member, limiter=pool)

    def work(member: str) -> None:
        if member == "bob":
            at_work.acquire()
        order.append(member)

    async def main() -> None:
        pool = anyio.CapacityLimiter(4)
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(answer, "bob", pool)
            await anyio.sleep(0.05)
            with anyio.fail_after(20):
                await answer("ann", pool)
            at_work.release(50)

    anyio.run(main)
    assert order[0] == "ann" and order.count("bob") == 50
