"""A process that does numbered steps under the lease of cluster c (a program, not a test).

Usage: store_worker.py LOCATION STEPS FILE LEASE_SECONDS RANK. A step is a line in FILE and then, guarded by the lease,
the pipeline's next stage. It gives the lease up after each few steps. Ends with 6 when the lease was taken over.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from orchestrator.errors import ConflictError
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store


def renewing(store: Store, lease: Lease, stop: threading.Event) -> None:
    while not stop.wait(store.lease_seconds / 3):
        if not store.renew(lease):
            return


def turn(store: Store, lease: Lease, steps: int, count: int) -> int:
    """Do `count` steps; the stage that was reached."""
    stage = store.pipeline("p").stage
    for _ in range(count):
        if stage >= steps:
            break
        stage += 1
        with Path(sys.argv[3]).open("a") as file:
            file.write(f"{stage} {sys.argv[5]}\n")
        time.sleep(0.003)
        store.advance_pipeline("p", stage, lease=lease)
    return stage


def main() -> int:
    where, steps, lease_seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[4])
    long_turns = steps > 1000
    with Store(where if "://" in where else Path(where), lease_seconds=lease_seconds) as store:
        stage = 0
        while stage < steps:
            got = store.acquire("cluster:c", "stepping")
            if not isinstance(got, Lease):
                time.sleep(0.005)
                stage = store.pipeline("p").stage
                continue
            print("holds", flush=True)
            stop = threading.Event()
            renewer = threading.Thread(target=renewing, args=(store, got, stop), daemon=True)
            renewer.start()
            try:
                stage = turn(store, got, steps, steps if long_turns else 3)
            except ConflictError as error:
                print(error, flush=True)
                return 6
            finally:
                stop.set()
                renewer.join()
            store.release(got)
    return 0


if __name__ == "__main__":
    sys.exit(main())
