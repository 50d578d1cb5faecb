"""Command line as a separate process, in its own orch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.warm_interpreter import WarmPopen, can_fork, run_warm


@dataclass(frozen=True)
class Orch:
    """folder: the working directory, and HOME; the state lies in `folder/orch`. more: laid over the environment.

    before: put before every command, such as what enters a network namespace.
    fresh: a new interpreter for every command, where a test is about the start itself.
    """

    folder: Path
    more: dict[str, str] = field(default_factory=dict[str, str])
    before: tuple[str, ...] = ()
    fresh: bool = False

    @property
    def env(self) -> dict[str, str]:
        lead = ("ORCH_", "PYTHONUNBUFFERED")  # what a program writes and does not flush is to be missed here
        kept = {name: value for name, value in os.environ.items() if not name.startswith(lead)}
        return {**kept, "ORCH_HOME": str(self.folder / "orch"), "HOME": str(self.folder), **self.more}

    @property
    def state(self) -> Path:
        return self.folder / "orch" / "state"

    def command(self, *words: str) -> list[str]:
        """Return the command line."""
        return [*self.before, sys.executable, "-m", "orchestrator", *words]

    @property
    def _may_fork(self) -> bool:
        return not self.fresh and not self.before and can_fork(self.env)

    def __call__(self, *words: str, timeout: float = 120.0, stdin: str = "") -> subprocess.CompletedProcess[str]:
        if self._may_fork:
            return run_warm(words, env=self.env, cwd=self.folder, timeout=timeout, stdin=stdin)
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.folder,
            timeout=timeout,
            input=stdin,
            check=False,
        )

    def ok(self, *words: str, timeout: float = 120.0, stdin: str = "") -> str:
        """Its stdout; a failure is the test's failure, with all that was said."""
        done = self(*words, timeout=timeout, stdin=stdin)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        if self._may_fork:
            return WarmPopen(words, env=self.env, cwd=self.folder, stdout=pipe, stderr=pipe)
        return subprocess.Popen(
            self.command(*words), stdout=pipe, stderr=pipe, text=True, env=self.env, cwd=self.folder
        )

    def engines(self) -> list[int]:
        """Return the processes of `orch serve` that commands of this orch have started."""
        home, found = f"ORCH_HOME={self.folder / 'orch'}".encode(), list[int]()
        for proc in Path("/proc").iterdir():
            with suppress(OSError):  # no process, one of another user, or one that has ended
                words, environment = (proc / "cmdline").read_bytes(), (proc / "environ").read_bytes()
                if b"--engine-only" in words.split(b"\0") and home in environment.split(b"\0"):
                    found.append(int(proc.name))
        return found

    def kill_engines(self) -> None:
        for pid in self.engines():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def until(what: str, look: Callable[[], bool], seconds: float = 150.0) -> None:
    """Wait for something to become so; a failure names it."""
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
