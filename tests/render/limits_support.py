"""A host for the timer of limits: a home directory, and its own programs first on PATH."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from render_support import program
from support.host_folders import host_folder, is_held

from orchestrator.remote.scripts import shell_source
from orchestrator.render.limits import LimitsSpec, render_limits

FAKE_CRONTAB = """#!/bin/sh
case ${1:-} in
-l) exec cat "$HOME/crontab" ;;
-) exec cat >"$HOME/crontab" ;;
esac
exit 1
"""


@dataclass
class Host:
    """home: its home folder; env: environment of what is started on it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        # Never the machine's own cron and systemd.
        program(self.bin / "crontab", FAKE_CRONTAB)
        program(self.bin / "systemctl", '#!/bin/sh\necho "$*" >>"$HOME/systemctl-calls"\nexit 1\n')
        self.env = {
            "HOME": str(self.home),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "ORCH_SYSTEMD_RUN_DIR": str(self.folder / "no-systemd"),
            "ORCH_SYSTEMD_DIR": str(self.folder / "units"),
            "ORCH_DEV_DIR": str(self.folder / "dev"),
            "ORCH_LIMITS_TEST": str(self.folder),
            **self.env,
        }

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def limits(self) -> Path:
        return host_folder(self.home) / "limits"

    @property
    def stopped(self) -> Path:
        """What STOP makes."""
        return self.home / "machine-stopped"

    STOP = 'date +%s >>"$HOME/machine-stopped"'

    def install(self, limits_spec: LimitsSpec, **env: str) -> None:
        done = self.bash(render_limits(limits_spec), **env)
        assert (done.returncode, done.stderr) == (0, "")

    def bash(self, text: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-s", "--", *words],
            input=text,
            env={**self.env, **env},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start_job(self, name: str, script: str) -> Path:
        """A real detached job, started as over SSH; returns its folder."""
        words = [
            "/bin/sh",
            "-c",
            f"{shell_source('host.sh')}\n{shell_source('job-start.sh')}",
            "orch",
            name,
            str(len(script)),
            "0",
        ]
        subprocess.run(
            [*words, shell_source("job-wrap.sh")], input=script, text=True, env=self.env, check=True, timeout=20
        )
        return host_folder(self.home) / "jobs" / name

    @property
    def pid(self) -> int:
        """Of the timer."""
        return int((self.limits / "pid").read_text().split()[0])

    def alive(self) -> bool:
        """Is the timer's claim held?"""
        return is_held(self.limits / "claim")

    def looked_at(self, uptime: int) -> None:
        """Wait until the timer has done with a look at this uptime of the machine: it begins a second one."""
        looks: set[int] = set()

        def twice() -> bool:
            with contextlib.suppress(OSError), (self.limits / "seen").open() as seen:
                if seen.read().split()[1:2] == [str(uptime)]:
                    looks.add(os.fstat(seen.fileno()).st_mtime_ns)
            return len(looks) == 2

        until(twice)

    def kill_timer(self) -> None:
        """As hard as can be; returns when it is gone."""
        until((self.limits / "pid").exists)  # it is written after the claim is held
        os.kill(self.pid, signal.SIGKILL)
        until(lambda: not self.alive())

    def processes(self) -> list[int]:
        mark = f"ORCH_LIMITS_TEST={self.folder}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def timers(self) -> list[int]:
        """The processes that run the timer's program; a moment's subshells excluded."""

        def words(pid: int) -> bytes:
            with contextlib.suppress(OSError):
                return Path(f"/proc/{pid}/cmdline").read_bytes()
            return b""

        def parent(pid: int) -> int:
            with contextlib.suppress(OSError):
                return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            return 0

        own = [pid for pid in self.processes() if b"limits/timer.sh" in words(pid)]
        return [pid for pid in own if parent(pid) not in own]

    def log(self) -> str:
        return (self.limits / "log").read_text()

    def close(self) -> None:
        for _ in range(3):
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def open_host(folder: Path, **env: str) -> Iterator[Host]:
    host = Host(folder, env)
    try:
        yield host
    finally:
        host.close()


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


def limits_spec(
    *,
    seconds: float | None = None,
    idle: float | None = None,
    deadline: float | None = None,
    since: float | None = None,
    on_limit: str = "end",
    stop: str = Host.STOP,
    watch: str = "jobs",
    grace: int = 5,
    boot_grace: int = 0,
) -> LimitsSpec:
    """Limits in seconds, of a timer that looks every second."""
    return LimitsSpec(
        max_hours=None if seconds is None else seconds / 3600,
        idle_minutes=None if idle is None else idle / 60,
        deadline=deadline,
        since=since,
        on_limit=on_limit,  # type: ignore[arg-type]  # one of three words, written by the tests
        stop_command=stop,
        watch=watch,  # type: ignore[arg-type]  # one of two words
        grace_seconds=grace,
        tick_seconds=1,
        boot_grace_seconds=boot_grace,
    )
