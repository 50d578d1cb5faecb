"""Cost of the command line: CPU time (user and system) and peak memory of complete processes, as a table.

    python scripts/bench/cli.py [--runs 9] [--quick]

Each round runs every command once beside `python -c pass`; figures are medians of the rounds. Budgets of CPU time are
multiples of that bare interpreter, so they hold on any machine. The exit status is 1 when a budget is exceeded.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from context import print_context

ROOT = Path(__file__).resolve().parents[2]
TASK = ROOT / "examples" / "train-local.yaml"
LARGE = "train-1024.yaml"  # the same task with a batch that 1,024 hosts divide; in the working directory
FILL = """
import sys
from pathlib import Path
from orchestrator.plan.observed import IntentState
from orchestrator.slices import Candidate, OnDemand
from orchestrator.store.store import Store
with Store(Path(sys.argv[1])) as store:
    for number in range(20):
        cluster = store.open_cluster(f"c{number}", "cpu on local")
        lease = store.acquire(f"cluster:c{number}", "bench")
        candidate = Candidate(provider="local", accelerator="cpu", hosts=4, chips_per_host=0, market=OnDemand())
        store.write_intent(lease, cluster, 1, f"c{number}-1", candidate, "t", "{}")
        store.update_intent(lease, cluster, f"c{number}-1", IntentState.ACCEPTED)
"""


@dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        name: Shown in the table.
        words: Arguments of orch; None for a bare interpreter.
        times: Budget of CPU time, as a multiple of a bare interpreter.
        mebibytes: Budget of memory.
    """

    name: str
    words: tuple[str, ...] | None
    times: float | None = None
    mebibytes: float | None = None


CASES = (
    Case("python -c pass", None),
    Case("orch --version", ("--version",), 8, 30),
    Case("orch --help", ("--help",), 8, 30),
    Case("orch launch --help", ("launch", "--help")),
    Case("orch completion bash", ("completion", "bash"), 8, 30),
    Case("orch status (20 clusters)", ("status",), 15),
    Case("orch events", ("events",), 15),
    Case("orch config explain", ("config", "explain", "checkpoint.bucket"), 10),
    Case("orch launch --dry-run, 4 hosts", ("launch", str(TASK), "--dry-run"), 36),
    Case("orch launch --dry-run, 1,024 hosts", ("launch", LARGE, "--infra", "local:1024", "--dry-run"), 80),
    Case("the same, -o json", ("launch", LARGE, "--infra", "local:1024", "--dry-run", "-o", "json"), 80),
    Case("orch accelerators, all regions", ("accelerators",), 32),
    Case("orch offers, all regions", ("offers", "--model", "1b", "--tokens", "20B", "--budget", "5000"), 110),
)
# Refreshed prices of every machine in every region and market of its cloud: more than any cloud sells.
PRICES = """
import time
from orchestrator.catalog.compute import list_types
from orchestrator.catalog.ec2 import list_machines
from orchestrator.catalog.ec2_regions import load_zones_by_region
from orchestrator.catalog.refreshed import PriceRow, Refreshed, write_refreshed
from orchestrator.catalog.tpu import list_generations
def row(name, market, region, zone=""):
    dollars = {"low": 2.0, "typical": 3.0, "high": 4.0}
    return PriceRow(name=name, market=market, region=region, zone=zone, source="bench", as_of="2026-11-26", **dollars)
def keep(provider, rows):
    write_refreshed(Refreshed(provider=provider, read_at=time.time(), rows=tuple(rows)))
places = [(region, zone) for region, zones in load_zones_by_region().items() for zone in zones]
names = [one.name for one in list_machines()]
keep("aws", [row(name, "on-demand", region) for name in names for region in load_zones_by_region()]
    + [row(name, "spot", region, zone) for name in names for region, zone in places])
names = [*(one.name for one in list_types()), *(f"tpu-{one.name}" for one in list_generations())]
zones = {zone for one in (*list_types(), *list_generations()) for zone in one.zones}
regions = sorted({zone.rpartition("-")[0] for zone in zones})
markets = ("on-demand", "spot", "flex-start")
keep("gcp", [row(name, market, region) for name in names for market in markets for region in regions])
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one run of each, without budgets")
    options = parser.parse_args()
    runs: int = 1 if options.quick else options.runs
    print_context(quick=options.quick)
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "ORCH_HOME": home, "HOME": home, "PYTHONPATH": str(ROOT)}
        database = Path(home) / "state" / "orch.db"
        subprocess.run([sys.executable, "-c", FILL, str(database)], env=env, check=True)
        subprocess.run([sys.executable, "-c", PRICES], env=env, check=True)
        text = TASK.read_text()
        assert "batch: 32" in text, TASK
        Path(home, LARGE).write_text(text.replace("batch: 32", "batch: 1024"))
        os.chdir(home)
        print(f"{'command':<36} {'CPU s':>7} {'x bare':>7} {'budget':>7} {'MiB':>6} {'budget':>7}")
        rounds = [{case.name: measure(case, env) for case in CASES} for _ in range(runs)]
        exceeded = False
        for case in CASES:
            seconds = statistics.median(one[case.name][0] for one in rounds)
            times = statistics.median(one[case.name][0] / one[CASES[0].name][0] for one in rounds)
            peak = statistics.median(one[case.name][1] for one in rounds)
            is_over = times > (case.times or times) or peak > (case.mebibytes or peak)
            exceeded |= is_over
            budgets = format_budget(case.times), format_budget(case.mebibytes)
            row = f"{case.name:<36} {seconds:>7.3f} {times:>7.1f} {budgets[0]:>7} {peak:>6.1f} {budgets[1]:>7}"
            print(f"{row}  MISS" if is_over and not options.quick else row, flush=True)
    return int(exceeded and not options.quick)


def measure(case: Case, env: dict[str, str]) -> tuple[float, float]:
    """Return CPU seconds and peak MiB of one process; the kernel counts at least this small process's own size."""
    words = ["-c", "pass"] if case.words is None else ["-m", "orchestrator", *case.words]
    null = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *words], env=env, stdin=null, stdout=null, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{case.name} failed:\n{errors.decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def format_budget(budget: float | None) -> str:
    return "" if budget is None else f"{budget:g}"


if __name__ == "__main__":
    sys.exit(main())
