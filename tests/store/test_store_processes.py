"""P7: several processes on one store never do a step twice; a holder that slept too long is refused at its write."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_store_audit import audit_of

from orchestrator.store.leases import Holder, Lease
from orchestrator.store.location import Location
from orchestrator.store.replay import verify_chain
from orchestrator.store.store import Store

pytestmark = [pytest.mark.promise("P7")]
WORKER = Path(__file__).with_name("store_worker.py")


@contextmanager
def workers(
    location: Location, count: int, steps: int, done: Path, lease_seconds: float
) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, str(WORKER), str(location), str(steps), str(done), str(lease_seconds)]
    started = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_no_step_is_done_twice_by_several_processes(location: Location, tmp_path: Path) -> None:
    done = tmp_path / "done"
    with Store(location) as store:
        store.open_pipeline("p", (), uid="p")
    with workers(location, 4, 40, done, 5.0) as running:
        for process in running:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    steps = [line.split() for line in done.read_text().splitlines()]
    assert [int(step) for step, _ in steps] == list(range(1, 41))  # each once, and in order
    events, head = audit_of(location)
    assert verify_chain(events, head) is None


def test_no_step_is_done_twice_when_holders_are_killed(location: Location, tmp_path: Path) -> None:
    """A killed holder is replaced immediately; a step it had begun but not recorded may be repeated, by its number."""
    done = tmp_path / "done"
    with Store(location) as store:
        store.open_pipeline("p", (), uid="p")
        with workers(location, 4, 40, done, 30.0) as running:
            for process in running[:3]:
                before = store.pipeline("p").stage
                _wait(lambda before=before: store.pipeline("p").stage > before + 2)
                process.send_signal(signal.SIGKILL)
            _, errors = running[3].communicate(timeout=120)
            assert running[3].returncode == 0, errors
        assert store.pipeline("p").stage == 40
    begun = Counter(int(line.split()[0]) for line in done.read_text().splitlines())
    assert set(begun) == set(range(1, 41))
    assert sum(begun.values()) <= 40 + 3  # only the step that a kill cut off
    events, head = audit_of(location)
    assert verify_chain(events, head) is None


def test_a_holder_that_was_stopped_for_longer_than_its_lease_is_refused(location: Location, tmp_path: Path) -> None:
    done = tmp_path / "done"
    with Store(location, lease_seconds=1.0) as store:
        store.open_pipeline("p", (), uid="p")
        with workers(location, 1, 10_000, done, 1.0) as (sleeper,):
            assert sleeper.stdout is not None
            assert sleeper.stdout.readline().strip() == "holds"
            _wait(lambda: store.pipeline("p").stage > 2)
            _stop_outside_a_transaction(sleeper, location)
            lease = _take(store)
            stage = store.pipeline("p").stage
            store.advance_pipeline("p", stage + 1000, lease=lease)
            sleeper.send_signal(signal.SIGCONT)
            output, _ = sleeper.communicate(timeout=60)
            assert sleeper.returncode == 6
            assert "another orch took over cluster:c" in output
            assert store.pipeline("p").stage == stage + 1000


def test_a_holder_that_renews_keeps_its_lease_for_longer_than_it_lasts(location: Location, tmp_path: Path) -> None:
    # Beside other work a renewal may be late by a second.
    with Store(location, lease_seconds=2.0) as store:
        store.open_pipeline("p", (), uid="p")
        with workers(location, 1, 10_000, tmp_path / "done", 2.0) as (holder,):
            assert holder.stdout is not None
            assert holder.stdout.readline().strip() == "holds"
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                assert isinstance(store.acquire("cluster:c", "test"), Holder)
                time.sleep(0.1)


def _stop_outside_a_transaction(process: subprocess.Popen[str], location: Location) -> None:
    """SIGSTOP; inside a transaction it would keep everybody out, so such a stop is taken back and tried again."""
    for _ in range(50):
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        if _free(location):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.05)
    raise AssertionError("never stopped outside a transaction")


def _free(location: Location) -> bool:
    """No process is inside a writing transaction."""
    if isinstance(location, Path):
        raw = sqlite3.connect(location, timeout=0.1, isolation_level=None)
        try:
            raw.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        finally:
            raw.close()
        return True
    import psycopg

    with psycopg.connect(location) as server:
        try:
            server.execute("SET LOCAL lock_timeout = '100ms'")
            server.execute("SELECT FROM meta FOR UPDATE")
            server.execute("SELECT FROM leases FOR UPDATE")
        except psycopg.errors.LockNotAvailable:
            return False
    return True


def _take(store: Store) -> Lease:
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        got = store.acquire("cluster:c", "taking over")
        if isinstance(got, Lease):
            return got
        time.sleep(0.05)
    raise AssertionError("the lease of a stopped process never ran out")


def _wait(until: object) -> None:
    assert callable(until)
    give_up = time.monotonic() + 60
    while not until():
        assert time.monotonic() < give_up
        time.sleep(0.02)
