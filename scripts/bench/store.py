"""Changes of a store on PostgreSQL: how long each takes when eight clients offer 100 a second, and how many fit in all.

    python scripts/bench/store.py [--seconds 6] [--quick]

It starts its own server, and reaches it through a relay that keeps each request back. A change is
`set_desired_state`: one row and one event. Each client is a process with its own cluster. It ends with an error where
95 % of the offered changes at 1 ms take more than 20 ms, or fewer than 100 a second fit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from context import print_context

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from support.postgres import PostgresServer, postgres_server
from support.slow_proxy import slow_proxy

CLIENTS = 8
OFFERED = 100.0  # changes a second of all clients together
AWAY = (0.0, 0.001, 0.05)  # seconds of a round trip
TARGET_AWAY, TARGET_SECONDS = 0.001, 0.020
CLIENT = """
import json, random, sys, time
from orchestrator.store.store import Store
seconds, rate = float(sys.argv[3]), float(sys.argv[4])
with Store(sys.argv[1]) as store:
    cluster = store.open_cluster(sys.argv[2], "")
    for number in range(10):
        store.set_desired_state(cluster, "down" if number % 2 else "stopped")
    print("ready", flush=True)
    sys.stdin.readline()
    begin = due = time.monotonic()
    took = []
    while due < begin + seconds:
        due += random.expovariate(rate) if rate else 0
        time.sleep(max(0.0, due - time.monotonic()))
        began = due if rate else time.monotonic()
        store.set_desired_state(cluster, "down" if len(took) % 2 else "stopped")
        took.append(time.monotonic() - began)
        due = due if rate else time.monotonic()
    print(json.dumps(took), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Changes a second, and the seconds within which half and 95 % of them were made."""

    rate: float
    half: float
    most: float

    def __str__(self) -> str:
        return f"{self.rate:9.1f}  {self.half * 1000:8.1f}  {self.most * 1000:8.1f}"


def measure_changes(server: PostgresServer, clients: int, away: float, offered: float, seconds: float) -> Measured:
    """Return what clients reach that offer changes at random moments; offered 0: each as fast as it can."""
    with slow_proxy(server.port, away) as proxy:
        address = server.new_store(port=proxy.port)
        words = [str(seconds), str(offered / clients)]
        commands = [[sys.executable, "-c", CLIENT, address, f"c{number}", *words] for number in range(clients)]
        started = [
            subprocess.Popen(each, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for each in commands
        ]
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        took = sorted(one for process in started for one in json.loads(process.communicate()[0]))
    return Measured(rate=len(took) / seconds, half=took[len(took) // 2], most=took[int(len(took) * 0.95)])


def main() -> int:
    """Print a line for each distance and load, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="how long each case is measured")
    parser.add_argument("--quick", action="store_true", help="half a second for each case, and no target")
    options = parser.parse_args()
    seconds = 0.5 if options.quick else options.seconds
    print_context(quick=options.quick)
    print("round trip  clients    offered  changes/s  p50 (ms)  p95 (ms)")
    is_missed = False
    with postgres_server() as server:
        for away in AWAY:
            for clients, offered in ((1, 0.0), (CLIENTS, 0.0), *([(CLIENTS, OFFERED)] if away < 0.05 else [])):
                found = measure_changes(server, clients, away, offered, seconds)
                named = f"{offered:.0f}/s" if offered else "all"
                print(f"{away * 1000:7.0f} ms  {clients:7}  {named:>9}  {found}", flush=True)
                if away == TARGET_AWAY and clients == CLIENTS:
                    is_missed |= found.most > TARGET_SECONDS if offered else found.rate < OFFERED
    if is_missed and not options.quick:
        print(f"MISS: {OFFERED:.0f} changes a second at 1 ms, 95 % within {TARGET_SECONDS * 1000:.0f} ms")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
