"""A person's commands on real hosts, disturbed at random moments: what is left must be nothing.

A history is a seed: its commands, what strikes while each runs, and when, all follow from it. Nothing here knows the
steps inside orch, so a strike falls where no crash point has a name.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.orch_process import Orch
from support.postgres import PostgresServer

from orchestrator.exits import Exit

KNOWN_STATUSES = frozenset({*map(int, Exit), -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM})
LONGEST = 20.0  # seconds after which a person gives up: the command is killed
PROC = Path("/proc")
TASK = """
name: mine
resources: {infra: "local:2"}
limits: {max_hours: 4}
recovery: {max_preemptions: 3}
run: |
  echo "$ORCH_JOB $ORCH_RANK $$" >>%s/started
  sleep %s
"""
SHIFT = "import time\n_true = time.time\ntime.time = lambda: _true() + float(%r)\n"  # a clock that was set

COMMANDS = (
    ("launch", "task.yaml"),
    ("launch", "task.yaml"),
    ("launch", "task.yaml", "-d"),
    ("exec", "mine", "--", "true"),
    ("status", "-o", "json"),
    ("queue", "mine"),
    ("logs", "mine"),
    ("cancel", "mine"),
    ("stop", "mine", "--yes"),
    ("start", "mine"),
    ("down", "mine", "--yes"),
    ("resume", "mine"),
    ("watch", "mine"),
)


@dataclass
class History:
    """One history in `folder`, on SQLite or on the schema `store` of `server`."""

    seed: int
    folder: Path
    server: PostgresServer | None = None
    counts: Counter[str] = field(default_factory=Counter[str])
    notes: list[str] = field(default_factory=list[str])
    violations: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        store = {"ORCH_STORE": self.server.new_store()} if self.server is not None else {}
        self._orch = Orch(self.folder, store)
        seconds = self._random.choice((0, 0.5, 2))
        (self.folder / "task.yaml").write_text(TASK % (self.folder, seconds))

    def play(self) -> None:
        """Run the commands and strikes, then take everything down and look for what is left."""
        try:
            self._command(COMMANDS[self._random.randrange(3)])
            for _ in range(self._random.randint(2, 5)):
                self._command(self._random.choice(COMMANDS))
        finally:
            self._take_down()
        self._look_for_leftovers()

    def _command(self, words: tuple[str, ...]) -> None:
        shift = self._random.choice((0, 0, 0, 2 * 86400, -2 * 86400))
        strike = self._random.choice([None, *self._strikes()])
        process = self._start(words, shift)
        self.counts["commands"] += 1
        if shift:
            self.counts["clock jumps"] += 1
        self.notes.append(f"{' '.join(words)}  clock {shift:+d}  {strike.__name__ if strike else '-'}")
        if strike is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(self._random.uniform(0.05, 3.0))
            self.counts[f"{strike.__name__.replace('_', ' ')}"] += 1
            strike(process)
        try:
            process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self.counts["given up"] += 1
            process.kill()
            process.wait()
        self._judge(words, process.returncode)

    def _start(self, words: tuple[str, ...], shift: float) -> subprocess.Popen[bytes]:
        env = self._orch.env
        if shift:
            place = self.folder / f"clock{shift:+.0f}"
            place.mkdir(exist_ok=True)
            (place / "sitecustomize.py").write_text(SHIFT % shift)
            env = {**env, "PYTHONPATH": str(place)}
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "orchestrator", *words],
                env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    def _judge(self, words: tuple[str, ...], status: int) -> None:
        said = (self.folder / "output").read_text(errors="replace")
        self.notes.append(f"    exit {status}: {said.strip().splitlines()[-1][:150] if said.strip() else ''}")
        if "Traceback" in said or "limit of" in said or status not in KNOWN_STATUSES:
            self.violations.append(f"{words}: {said[-2000:]}")

    def _strikes(self) -> list[Callable[[subprocess.Popen[bytes]], None]]:
        found = [
            self.kill_orch,
            self.end_orch,
            self.interrupt_orch,
            self.freeze_orch,
            self.kill_a_host,
            self.freeze_a_host,
        ]
        return [*found, self.restart_postgres] if self.server is not None else found

    def kill_orch(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()

    def end_orch(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()

    def interrupt_orch(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGINT)

    def freeze_orch(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(0.1, 4.0))
        process.send_signal(signal.SIGCONT)

    def kill_a_host(self, process: subprocess.Popen[bytes]) -> None:
        for pid in self._one_host():
            send_signal(pid, signal.SIGKILL)

    def freeze_a_host(self, process: subprocess.Popen[bytes]) -> None:
        pids = self._one_host()
        for pid in pids:
            send_signal(pid, signal.SIGSTOP)
        time.sleep(self._random.uniform(0.1, 4.0))
        for pid in pids:
            send_signal(pid, signal.SIGCONT)

    def restart_postgres(self, process: subprocess.Popen[bytes]) -> None:
        assert self.server is not None
        self.server.stop()
        time.sleep(self._random.uniform(0.0, 2.0))
        self.server.start()

    def _one_host(self) -> list[int]:
        """All processes of one of the hosts that exist now."""
        hosts = sorted((self._orch.state / "local").glob("*/*/"))
        return list(processes_of(str(self._random.choice(hosts)))) if hosts else []

    def _take_down(self) -> None:
        self.violations += take_down(self._orch, "mine", "--yes")

    def _look_for_leftovers(self) -> None:
        self.violations += find_open_records(self._orch)
        self._look_for_processes()
        starts = read_starts(self.folder)
        programs = Counter(tuple(line.split()[:2]) for line in starts)
        self.counts["programs"] += len(programs)
        if twice := [program for program, times in programs.items() if times > 1]:
            self.violations.append(f"started twice: {twice}")

    def _look_for_processes(self) -> None:
        end = time.monotonic() + 20  # an unattended engine looks once more before it ends
        while left := {pid: _words(pid) for pid in processes_of(str(self.folder / "orch"))}:
            if time.monotonic() > end:
                self.violations.append(f"processes are left: {left}")
                for pid in left:
                    send_signal(pid, signal.SIGKILL)
                return
            time.sleep(0.2)


def take_down(orch: Orch, *words: str) -> list[str]:
    """Take a cluster down as a person ends the day: again, until it is done. Returns what is wrong."""
    end = time.monotonic() + 90
    while True:
        done = orch("down", *words, timeout=100)
        if done.returncode in (0, 3):  # 3: there never was one
            return []
        if time.monotonic() > end:
            return [f"down ends with {done.returncode}: {done.stderr[-1000:]}"]
        time.sleep(1)


def find_open_records(orch: Orch) -> list[str]:
    """Return what a person still finds after everything was taken down."""
    found: list[str] = []
    for words, empty in ((("status",), '"clusters": []'), (("reap", "--dry-run"), '"slices": []')):
        done = orch(*words, "-o", "json")
        if done.returncode != 0 or empty not in done.stdout:
            found.append(f"{words[0]} in {orch.folder} afterwards: {done.stdout[-500:]}{done.stderr[-500:]}")
    return found


def read_starts(folder: Path) -> list[str]:
    """Return the lines that the programs wrote when they started."""
    file = folder / "started"
    return file.read_text().splitlines() if file.exists() else []


def processes_of(mark: str) -> Iterator[int]:
    """The processes that work below a folder, or have it in their environment or command line."""
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            texts = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            if mark.encode() in texts or str((entry / "cwd").readlink()).startswith(mark):
                yield int(entry.name)


def _words(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[:150]
    return ""


def send_signal(pid: int, what: signal.Signals) -> None:
    """Signal a process that may have ended."""
    with contextlib.suppress(OSError):
        os.kill(pid, what)
