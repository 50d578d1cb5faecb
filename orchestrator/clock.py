"""Time: a clock that no setting of this computer moves, and the plain one that tests and rehearsals replace.

Limits of hours and money end machines, so their time must not be the setting of a laptop. `SteadyClock` reads that
setting once after each boot, counts on by the kernel's clock, and takes the time of servers when they disagree.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from orchestrator.private_files import make_private_folder

SKEW_SECONDS = 60.0  # less is what the network, and the whole seconds of a Date header, can explain
ANCHOR_FILE = "clock.json"


class Clock(Protocol):
    """A source of time."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait that long; a simulated clock advances instead."""
        ...


class ServerClock(Clock, Protocol):
    """A source of time that servers correct."""

    def learn(self, server_time: float) -> None:
        """Take over the time of a server (epoch seconds, just received) when it differs by more than a minute."""
        ...


class RealClock:
    """The clock of this computer as it is set."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)

    def learn(self, server_time: float) -> None:
        """Ignore it."""


class SteadyClock:
    """UTC that all processes of one boot count alike from a file, corrected by the time of servers.

    A preview writes nothing, so `keep` makes the file. Where the boot is not known (no /proc), each process begins with
    this computer's setting.
    """

    def __init__(self, folder: Path, set_time: Callable[[], float] | None = None) -> None:
        """Read the file in `folder`; `set_time` is the clock of this computer as it is set."""
        self.file = folder / ANCHOR_FILE
        self._set_time = set_time or time.time
        self._boot = _read_boot()
        anchor = _read_anchor(self.file, self._boot)
        self._at_boot, self._correction = anchor or (self._set_time() - steady_seconds(), 0.0)
        self._kept = anchor is not None

    def keep(self) -> SteadyClock:
        """Make the file unless it exists, so that later processes of this boot count on from now; return itself."""
        if not self._kept:
            self._write()
        return self

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._at_boot + self._correction + steady_seconds()

    def uncorrected(self) -> float:
        """Return `now` without corrections: a deadline in it never moves while this boot lasts."""
        return self._at_boot + steady_seconds()

    def sleep(self, seconds: float) -> None:
        """Wait that long."""
        time.sleep(seconds)

    def learn(self, server_time: float) -> None:
        """Take over the time of a server (epoch seconds, just received) when it differs by more than a minute."""
        difference = server_time - self.now()
        if abs(difference) > SKEW_SECONDS:
            self._correction += difference
            self._write()

    def skew(self) -> float:
        """Return by how many seconds this computer's setting is ahead; 0 when that is less than a minute."""
        ahead = self._set_time() - self.now()
        return ahead if abs(ahead) > SKEW_SECONDS else 0.0

    def _write(self) -> None:
        self._kept = True
        if not self._boot:
            return
        import tempfile  # a light command does not come here, and would load it for 5 ms

        content = {"boot": self._boot, "utc_at_boot": self._at_boot, "correction": self._correction}
        with contextlib.suppress(OSError):  # a full disk must not stop a command that ends machines
            make_private_folder(self.file.parent)
            descriptor, name = tempfile.mkstemp(dir=self.file.parent, prefix=f".{ANCHOR_FILE}-")
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(content, file)
                Path(name).replace(self.file)
            except OSError:
                Path(name).unlink(missing_ok=True)


def steady_seconds() -> float:
    """Return seconds that pass also while the computer sleeps, and that no setting moves."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def seconds_asleep() -> float:
    """Return how long this computer has slept since its boot; 0 where the kernel does not count that time."""
    return (
        steady_seconds() - time.monotonic()
    )  # CLOCK_BOOTTIME counts sleep, CLOCK_MONOTONIC does not (clock_gettime(2))


def read_date(header: str) -> float | None:
    """Return the epoch seconds of a Date header (RFC 9110, 5.6.7), None when it is none."""
    from email.utils import parsedate_to_datetime  # takes 10 ms, and `orch status` asks no server

    try:
        return parsedate_to_datetime(header).timestamp()
    except ValueError:
        return None


def _read_boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _read_anchor(file: Path, boot: str) -> tuple[float, float] | None:
    try:
        found: Any = json.loads(file.read_text())
        if boot and found["boot"] == boot:
            return float(found["utc_at_boot"]), float(found["correction"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent or damaged: it is made again
    return None
