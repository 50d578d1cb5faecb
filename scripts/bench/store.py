"""Changes a second of a store on PostgreSQL, of one and of eight clients, without delay and with 50 ms to the server.

    python scripts/bench/store.py [--seconds 4] [--quick]

It starts its own server, and reaches it through a relay that keeps each request back. A change is
`set_desired_state`: one row and one event. Each client is a process with its own cluster. Only methods that older
versions have are used: started in the folder of another commit, it measures that one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from context import print_context

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from support.postgres import PostgresServer, postgres_server
from support.slow_proxy import slow_proxy

CLIENTS = (1, 8)
SECONDS_AWAY = (0.0, 0.05)
CLIENT = """
import sys, time
from orchestrator.store.store import Store
with Store(sys.argv[1]) as store:
    cluster = store.open_cluster(sys.argv[2], "")
    print("ready", flush=True)
    sys.stdin.readline()
    end, count = time.monotonic() + float(sys.argv[3]), 0
    while time.monotonic() < end:
        store.set_desired_state(cluster, "down" if count % 2 else "stopped")
        count += 1
    print(count, flush=True)
"""


def count_changes(server: PostgresServer, clients: int, away: float, seconds: float) -> float:
    """Return the changes a second of all clients together."""
    with slow_proxy(server.port, away) as proxy:
        address = server.new_store(port=proxy.port)
        commands = [[sys.executable, "-c", CLIENT, address, f"c{number}", str(seconds)] for number in range(clients)]
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
        counts = [int(process.communicate()[0]) for process in started]
    return sum(counts) / seconds


def main() -> None:
    """Print one line for each distance and number of clients."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each case is measured")
    parser.add_argument("--quick", action="store_true", help="a fifth of a second for each case")
    options = parser.parse_args()
    seconds = 0.2 if options.quick else options.seconds
    print_context(quick=options.quick)
    print("round trip  clients  changes/s")
    with postgres_server() as server:
        for away in SECONDS_AWAY:
            for clients in CLIENTS:
                rate = count_changes(server, clients, away, seconds)
                print(f"{away * 1000:7.0f} ms  {clients:7}  {rate:9.1f}", flush=True)


if __name__ == "__main__":
    main()
