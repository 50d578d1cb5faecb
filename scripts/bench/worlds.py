"""Runs of the trainer in several processes on this machine, for the equality and the resume bench."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
XLA_PYTHON = Path(os.environ.get("ORCH_XLA_PYTHON", ROOT / ".venv-xla" / "bin" / "python"))


@dataclass(frozen=True)
class Arm:
    """An engine, processes, devices per process (more than one only in JAX and torch_xla), and settings of the mesh."""

    engine: str
    processes: int
    devices: int = 1
    mesh: tuple[str, ...] = ()
    name: str = field(default="")

    @property
    def label(self) -> str:
        return self.name or " ".join((self.engine, f"{self.processes}x{self.devices}", *self.mesh))

    @property
    def words(self) -> tuple[str, ...]:
        device = "xla" if self.engine == "xla" else "cpu"
        return (f"engine={'jax' if self.engine == 'jax' else 'torch'}", f"device={device}", "dtype=fp32", *self.mesh)


class World:
    """The processes of one run, started together; each writes its output to folder/rank-N.log."""

    def __init__(self, arm: Arm, folder: Path, words: Sequence[str], **environ: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.metrics = folder / "metrics.jsonl"
        python = str(XLA_PYTHON) if arm.engine == "xla" else sys.executable
        with socket.create_server(("127.0.0.1", 0)) as free:
            coordinator = f"127.0.0.1:{free.getsockname()[1]}"
        self._folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank in range(arm.processes):
            variables = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "ORCH_RANK": str(rank),
                "ORCH_NUM_HOSTS": str(arm.processes),
                "ORCH_COORDINATOR": coordinator,
                "ORCH_LOCAL_RANKS_PER_MACHINE": str(arm.processes),
                "XLA_FLAGS": f"--xla_force_host_platform_device_count={arm.devices}",
                "CPU_NUM_DEVICES": str(arm.devices),
                "PJRT_DEVICE": "CPU",
                **environ,
            }
            command = [python, "-m", "trainer", *words, *arm.words, f"metrics.file={self.metrics}", "threads=1"]
            with (folder / f"rank-{rank}.log").open("wb") as log:
                self.processes.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log))

    def wait(self, seconds: float = 600) -> int:
        """Wait for all processes, and return the worst exit status."""
        end = time.monotonic() + seconds
        statuses = [process.wait(max(1.0, end - time.monotonic())) for process in self.processes]
        return max(statuses, key=abs)

    def kill(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def losses(self) -> dict[int, float]:
        """Return the losses so far, by step."""
        if not self.metrics.exists():
            return {}
        lines = [json.loads(line) for line in self.metrics.read_text().splitlines() if line.endswith("}")]
        return {line["step"]: line["loss"] for line in lines}

    def output(self) -> str:
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in sorted(self._folder.glob("rank-*.log")))


def run(arm: Arm, folder: Path, words: Sequence[str], **environ: str) -> dict[int, float]:
    """Train to the end, and return the losses; a failed run ends this program."""
    world = World(arm, folder, words, **environ)
    status = world.wait()
    if status:
        raise SystemExit(f"{arm.label} ended with {status}:\n{world.output()}")
    return world.losses()
