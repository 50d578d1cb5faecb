"""However `orch simulate` ends, no process of its hosts stays."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until

from orchestrator.providers.local import processes
from orchestrator.providers.local.guard import mark_of

SIMULATE = (sys.executable, "-m", "orchestrator", "simulate", "gcp")
TASK = "name: t\nresources: {accelerators: v5e-16, infra: gcp/us-west4/us-west4-a}\nrun: sleep 600\n"
GRACE = 10.0  # seconds after a SIGKILL


@dataclass
class Simulation:
    """`orch simulate gcp` in the background of its folder, and the marks of its hosts' processes."""

    orch: Orch
    marks: list[str] = field(default_factory=list[str])

    @property
    def folder(self) -> Path:
        return self.orch.folder

    def start(self, words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdout=pipe, text=True, env=self.orch.env, cwd=self.folder, **options)

    def serve(self, before: Sequence[str] = (), **options: Any) -> subprocess.Popen[str]:
        """Serve, with a job on two hosts. before: words before the command."""
        process = self.start([*before, *SIMULATE], **options)
        assert process.stdout is not None
        env: dict[str, str] = {}
        while "ORCH_HOME" not in env:
            name, _, value = process.stdout.readline().removeprefix("export ").strip().partition("=")
            env[name] = value.strip("'")
        Orch(self.folder, {**env, "HOME": str(self.folder)}).ok("launch", "t.yaml", "--yes", "-d")
        records = Path(env["ORCH_HOME"]).rglob("slice.json")
        self.marks = [mark_of(json.loads(record.read_text())["id"]) for record in records]
        assert len(self.processes()) > 8
        return process

    def processes(self) -> list[processes.Process]:
        table = processes.snapshot()
        marked = [process for mark in self.marks for process in processes.carrying(table, mark)]
        return marked + [process for process in table.values() if self._is_guard(process)]

    def _is_guard(self, process: processes.Process) -> bool:
        """Or the launcher of a rehearsal, which would make new hosts."""
        with suppress(OSError):
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            return (b"local.guard" in line or b"rehearsal_launcher" in line) and str(self.folder).encode() in line
        return False


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[Simulation]:
    (tmp_path / "t.yaml").write_text(TASK)
    made = Simulation(Orch(tmp_path, {"TMPDIR": str(tmp_path)}))
    yield made
    for process in made.processes():
        processes.send(process, signal.SIGKILL)


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_hosts(simulation: Simulation, number: signal.Signals) -> None:
    process = simulation.serve()
    process.send_signal(number)
    assert process.wait(60) == 130
    assert simulation.processes() == []


def test_an_interrupt_of_a_background_job_of_a_script_ends_the_hosts(simulation: Simulation) -> None:
    process = simulation.serve(["sh", "-c", "trap '' INT; exec \"$@\"", "sh"])
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert simulation.processes() == []


def test_hosts_do_not_outlive_a_killed_simulation(simulation: Simulation) -> None:
    process = simulation.serve()
    process.kill()
    process.wait()
    until("hosts are ended", lambda: not simulation.processes(), GRACE)


def test_hosts_do_not_outlive_a_killed_rehearsal(simulation: Simulation) -> None:
    process = simulation.start([*SIMULATE[:3], "rehearse", "t.yaml"])
    until("hosts are there", lambda: len(simulation.processes()) >= 4, 60)
    process.kill()
    process.wait()
    until("hosts are ended", lambda: not simulation.processes(), GRACE)


@pytest.mark.usefixtures("hangups")
def test_the_end_of_the_terminal_ends_the_hosts(simulation: Simulation) -> None:
    near, far = pty.openpty()
    process = simulation.serve(["setsid", "--ctty", "--wait"], stdin=far, stderr=far)
    os.close(far)
    os.close(near)
    process.wait(60)
    until("hosts are ended", lambda: not simulation.processes(), GRACE)


@pytest.mark.parametrize(("ignored", "status"), [(False, 143), (True, 137)], ids=["obedient", "deaf"])
def test_a_signal_ends_the_command_too(simulation: Simulation, ignored: bool, status: int) -> None:
    program = "import signal, sys, time\n" + ("signal.signal(15, signal.SIG_IGN)\n" if ignored else "")
    program += "print('here', flush=True)\ntime.sleep(100)"
    process = simulation.start([*SIMULATE, "--", sys.executable, "-c", program])
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == status
