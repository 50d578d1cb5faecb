"""Time of a launch until the program's first line on every host, on new hosts and on hosts with an unchanged setup.

    python scripts/bench/launch.py [--hosts 4] [--rounds 5] [--quick]

The last column of the table compares with a bare `ssh` to each host in parallel, the minimum of any launcher.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from context import print_context
from support.driving import Listener, local_task

from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.preparation import commands
from orchestrator.engine.state.recorded import open_reader
from orchestrator.hosts import ssh_argv
from orchestrator.plan.teardown import TeardownPolicy


class Clock(Listener):
    """Records the time of each host's first output."""

    def __init__(self) -> None:
        super().__init__()
        self.first: dict[int, float] = {}

    def output(self, host: object, block: bytes) -> None:
        self.first.setdefault(host.rank, time.perf_counter())  # type: ignore[attr-defined]  # a HostAddress


def first_lines(hosts: int, folder: Path) -> float:
    """Return the seconds from the request until every host has printed something."""
    task = local_task(hosts, run="echo ready; sleep 0.2", setup="true", workdir=str(folder))
    clock = Clock()
    began = time.perf_counter()
    drive_cluster(commands.prepare_launch(task, cluster="bench", after=TeardownPolicy.KEEP), clock)
    return max(clock.first.values()) - began


def bare_ssh() -> float:
    with open_reader() as reader:
        (cluster,) = reader.clusters()
    began = time.perf_counter()
    threads = [
        threading.Thread(target=subprocess.run, args=(ssh_argv(host, "echo ready"),), kwargs={"capture_output": True})
        for host in cluster.hosts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one host, one round")
    options = parser.parse_args()
    if options.quick:
        options.hosts = options.rounds = 1
    print_context(quick=options.quick)
    with tempfile.TemporaryDirectory() as home:
        os.environ["ORCH_HOME"] = str(Path(home) / "orch")
        folder = Path(home) / "work"
        folder.mkdir()
        (folder / "program.py").write_text("print('x')")
        try:
            first = first_lines(options.hosts, folder)
            rounds = [(first_lines(options.hosts, folder), bare_ssh()) for _ in range(options.rounds)]
        finally:
            drive_cluster(commands.prepare_down("bench"), Listener())
    ours, ssh = statistics.median(a for a, _ in rounds), statistics.median(b for _, b in rounds)
    print(f"{options.hosts} hosts, median of {options.rounds}")
    print("| what | seconds | x bare ssh |")
    print("| --- | --- | --- |")
    print(f"| new hosts: created, code sent, set up, first line on all | {first:.2f} | {first / ssh:.1f} |")
    print(f"| hosts running, nothing changed: first line on all | {ours:.2f} | {ours / ssh:.1f} |")
    print(f"| `ssh HOST echo`, in parallel | {ssh:.2f} | 1.0 |")


if __name__ == "__main__":
    main()
