"""Environment variables that the launcher sets for a rank, read once and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from .errors import ConfigError

Launcher: TypeAlias = Literal["alone", "orch", "torchrun"]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Which of the ranks this process is.

    Attributes:
        rank: From 0.
        size: Ranks in all.
        local_rank: Index among the ranks that share this machine's devices.
        local_size: Number of those ranks.
        sharers: Ranks that share this machine's processor cores; more than local_size when several local hosts are one
            machine.
        coordinator: Address at which the ranks meet; "" for a single rank.
        launcher: Who started the ranks.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    sharers: int = 1
    coordinator: str = ""
    launcher: Launcher = "alone"

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def threads(self, count: int) -> int:
        """Return this rank's processor threads: the given number, or for 0 its share of the usable cores."""
        return count or max(1, usable_cores() // self.sharers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Which run and attempt this is.

    Attributes:
        run_id: The same over all attempts.
        attempt: From 1.
        epoch: Of the start that the launcher claimed, from 1; 0 if it claimed none.
        checkpoint_uri: Where checkpoints are kept; "" for nowhere.
        resume_from: A step's folder, "latest" or "".
        heartbeat_file: Where this host's heartbeat is written.
        job: The job's folder on this host, for stacks and profiles; None without a launcher.
        key: Secret that all ranks of the run have, and no one else; empty without a launcher.
        every: Steps between the checkpoints of an own program that the task asks for; 0 if it does not.
        trusted: SHA-256 of the manifests that an own program loads without a signature; "all" for any.
        launch_id: Distinguishes this start from others at the same address.
    """

    run_id: str = "local"
    attempt: int = 1
    epoch: int = 0
    checkpoint_uri: str = ""
    resume_from: str = ""
    heartbeat_file: Path | None = None
    job: Path | None = None
    key: bytes = field(default=b"", repr=False)
    launch_id: str = ""
    every: int = 0
    trusted: frozenset[str] = frozenset()

    @property
    def identity(self) -> str:
        epoch = f" epoch {self.epoch}" if self.epoch else ""
        return f"run {self.run_id} attempt {self.attempt}{epoch}{self.launch_id and f' {self.launch_id}'}"


def read_run(environ: Mapping[str, str]) -> Run:
    """Read which run and attempt this is.

    Raises:
        ConfigError: A variable has a wrong value.
    """
    heartbeat, job = environ.get("ORCH_HEARTBEAT_FILE", ""), environ.get("ORCH_JOB_DIR", "")
    return Run(
        run_id=environ.get("ORCH_RUN_ID", "") or "local",
        attempt=_whole(environ, "ORCH_ATTEMPT", 1, least=1),
        epoch=_whole(environ, "ORCH_EPOCH", 0, least=0),
        checkpoint_uri=environ.get("ORCH_CHECKPOINT_URI", ""),
        resume_from=environ.get("ORCH_RESUME_FROM", ""),
        heartbeat_file=Path(heartbeat) if heartbeat else None,
        job=Path(job) if job else None,
        key=environ.get("ORCH_RUN_KEY", "").encode(),
        launch_id=_torchrun_start(environ),
        every=_whole(environ, "ORCH_CHECKPOINT_EVERY", 0, least=0),
        trusted=frozenset(environ.get("ORCH_TRUSTED_CHECKPOINTS", "").replace(",", " ").split()),
    )


def read_world(environ: Mapping[str, str]) -> World:
    """Read which rank this process is.

    torchrun's variables take precedence over ours: orch starts torchrun once on each host.

    Raises:
        ConfigError: A variable is missing or has a wrong value.
    """
    if environ.get("RANK") and environ.get("WORLD_SIZE"):
        return _from_torchrun(environ)
    for given, missing in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        if environ.get(given):
            raise ConfigError(f"{given}={environ[given]} without {missing}: set both, as torchrun does, or neither")
    size = _whole(environ, "ORCH_NUM_HOSTS", 1, least=1)
    rank = _whole(environ, "ORCH_RANK", 0, least=0)
    _check_rank("ORCH_RANK", rank, size)
    sharers = _whole(environ, "ORCH_LOCAL_RANKS_PER_MACHINE", 1, least=1)
    if size == 1:
        return World(sharers=sharers, launcher="orch" if "ORCH_RANK" in environ else "alone")
    coordinator = environ.get("ORCH_COORDINATOR", "")
    split_address("ORCH_COORDINATOR", coordinator)
    return World(rank=rank, size=size, sharers=sharers, coordinator=coordinator, launcher="orch")


def _torchrun_start(environ: Mapping[str, str]) -> str:
    # Its workers choose a port near MASTER_PORT, where another torchrun's workers may be.
    if not (environ.get("RANK") and environ.get("MASTER_PORT")):
        return ""
    restart = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"torchrun {environ.get('TORCHELASTIC_RUN_ID', 'none')} port {environ['MASTER_PORT']} restart {restart}"


def _from_torchrun(environ: Mapping[str, str]) -> World:
    size = _whole(environ, "WORLD_SIZE", 1, least=1)
    rank = _whole(environ, "RANK", 0, least=0)
    _check_rank("RANK", rank, size)
    # DeepSpeed's launcher sets LOCAL_SIZE instead (deepspeed/launcher/launch.py, read 2026-11-27).
    local_size = _whole(environ, "LOCAL_WORLD_SIZE", _whole(environ, "LOCAL_SIZE", 1, least=1), least=1)
    coordinator = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
    if size > 1:
        split_address("MASTER_ADDR:MASTER_PORT", coordinator)
    return World(
        rank=rank,
        size=size,
        local_rank=_whole(environ, "LOCAL_RANK", 0, least=0),
        local_size=local_size,
        sharers=max(local_size, _whole(environ, "ORCH_LOCAL_RANKS_PER_MACHINE", 1, least=1)),
        coordinator=coordinator,
        launcher="torchrun",
    )


def split_address(name: str, address: str) -> tuple[str, int]:
    """Split `10.0.0.1:29500`, `host:29500` or `[::1]:29500` into host and port.

    Raises:
        ConfigError: It has another form; the message begins with `name`.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{name}={address!r}: not an address of the form host:port")
    return host, int(port)


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def _check_rank(name: str, rank: int, size: int) -> None:
    if rank >= size:
        raise ConfigError(f"{name}={rank} is not below the number of ranks, {size}")


def _whole(environ: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise ConfigError(f"{name}={text!r}: not a whole number of at least {least}")
    return int(text)
