"""`python -m trainer smoke key=value ...`: can this machine train? On every host before a paid run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from trainer.accelerators.discovery import discover
from trainer.config import Config
from trainer.environment import Run, World, read_run, read_world
from trainer.errors import Exit, StorageError
from trainer.options import parse
from trainer.smoking import stages
from trainer.smoking.stages import Bench
from trainer.smoking.table import Table
from trainer.tcp_team import join

SUMMARY = "prove that this machine can train: devices, data, sums of gradients, checkpoint, resume"

HELP = """\
Train a small model for a few steps, and prove devices, data, gradient sums, checkpoints and resumption.

  python -m trainer smoke [key=value ...]

Settings are those of a run; device= and engine= choose what is tried, data= reads from the run's own data, and a bucket
in checkpoint.uri or $ORCH_CHECKPOINT_URI is written to (below `smoke`, removed afterwards).
Exit status: 0, or that of the first stage that failed.
"""

_SMALL = ("model.dim=64", "model.layers=2", "model.heads=4", "model.kv_heads=2", "seq_len=64", "optim.warmup=1")
_ROWS = 8  # of a step, for each device


def run(words: Sequence[str]) -> int:
    """Prints a line for each stage: rank 0 all, the others what failed."""
    world, run_ = read_world(os.environ), read_run(os.environ)
    parse(words)  # before anything is made
    with _cleaned_up_when_stopped():
        own = Path(tempfile.mkdtemp(prefix="trainer-smoke-"))
        try:
            return _smoke(words, world, run_, own)
        finally:
            shutil.rmtree(own, ignore_errors=True)


@contextmanager
def _cleaned_up_when_stopped() -> Generator[None]:
    """While it is entered, SIGTERM raises SystemExit; a second one ends the process at once."""

    def stop(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(Exit.TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _smoke(words: Sequence[str], world: World, run_: Run, own: Path) -> int:
    sample = own / "text"
    sample.write_text("".join(f"line {n}: {n} and {n + 1} make {2 * n + 1}\n" for n in range(4000)))
    settings = [*_SMALL, f"batch={_ROWS * _devices(world)}", f"data.source={sample}", *words]
    config = parse(settings)
    place = _place(config, world, run_, own)
    bench = Bench(settings, own, place, world)
    table = Table(lambda line: _say(world, line), _begin if world.size == 1 and sys.stdout.isatty() else lambda _: None)
    table.stage("devices", lambda: stages.devices(config), str)
    table.stage("data", lambda: stages.data(config), str)
    try:
        _train(bench, table)
    finally:
        _clear(bench, table)
    table.end()
    return table.status


def _train(bench: Bench, table: Table) -> None:
    """The stages with processes of their own."""
    computed = table.stage("compute", lambda: stages.compute(bench), lambda found: found[0])
    if computed is not None:
        table.also("gradients", computed[1])
    looped = table.stage("loop", lambda: stages.loop(bench), lambda found: found[0])
    if not bench.place:
        why = "the hosts share no folder: give a bucket in checkpoint.uri"
        table.skip("checkpoint", why)
        table.skip("resume", why)
        return
    table.stage("checkpoint", lambda: stages.checkpoint(bench), str)
    table.stage("resume", lambda: stages.resume(bench, looped[1] if looped else ()), str)


def _clear(bench: Bench, table: Table) -> None:
    try:
        stages.clear(bench)
    except StorageError as error:
        table.write(f"note: {error}")


def _devices(world: World) -> int:
    """Of all hosts, as frameworks count them; enough for an even share each."""
    found = [device for device in discover() if device.kind != "cpu"]
    return max(world.size, sum(device.devices for device in found) * max(1, world.size // world.local_size))


def _place(config: Config, world: World, run_: Run, own: Path) -> str:
    """Where all ranks write checkpoints: below the run's own place, or in rank 0's folder on a single machine."""
    uri = config.checkpoint.uri or run_.checkpoint_uri
    if uri:
        return f"{uri.rstrip('/')}/smoke"
    if world.size == 1:
        return str(own / "checkpoints")
    team = join(world, config.dist, f"{run_.identity} smoke")
    told: list[list[str]] = team.gather([socket.gethostname(), str(own / "checkpoints")])
    team.close()
    return told[0][1] if len({host for host, _ in told}) == 1 else ""


def _begin(stage: str) -> None:
    sys.stdout.write(f"\r\x1b[K… {stage}: under way\r")
    sys.stdout.flush()


def _say(world: World, line: str) -> None:
    if world.is_first or line.startswith(("✗", "failed")):
        clear = "\x1b[K" if sys.stdout.isatty() else ""
        sys.stdout.write(f"{clear}{line}\n" if world.size == 1 else f"rank {world.rank}: {line}\n")
        sys.stdout.flush()
