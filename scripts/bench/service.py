"""Requests a second and the delay of the event stream of `orch serve`, compared with a bare Starlette server.

    python scripts/bench/service.py [--runs 10000] [--streams 1000] [--seconds 10] [--quick]

The bare server sends a document of the same size from memory. The store is a SQLite file. While streams are read, a
change is due every 1/50 s; the delay is from its commit until the last stream has its event. The clients of the
streams are one other process, and the changes are made in this one, on the same computer: see `streams.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from context import print_context
from streams import measure_streams, read_cpu, read_memory

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from support.orch_process import Orch
from support.service_site import Served, record_run, serve

from orchestrator.store.store import Store

BARE = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

body = b"x" * int(sys.argv[2])

async def answer(request):
    return Response(body)

uvicorn.run(Starlette(routes=[Route("/", answer)]), port=int(sys.argv[1]), log_level="warning", access_log=False)
"""
CHANGES_A_SECOND = 50
MEMBERS = 20  # that read streams: each has at most 100 of them (service/event_stream.py)
MOST_DELAY = 0.5  # seconds
MOST_MEMORY = 150  # MiB


def fill_store(database: Path, runs: int) -> None:
    """Copy the one run of a store until it has `runs` runs."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        for table, key in (("clusters", "uid"), ("jobs", "cluster_uid"), ("intents", "cluster_uid")):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            row = dict(zip(names, connection.execute(f"SELECT * FROM {table}").fetchone(), strict=True))
            copies = [_copy(row, key, number) for number in range(1, runs)]
            marks = ", ".join("?" * len(names))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(one.values()) for one in copies])


def _copy(row: dict[str, object], key: str, number: int) -> dict[str, object]:
    changed: dict[str, object] = {key: f"{number:012x}"}
    changed |= {"name": f"c{number}"} if "name" in row else {}
    changed |= {"run_id": f"run-{number}", "created": float(str(row["created"])) - number} if "run_id" in row else {}
    return row | changed


def count_requests(port: int, path: str, seconds: float, token: str = "") -> float:
    """Return the answers a second on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    count, end = 0, time.monotonic() + seconds
    begun = time.monotonic()
    while time.monotonic() < end or not count:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        answer.read()
        count += 1
    connection.close()
    return count / (time.monotonic() - begun)


@contextlib.contextmanager
def bare_server(port: int, size: int) -> Generator[None]:
    """Run the bare server until the end of the block."""
    process = subprocess.Popen([sys.executable, "-c", BARE, str(port), str(size)])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as one:
                one.connect()
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(10)


def compare_requests(site: Served, runs: int, seconds: float) -> None:
    """Print how fast the service answers, beside a bare server that sends as many bytes."""
    print(f"{'':<26} requests/s   of bare Starlette   ms each   ms of a processor")
    for title, path in (
        (f"/v1/runs of {runs:,} runs", "/v1/runs"),
        ("the page of runs", "/"),
        ("one run", "/v1/runs/run-0"),
    ):
        size = len(site.ask(path).body)
        with bare_server(site.port + 1, size):
            bare = count_requests(site.port + 1, "/", seconds / 2)
        before = read_cpu(site.process.pid)
        rate = count_requests(site.port, path, seconds, site.token)
        cpu = (read_cpu(site.process.pid) - before) / (rate * seconds)
        print(
            f"{title:<26} {rate:>10,.0f} {rate / bare:>19.1%} {1000 / rate:>9.1f} {cpu * 1000:>19.1f}   {size:,} bytes"
        )


def check_streams(site: Served, streams: int, seconds: float, *, quick: bool) -> bool:
    """Print the delays of the streams and the server's memory, and return whether the targets are met."""
    names = [f"reader-{number}" for number in range(min(MEMBERS, streams))]
    tokens = [site.orch.ok("token", "create", name, "--member", name, "--role", "viewer").strip() for name in names]
    before = read_memory(site.process.pid)
    found = measure_streams(
        site.port, tokens, site.process.pid, site.orch.state / "orch.db",
        streams=streams, seconds=seconds, rate=CHANGES_A_SECOND,
    )  # fmt: skip
    middle, late = found.delays[len(found.delays) // 2], found.delays[int(len(found.delays) * 0.99)]
    print(
        f"{streams:,} streams had each of {found.changes} changes once, in order: p50 {middle:.2f} s to the last stream"
    )
    print(f"processor: server {found.server:.0%}, clients {found.readers:.0%}, changes {found.writer:.0%} of one core")
    print(f"memory of the server before the streams: {before:.0f} MiB")
    met = [
        _target("changes/s", found.rate, found.rate >= 0.99 * CHANGES_A_SECOND, f"{CHANGES_A_SECOND}", quick),
        _target("p99 to the last stream, s", late, late < MOST_DELAY, f"< {MOST_DELAY}", quick),
        _target("memory with the streams, MiB", found.memory, found.memory < MOST_MEMORY, f"< {MOST_MEMORY}", quick),
    ]
    return all(met)


def _target(what: str, value: float, met: bool, target: str, quick: bool) -> bool:
    print(f"{'    ' if quick else 'ok  ' if met else 'MISS'} {what}: {value:.2f} (target {target})")
    return met or quick


def main() -> int:
    """Print requests a second beside the bare server's, and the delays of streams."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each part is measured")
    parser.add_argument("--quick", action="store_true", help="few runs and streams, for a second, no targets")
    options = parser.parse_args()
    runs, streams, seconds = (50, 5, 0.5) if options.quick else (options.runs, options.streams, options.seconds)
    print_context(quick=options.quick)
    print(f"load of the machine before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory() as folder:
        orch = Orch(Path(folder))
        with Store(orch.state / "orch.db") as store:
            record_run(store, "first", "run-0")
        fill_store(orch.state / "orch.db", runs)
        with serve(orch) as site:
            compare_requests(site, runs, seconds)
            return 0 if check_streams(site, streams, seconds, quick=options.quick) else 1


if __name__ == "__main__":
    raise SystemExit(main())
