"""Requests a second and the delay of the event stream of `orch serve`, compared with a bare Starlette server.

    python scripts/bench/service.py [--runs 10000] [--streams 1000] [--seconds 10] [--quick]

The bare server sends a document of the same size from memory. The store is a SQLite file. While streams are read, 50
changes are made a second; the delay is from the committed change to the last stream. The parts take turns on the same
computer, so the clients' own cost is in every figure.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from context import print_context

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "service")]
from service_site import Served, record_run, serve
from support.orch_process import Orch

from orchestrator.store.read import open_reader_at
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


async def measure_streams(site: Served, streams: int, seconds: float) -> list[float]:
    """Return the delays of all changes, in seconds, until the last stream has them."""
    arrived: dict[int, list[float]] = {}
    token = site.token
    ready = asyncio.Semaphore(0)

    async def read() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        lines = ("GET /v1/events/stream HTTP/1.1", f"Host: 127.0.0.1:{site.port}", f"Authorization: Bearer {token}")
        writer.write("\r\n".join((*lines, "", "")).encode())
        try:
            left = b""
            while block := await reader.read(1 << 16):
                *lines, left = (left + block).split(b"\n")
                now = time.time()
                for line in lines:
                    if line.startswith(b"id: "):
                        arrived.setdefault(int(line[4:]), []).append(now)
                    elif line.startswith(b"retry: "):
                        ready.release()
        finally:
            writer.close()

    readers = [asyncio.create_task(read()) for _ in range(streams)]
    for _ in readers:
        await ready.acquire()
    made = await asyncio.to_thread(make_changes, site, seconds)
    for _ in range(100):
        if all(len(arrived.get(seq, ())) == streams for seq in made):
            break
        await asyncio.sleep(0.1)
    for one in readers:
        one.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    missing = [seq for seq in made if len(arrived.get(seq, ())) != streams]
    assert not missing, f"{len(missing)} of {len(made)} events did not reach every stream"
    return sorted(max(arrived[seq]) - at for seq, at in made.items())


def make_changes(site: Served, seconds: float) -> dict[int, float]:
    """Change the store in a steady rhythm; return when each event was committed."""
    made: dict[int, float] = {}
    database = site.orch.state / "orch.db"
    with Store(database) as store, open_reader_at(database) as reader:
        cluster = store.clusters()[0]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            store.set_desired_state(cluster, "up" if len(made) % 2 else "stopped")
            made[reader.head().seq] = time.time()
            time.sleep(1 / CHANGES_A_SECOND)
    return made


def read_memory(process: int) -> float:
    """Return the memory of a process, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def main() -> None:
    """Print requests a second beside the bare server's, and the delays of streams."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each part is measured")
    parser.add_argument("--quick", action="store_true", help="few runs and streams, for a second")
    options = parser.parse_args()
    runs, streams, seconds = (50, 5, 0.5) if options.quick else (options.runs, options.streams, options.seconds)
    print_context(quick=options.quick)
    with tempfile.TemporaryDirectory() as folder:
        orch = Orch(Path(folder))
        with Store(orch.state / "orch.db") as store:
            record_run(store, "first", "run-0")
        fill_store(orch.state / "orch.db", runs)
        with serve(orch) as site:
            print(f"{'':<34} requests/s   of bare Starlette")
            for title, path in (
                (f"/v1/runs of {runs:,} runs", "/v1/runs"),
                ("the page of runs", "/"),
                ("one run", "/v1/runs/run-0"),
            ):
                size = len(site.ask(path).body)
                with bare_server(site.port + 1, size):
                    bare = count_requests(site.port + 1, "/", seconds / 2)
                rate = count_requests(site.port, path, seconds, site.token)
                print(f"{title:<34} {rate:>10,.0f}   {rate / bare:>6.1%}   {1000 / rate:.0f} ms each, {size:,} bytes")
            before = read_memory(site.process.pid)
            delays = asyncio.run(measure_streams(site, streams, seconds))
            after = read_memory(site.process.pid)
            middle, late = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
            print(
                f"{streams:,} streams, {len(delays)} changes: p50 {middle:.2f} s, p99 {late:.2f} s to the last stream"
            )
            print(f"memory: {before:.0f} MiB before, {after:.0f} MiB with the streams")


if __name__ == "__main__":
    main()
