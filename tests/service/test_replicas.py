"""Several servers on one store: one is killed, frozen or cut off, and nothing is lost or done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from service_site import Served, serve
from support.orch_process import Orch, until
from support.postgres import PostgresServer, postgres_server

from orchestrator.store.read import open_reader_at
from orchestrator.store.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASK = "name: mine\nresources: {infra: 'local:1'}\nrun: echo once >> $HOME/../../ran; sleep 3\n"
LEASE = 30.0  # seconds until a killed or frozen engine's work is another's


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def orch(request: pytest.FixtureRequest, tmp_path: Path, server: PostgresServer) -> Orch:
    return Orch(tmp_path, {} if request.param == "sqlite" else {"ORCH_STORE": server.new_store()})


@dataclass(kw_only=True)
class Follower:
    """A client of the stream of events that goes to another server whenever its stream ends."""

    servers: Sequence[Served]
    cut_after: int = 0  # messages, at most, until it cuts the stream itself; 0 for never
    seen: list[int] = field(default_factory=list[int])
    streams: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def following(self) -> Generator[None]:
        thread = threading.Thread(target=self._follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(60)
        assert not thread.is_alive()

    def _follow(self) -> None:
        chance = random.Random(self.cut_after)  # a repeatable history
        while not self._over.is_set():
            try:
                self._read(chance.choice(self.servers), chance.randint(1, self.cut_after) if self.cut_after else 0)
            except (OSError, HTTPException):
                time.sleep(0.05)  # that server is deletion

    def _read(self, served: Served, most: int) -> None:
        last = {"last_event_id": str(self.seen[-1])} if self.seen else {}
        path = "/v1/events/stream?after=0"
        connection, answer = served.open(path, authorization=f"Bearer {served.token}", **last)
        connection.sock.settimeout(1.0)
        self.streams += 1
        try:
            taken = number = 0
            while not self._over.is_set() and (line := answer.readline().decode()):
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: "):
                    self.seen.append(number)
                    taken += 1
                    if taken == most:
                        return
        finally:
            connection.close()


def order(served: Served, body: dict[str, Any], key: str) -> str:
    """Order what the present plan shows, and return the order's address."""
    sent = {"content_type": "application/json", "idempotency_key": key}
    plan = served.ask("/v1/plans", method="POST", body=json.dumps(body).encode(), **sent).document
    full = json.dumps(body | {"plan": plan["plan"]}).encode()
    answer = served.ask("/v1/orders", method="POST", body=full, **sent)
    assert answer.status == 202, answer.text
    return answer.headers["location"]


def place(orch: Orch) -> str | Path:
    return orch.more.get("ORCH_STORE") or orch.state / "orch.db"


def written(orch: Orch) -> list[int]:
    with open_reader_at(place(orch)) as store:
        return [event.seq for event in store.events_after(0, 100_000)]


def wait_until_ended(served: Served, address: str, seconds: float) -> Any:
    def has_ended() -> bool:
        try:
            return bool(served.ask(address).document.get("state") == "ended")
        except (OSError, HTTPException):
            return False

    until("the order has ended", has_ended, seconds)
    return served.ask(address).document


def test_a_stream_that_is_cut_200_times_has_each_event_once(orch: Orch) -> None:
    with serve(orch) as first, serve(orch) as second:
        follower = Follower(servers=(first, second), cut_after=4)
        with follower.following(), Store(place(orch)) as store:
            for number in range(600):
                store.event("", "test", f"event {number}")
            numbers = written(orch)
            until("it has all", lambda: bool(follower.seen) and follower.seen[-1] >= numbers[-1], 120)
    assert follower.streams >= 200
    assert follower.seen == numbers


@pytest.mark.parametrize("struck", ["killed", "frozen"])
def test_an_order_is_carried_out_once_when_its_server_is(orch: Orch, struck: str) -> None:
    body = {"verb": "launch", "task": TASK, "cluster": "mine"}
    with serve(orch, page_only=False) as first, serve(orch, page_only=False) as second:
        follower = Follower(servers=(first, second))
        with follower.following():
            key = uuid.uuid4().hex
            address = order(first, body, key)
            if struck == "killed":
                first.process.kill()
            else:
                os.kill(first.process.pid, signal.SIGSTOP)
            assert order(second, body, key) == address, "the same request again is the same order"
            ended = wait_until_ended(second, address, LEASE + 60)
            assert (ended["status"], ended["member"]) == (0, second.ask("/v1/me").document["member"]), ended
            if struck == "frozen":
                os.kill(first.process.pid, signal.SIGCONT)

            def jobs() -> Any:
                return second.ask("/v1/runs").document["runs"]

            until("the run has ended", lambda: bool(jobs()) and jobs()[0]["state"] == "ended", LEASE + 90)
            assert [run["result"] for run in jobs()] == ["succeeded"], jobs()
            assert next(orch.state.rglob("ran")).read_text() == "once\n"
            deletion = order(second, {"verb": "down", "cluster": "mine"}, uuid.uuid4().hex)
            assert wait_until_ended(second, deletion, 90)["status"] == 0
            numbers = written(orch)
            until("the client has all", lambda: follower.seen[-1:] >= numbers[-1:], 30)
        assert follower.seen[: len(numbers)] == numbers


def test_servers_continue_when_the_database_was_away(tmp_path: Path) -> None:
    with postgres_server() as server:
        orch = Orch(tmp_path, {"ORCH_STORE": server.new_store()})
        with serve(orch, page_only=False) as served:
            follower = Follower(servers=(served,))
            with follower.following():
                address = order(served, {"verb": "launch", "task": TASK, "cluster": "mine"}, uuid.uuid4().hex)
                server.stop(orderly=True)
                assert served.ask("/healthz").status == 200
                away = served.ask("/v1/runs")
                assert away.status == 503 and away.document["next_step"], away.text
                assert served.ask("/readyz").status == 503
                time.sleep(5)
                server.start()
                assert wait_until_ended(served, address, 90)["status"] == 0
                deletion = order(served, {"verb": "down", "cluster": "mine"}, uuid.uuid4().hex)
                assert wait_until_ended(served, deletion, 90)["status"] == 0
                numbers = written(orch)
                until("the client has all", lambda: follower.seen[-1:] >= numbers[-1:], 30)
            assert follower.seen == numbers
            assert served.process.poll() is None
