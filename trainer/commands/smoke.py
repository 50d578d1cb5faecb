"""`python -m trainer smoke key=value ...`: proves that this machine can train; for every host before a paid run."""

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

from trainer.accelerators.discovery import discover_devices
from trainer.config import Config
from trainer.environment import Run, World, read_run, read_world
from trainer.errors import Exit, StorageError
from trainer.options import parse_config
from trainer.smoke_test import stages
from trainer.smoke_test.stages import SmokeRun
from trainer.smoke_test.table import StageTable
from trainer.tcp_team import join_team

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
    """Run all stages and print a line for each: all on rank 0, failures only on the others."""
    world, run_ = read_world(os.environ), read_run(os.environ)
    parse_config(words)  # before anything is made
    with _cleaned_up_when_stopped():
        own = Path(tempfile.mkdtemp(prefix="trainer-smoke-"))
        try:
            return _smoke(words, world, run_, own)
        finally:
            shutil.rmtree(own, ignore_errors=True)


@contextmanager
def _cleaned_up_when_stopped() -> Generator[None]:
    """Raise SystemExit on SIGTERM while entered; a second SIGTERM ends the process immediately."""

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
    settings = [*_SMALL, f"batch={_ROWS * _count_devices(world)}", f"data.source={sample}", *words]
    config = parse_config(settings)
    place = _choose_place(config, world, run_, own)
    bench = SmokeRun(words=settings, folder=own, place=place, world=world)
    table = StageTable(
        write=lambda line: _print_line(world, line),
        begin=_print_progress if world.size == 1 and sys.stdout.isatty() else lambda _: None,
    )
    table.run_stage("devices", lambda: stages.check_devices(config), str)
    table.run_stage("data", lambda: stages.check_data(config), str)
    try:
        _train(bench, table)
    finally:
        _remove_checkpoints(bench, table)
    table.write_result()
    return table.status


def _train(bench: SmokeRun, table: StageTable) -> None:
    """Run the stages with their own processes."""
    computed = table.run_stage("compute", lambda: stages.check_compute(bench), lambda found: found[0])
    if computed is not None:
        table.add_passed_stage("gradients", computed[1])
    looped = table.run_stage("loop", lambda: stages.check_loop(bench), lambda found: found[0])
    if not bench.place:
        why = "the hosts share no folder: give a bucket in checkpoint.uri"
        table.skip_stage("checkpoint", why)
        table.skip_stage("resume", why)
        return
    table.run_stage("checkpoint", lambda: stages.check_checkpoint(bench), str)
    table.run_stage("resume", lambda: stages.check_resume(bench, looped[1] if looped else ()), str)


def _remove_checkpoints(bench: SmokeRun, table: StageTable) -> None:
    try:
        stages.remove_checkpoints(bench)
    except StorageError as error:
        table.write(f"note: {error}")


def _count_devices(world: World) -> int:
    """Return the devices of all hosts, as frameworks count them; at least one for each rank."""
    found = [device for device in discover_devices() if device.kind != "cpu"]
    return max(world.size, sum(device.devices for device in found) * max(1, world.size // world.local_size))


def _choose_place(config: Config, world: World, run_: Run, own: Path) -> str:
    """Return where all ranks write checkpoints: below the run's own place, or on one machine in rank 0's folder."""
    uri = config.checkpoint.uri or run_.checkpoint_uri
    if uri:
        return f"{uri.rstrip('/')}/smoke"
    if world.size == 1:
        return str(own / "checkpoints")
    team = join_team(world, config.dist, f"{run_.identity} smoke")
    places: list[list[str]] = team.gather([socket.gethostname(), str(own / "checkpoints")])
    team.close()
    return places[0][1] if len({host for host, _ in places}) == 1 else ""


def _print_progress(stage: str) -> None:
    sys.stdout.write(f"\r\x1b[K… {stage}: under way\r")
    sys.stdout.flush()


def _print_line(world: World, line: str) -> None:
    if world.is_first or line.startswith(("✗", "failed")):
        clear = "\x1b[K" if sys.stdout.isatty() else ""
        sys.stdout.write(f"{clear}{line}\n" if world.size == 1 else f"rank {world.rank}: {line}\n")
        sys.stdout.flush()
