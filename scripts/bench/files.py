"""Memory and CPU of launches that send a large workdir, or one of many small files, to one host of this computer.

    python scripts/bench/files.py [--megabytes 2000] [--files 100000] [--quick]

Memory is the peak of the command's process, less that of the same launch with a workdir of one line. CPU is that of the
command, its children included, such as the processes of the host.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from context import print_context

_MEBIBYTE = 1 << 20
_BY_FOLDER = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a command used: seconds of CPU and of a clock, and the peak of its memory in MB."""

    cpu: float
    wall: float
    megabytes: float

    def row(self, name: str, bare: Used) -> str:
        return f"| {name} | {self.cpu:.1f} | {self.wall:.1f} | {self.megabytes - bare.megabytes:.0f} |"


def run_orch(home: Path, *words: str) -> Used:
    """Run a command of orch to its end."""
    environment = {**os.environ, "ORCH_HOME": str(home), "PYTHONPATH": str(ROOT)}
    began = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-m", "orchestrator", *words], env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"orch {' '.join(words)} ended with {child.returncode}")
    return Used(
        cpu=used.ru_utime + used.ru_stime, wall=time.perf_counter() - began, megabytes=used.ru_maxrss * 1024 / 1e6
    )


@contextmanager
def new_home(folder: Path) -> Generator[Path]:
    """Yield a new state folder, and end what runs there."""
    with tempfile.TemporaryDirectory(dir=folder) as home:
        try:
            yield Path(home)
        finally:
            run_orch(Path(home), "down", "bench", "--yes")


def measure(folder: Path, work: Path, *words: str) -> tuple[Used, Used]:
    """Return what a first launch of a workdir uses, and a second one, of which one file changed."""
    task = folder / "task.yaml"
    task.write_text(f"name: bench\nresources: {{infra: 'local:1'}}\nworkdir: {work}\nrun: 'true'\n")
    with new_home(folder) as home:
        first = run_orch(home, "launch", str(task), "--yes", *words)
        if words:
            run_orch(home, "logs", "-f", "bench", "1")
        (work / "changed").write_text(str(time.time()))
        second = run_orch(home, "launch", str(task), "--yes", *words)
        if words:
            run_orch(home, "logs", "-f", "bench", "2")
    return first, second


def make_large(work: Path, size: int) -> Path:
    """Make a workdir with one file that has half of the bytes, and others."""
    work.mkdir()
    for name, share in (("half", size // 2), *((f"{number}", size // 20) for number in range(10))):
        with (work / name).open("wb") as file:
            for _ in range(share // _MEBIBYTE):
                file.write(random.randbytes(_MEBIBYTE))
    return work


def make_many(work: Path, count: int) -> Path:
    """Make a workdir of many files, of which no two are equal."""
    for number in range(count):
        folder = work / f"part{number // _BY_FOLDER // 20}" / f"folder{number // _BY_FOLDER}"
        if number % _BY_FOLDER == 0:
            folder.mkdir(parents=True)
        (folder / f"file{number}.py").write_bytes(random.randbytes(random.randint(100, 3000)))
    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="500 files alone")
    options = parser.parse_args()
    if options.quick:
        options.megabytes, options.files = 0, 500
    print_context(quick=options.quick)
    print("| launch | CPU s | wall s | MB above a launch of one line |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small").mkdir()
        (folder / "small" / "line").write_text("line\n")
        bare, _ = measure(folder, folder / "small")
        print(bare.row("one line", bare), flush=True)
        if options.megabytes:
            large = make_large(folder / "large", options.megabytes * 1_000_000)
            for mode, words in (("", ()), (", --detach", ("--detach",))):
                for used, which in zip(measure(folder, large, *words), ("first", "one file changed"), strict=True):
                    print(used.row(f"{options.megabytes:,} MB{mode}, {which}", bare), flush=True)
        if options.files:
            many = make_many(folder / "many", options.files)
            for used, which in zip(measure(folder, many), ("first", "one file changed"), strict=True):
                print(used.row(f"{options.files:,} files, {which}", bare), flush=True)


if __name__ == "__main__":
    main()
