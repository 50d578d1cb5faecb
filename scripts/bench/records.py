"""Cost of long history: CPU time and memory of what reads records, beside few records and beside very many.

    python scripts/bench/records.py [--runs 125000] [--quick]

The stores are copies of one run (`many_records.py`); 125,000 of them have a million events. CPU time is that of the
processes that read, so other programs on the machine change it little. The exit status is 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from context import print_context
from many_records import record_ended_pipelines, record_open_clusters, record_runs
from streams import read_cpu

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from support.orch_process import Orch
from support.postgres import postgres_server
from support.service_site import serve

from orchestrator.store.read import Reader

MOST_GROWTH = 1.3  # of the CPU time of a list, beside the fewest records
MOST_IDLE = 0.4  # CPU seconds a minute of an engine without work
MOST_REQUEST = 0.030  # CPU seconds of a sum of spending
MOST_PAGE = 0.100  # CPU seconds of a page of clusters
MOST_MEMORY = 150.0  # MiB
RESTORE = """
import sys
from pathlib import Path
from orchestrator.store.restore import restore_store
restore_store(Path(sys.argv[1]), None, sys.argv[2])
"""


class Targets:
    """Figures that were measured, and whether each is what it should be."""

    def __init__(self, *, quick: bool) -> None:
        self._quick = quick
        self.missed = False

    def check(self, what: str, value: float, most: float, unit: str) -> None:
        """Print a figure with its target."""
        missed = value > most
        self.missed |= missed and not self._quick
        mark = "    " if self._quick else "MISS" if missed else "ok  "
        print(f"{mark} {what}: {value:.3g} {unit} (target {most:g})", flush=True)


def measure(orch: Orch, *words: str, tries: int = 5) -> tuple[float, float]:
    """Return the least CPU seconds, and the peak MiB, of one process."""
    found = [_measure_once([sys.executable, *words], orch) for _ in range(tries)]
    return min(seconds for seconds, _ in found), max(memory for _, memory in found)


def _measure_once(command: list[str], orch: Orch) -> tuple[float, float]:
    process = subprocess.Popen(
        command, env=orch.env, cwd=orch.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed:\n{errors.decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def compare_lists(stores: dict[int, Orch], targets: Targets) -> None:
    """Compare lists of the newest records beside few and many."""
    for words in (("runs",), ("runs", "-o", "json"), ("status",), ("queue", "-o", "json")):
        found = {runs: measure(orch, "-m", "orchestrator", *words)[0] for runs, orch in stores.items()}
        least = found[min(found)]
        print(f"orch {' '.join(words)}: " + ", ".join(f"{one:.3f} s of {runs:,} runs" for runs, one in found.items()))
        for runs in sorted(found)[1:]:
            targets.check(f"orch {' '.join(words)} of {runs:,} runs", found[runs] / least, MOST_GROWTH, "x the fewest")


def measure_idle_engine(orch: Orch, seconds: float) -> float:
    """Return the CPU seconds a minute of an engine that has nothing to do."""
    with engine(orch) as process:
        before, begun = read_cpu(process.pid), time.monotonic()
        time.sleep(seconds)
        return (read_cpu(process.pid) - before) * 60 / (time.monotonic() - begun)


@contextmanager
def engine(orch: Orch) -> Generator[subprocess.Popen[bytes]]:
    """Run an engine that has begun to poll, until the end of the block."""
    command = orch.command("serve", "--engine-only")
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, env=orch.env, cwd=orch.folder, stdout=null, stderr=null)
    try:
        while not _has_engine(orch):
            time.sleep(1)
        time.sleep(5)  # its first rounds: old files are looked for once an hour
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _has_engine(orch: Orch) -> bool:
    with Reader(orch.state / "orch.db") as reader:
        return bool(reader.other_engines(""))


def measure_requests(orch: Orch, path: str) -> tuple[float, float, int]:
    """Return the CPU seconds of the service for the first request, and for each of the next ten, and the bytes."""
    with serve(orch) as site:
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=300)

        def ask(times: int) -> tuple[float, int]:
            before, size = read_cpu(site.process.pid), 0
            for _ in range(times):
                connection.request("GET", path, headers={"Authorization": f"Bearer {site.token}"})
                answer = connection.getresponse()
                assert answer.status == 200, answer.status
                size = len(answer.read())
            return (read_cpu(site.process.pid) - before) / times, size

        first, _ = ask(1)
        later, size = ask(10)
        connection.close()
    return first, later, size


def measure_audit(orch: Orch, targets: Targets) -> None:
    """Check the audit of the largest store, and put it into PostgreSQL."""
    seconds, memory = measure(orch, "-m", "orchestrator", "events", "--verify", tries=1)
    targets.check(f"orch events --verify ({seconds:.0f} s)", memory, MOST_MEMORY, "MiB")
    with postgres_server() as server:
        place = server.new_store()
        seconds, memory = measure(orch, "-c", RESTORE, str(orch.state / "orch.db"), place, tries=1)
    targets.check(f"restored into PostgreSQL ({seconds:.0f} s)", memory, MOST_MEMORY, "MiB")


def main() -> int:
    """Make the stores and print every figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=125_000, help="of the largest store")
    parser.add_argument("--quick", action="store_true", help="few records and no targets")
    options = parser.parse_args()
    targets = Targets(quick=options.quick)
    print_context(quick=options.quick)
    sizes = (10, 20) if options.quick else (100, 10_000, options.runs)
    pipelines, clusters, seconds = (10, 10, 1.0) if options.quick else (10_000, 1000, 60.0)
    with tempfile.TemporaryDirectory() as folder:
        stores = {size: make_home(Path(folder, f"runs-{size}")) for size in sizes}
        for size, orch in stores.items():
            record_runs(orch.state / "orch.db", size)
        many, ended, open_ones = (
            stores[sizes[-1]],
            make_home(Path(folder, "pipelines")),
            make_home(Path(folder, "open")),
        )
        record_ended_pipelines(ended.state / "orch.db", pipelines)
        record_open_clusters(open_ones.state / "orch.db", clusters)
        compare_lists(stores, targets)
        for what, orch in ((f"{sizes[-1]:,} runs", many), (f"{pipelines:,} ended pipelines", ended)):
            found = measure_idle_engine(orch, seconds)
            targets.check(f"idle engine beside {what}", found, MOST_IDLE, "CPU s a minute")
        first, later, _ = measure_requests(many, "/v1/spend?since=30d")
        targets.check(f"/v1/spend of 30 days (the first: {first:.1f} s)", later, MOST_REQUEST, "CPU s")
        _, later, size = measure_requests(open_ones, "/v1/clusters")
        targets.check(f"/v1/clusters of {clusters:,} ({size:,} bytes)", later, MOST_PAGE, "CPU s")
        measure_audit(many, targets)
    return int(targets.missed)


def make_home(folder: Path) -> Orch:
    """Return an orch with its own folder."""
    orch = Orch(folder)
    orch.state.mkdir(parents=True)
    return orch


if __name__ == "__main__":
    raise SystemExit(main())
