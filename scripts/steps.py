"""Steps of one run of the tests: commands one after another and beside one another, their time, and what failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Run:
    """The steps of a run.

    Attributes:
        folder: Temporary files.
        seconds: After which a step is ended, counted from the start of the run.
        failed: Names of the steps that failed.
        summaries: Last lines of the steps that ran tests.
    """

    folder: Path
    seconds: float = float("inf")
    failed: list[str] = field(default_factory=list[str])
    summaries: list[str] = field(default_factory=list[str])
    began: float = field(default_factory=time.monotonic)
    _beside: dict[str, tuple[subprocess.Popen[str], IO[str]]] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def title(self, text: str) -> None:
        print(f"== {text} (after {self.elapsed:.0f} s)", flush=True)

    def step(
        self, name: str, *command: str, env: Mapping[str, str] | None = None, allowed: Collection[int] = ()
    ) -> bool:
        """Run a command, and return whether it ended with 0 or an allowed status. Otherwise it is among the failed."""
        self.title(name)
        process = _start(command, env)
        try:
            left = None if self.seconds == float("inf") else max(self.seconds - self.elapsed, 1)
            succeeded = process.wait(left) in (0, *allowed)
        except subprocess.TimeoutExpired:
            print(f"ended after {self.elapsed / 60:.0f} minutes of the run", flush=True)
            succeeded = False
        finally:
            _end(process)
        if not succeeded:
            self.failed.append(name)
        return succeeded

    def beside(self, name: str, *command: str, env: Mapping[str, str] | None = None) -> None:
        """Start a command that runs beside the steps, at a lower priority."""
        output = (self.folder / name.replace(" ", "-")).open("w+")
        self._beside[name] = _start(("nice", "-n", "3", *command), env, output), output

    def finish(self, name: str) -> None:
        """Wait for what runs beside the steps, and print its output."""
        status, output = self.wait(name)
        self.title(name)
        print(output, end="", flush=True)
        if status:
            self.failed.append(name)

    def wait(self, name: str) -> tuple[int, str]:
        """Return the status and the output of what runs beside the steps, when it has ended."""
        process, file = self._beside.pop(name)
        status = process.wait()
        file.seek(0)
        output = file.read()
        file.close()
        return status, output

    def end(self) -> None:
        """End what still runs."""
        for process, file in self._beside.values():
            _end(process)
            file.close()


def open_run(seconds: float = float("inf")) -> Run:
    """Return a run with a temporary folder. SIGTERM ends the run as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)
    return Run(Path(tempfile.mkdtemp(prefix="orch-lane-")), seconds)


def _interrupt(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _start(
    command: tuple[str, ...], env: Mapping[str, str] | None, output: IO[str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and its group, first by the signal on which pytest stops its servers."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                continue
