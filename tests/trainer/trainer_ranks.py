"""Rank processes for tests: forked from one server that has torch loaded, so a rank starts in milliseconds."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SMALL = (
    "model.dim=32",
    "model.layers=2",
    "model.heads=2",
    "model.kv_heads=1",
    "seq_len=32",
    "batch=8",
    "optim.warmup=3",
    "log_every=1",
    "engine=torch",
    "device=cpu",
    "threads=1",
)


def server() -> ForkServerContext:
    """The one server of this test process, with the trainer loaded."""
    context = mp.get_context("forkserver")
    # torch's optimizers load torch._inductor when they are made: seconds, in each process.
    context.set_forkserver_preload(
        ["trainer.loop", "trainer.torch_engine.engine", "torch._inductor", "support.toy_engine"]
    )
    os.environ["PYTHONPATH"] = os.pathsep.join(
        dict.fromkeys([str(REPOSITORY), str(REPOSITORY / "tests"), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    )
    return context


def run_rank(words: list[str], environment: dict[str, str], folder: str, log: str, toy: bool) -> None:
    """What a rank process does: the trainer's own entry, its output in a file. toy: with toy_engine.py."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout = os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w")
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("ORCH_", "AWS_")) or name in ("RANK", "WORLD_SIZE")]:
        del os.environ[name]
    os.environ.update(environment)
    from trainer.__main__ import exit_process, main, run_and_report_errors

    if toy:
        from support.toy_engine import open_toy

        from trainer.commands.train import train_with_engine

        exit_process(run_and_report_errors(lambda: train_with_engine(words, open_toy)))
    exit_process(main(words))


@dataclass
class Ranks:
    """One start of the trainer."""

    processes: list[ForkServerProcess]
    logs: list[Path]
    folder: Path

    def wait(self, timeout: float = 120) -> list[int]:
        """Exit statuses in rank order, as multiprocessing gives them (-9 for SIGKILL)."""
        deadline = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(0.1, deadline - time.monotonic()))
            assert process.exitcode is not None, f"still running after {timeout} s:\n{self.text()}"
        return [process.exitcode or 0 for process in self.processes]

    def ok(self) -> Ranks:
        assert self.wait() == [0] * len(self.processes), self.text()
        return self

    def text(self, rank: int | None = None) -> str:
        logs = self.logs if rank is None else [self.logs[rank]]
        return "".join(log.read_text() for log in logs if log.exists())

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def losses(self) -> dict[int, str]:
        """Loss of each step, with all its bits."""
        return {record["step"]: record["loss_hex"] for record in self.metrics()}

    def wait_for(self, text: str, rank: int = 0, timeout: float = 60) -> None:
        """Until a rank has printed this."""
        deadline = time.monotonic() + timeout
        while text not in self.text(rank):
            assert self.processes[rank].is_alive() or text in self.text(rank), f"ended:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {text!r} in:\n{self.text()}"
            time.sleep(0.01)

    def signal(self, rank: int, number: int) -> None:
        pid = self.processes[rank].pid
        assert pid is not None
        os.kill(pid, number)


@dataclass
class Launcher:
    """`launch(4, "steps=10")` starts four ranks that meet on a free port, each start in its own folder."""

    folder: Path
    corpus: Path
    started: list[Ranks] = field(default_factory=list)

    def toy(self, size: int, *words: str, environment: Mapping[str, str] | None = None) -> Ranks:
        """The same with the toy engine: no framework, and the same losses bit for bit on any number of ranks."""
        return self(size, *words, environment=environment, toy=True)

    def __call__(
        self,
        size: int,
        *words: str,
        environment: Mapping[str, str] | None = None,
        toy: bool = False,
        before: str = "train",
    ) -> Ranks:
        """before: the trainer's command."""
        place = self.folder / f"start{len(self.started)}"
        place.mkdir()
        port = free_port()
        ranks = Ranks([], [place / f"rank{rank}.log" for rank in range(size)], place)
        self.started.append(ranks)
        for rank in range(size):
            names = {
                "ORCH_RANK": str(rank),
                "ORCH_NUM_HOSTS": str(size),
                "ORCH_COORDINATOR": f"127.0.0.1:{port}",
                "ORCH_LOCAL_RANKS_PER_MACHINE": str(os.cpu_count()),
                **(environment or {}),
            }
            every = [*([] if toy else [before]), *SMALL, f"data={self.corpus}", *words]
            process = server().Process(target=run_rank, args=(every, names, str(place), str(ranks.logs[rank]), toy))
            process.start()
            ranks.processes.append(process)
        return ranks

    def end_all(self) -> None:
        for ranks in self.started:
            for process in ranks.processes:
                if process.is_alive():
                    process.kill()
                process.join(20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
