"""The hosts of one slice as processes: write their files, start them, see who lives, end them for certain."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import CloudError
from orchestrator.private_files import make_private_folder, write_whole
from orchestrator.providers.local import processes
from orchestrator.providers.local.addresses import keep_free
from orchestrator.providers.local.guard import UP, mark_of
from orchestrator.providers.local.layout import CLEAN_PATH, HostFolder, SlicePaths
from orchestrator.providers.local.record import SliceRecord, write_record
from orchestrator.providers.local.sshd import SESSION_SCRIPT, Account, Sshd, check, config
from orchestrator.remote.admit_program import make_admit_program

END_LIMIT = 30.0  # seconds until every process of a slice must be gone
_START_TRIES = 3
_PORT_TAKEN = os.strerror(errno.EADDRINUSE)  # between our look and sshd's bind
_PACKAGE_ROOT = Path(__file__).resolve().parents[3]
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from orchestrator.providers.local.guard import main; sys.exit(main(sys.argv[2:]))"
)


def write_host(paths: SlicePaths, record: SliceRecord, rank: int, private_key: str) -> None:
    """The part of a host that stays the same when it is stopped and started."""
    folder = paths.host(rank)
    make_private_folder(folder.home)
    write_whole(folder.host_key, private_key if private_key.endswith("\n") else private_key + "\n")
    write_whole(folder.authorized_keys, record.user_public.strip() + "\n")


def start_hosts(
    paths: SlicePaths, record: SliceRecord, ranks: Sequence[int], sshd: Sshd, who: Account, lock: int
) -> SliceRecord:
    """Start these hosts, all at once, and return the record with their ports. Raises CloudError."""
    write_whole(paths.session, SESSION_SCRIPT, mode=0o700)
    failed = dict.fromkeys(ranks, "not tried yet")
    for attempt in range(_START_TRIES):
        waiting = list(failed)
        end_hosts(paths, record, waiting)  # what a killed create left half started
        record = replace(record, places=keep_free(record.places, waiting, other=attempt > 0))
        write_record(paths, record)
        for rank in waiting:
            _write_config(paths, record, rank, sshd, who)
        check(sshd, paths.host(waiting[0]))
        failed = _launch(paths, record, waiting, sshd, lock)
        if not failed:
            return record
        if not all(_PORT_TAKEN in why for why in failed.values()):
            break
    end_hosts(paths, record, list(failed))  # they are on their way out: see them gone
    rank, why = next(iter(failed.items()))
    raise CloudError(
        f"{len(failed)} of {len(ranks)} local hosts did not start, the first is host {rank}",
        why,
        f"see {paths.host(rank).log}",
    )


def is_up(folder: HostFolder, find: processes.Finder = processes.find) -> bool:
    """Is the host alive, and has its sshd begun to listen?"""
    return guard_of(folder, find) is not None and folder.sshd_pid.exists()


def guard_of(folder: HostFolder, find: processes.Finder = processes.find) -> processes.Process | None:
    """The living process that stands for the host."""
    try:
        pid, _, start = folder.guard.read_text(encoding="utf-8").strip().partition(" ")
    except FileNotFoundError:
        return None
    found = find(int(pid))
    return found if found is not None and found.start == start and not found.zombie else None


def end_hosts(paths: SlicePaths, record: SliceRecord, ranks: Sequence[int]) -> None:
    """End every process of these hosts, and see that they are gone. Raises CloudError for what cannot be ended."""
    marks = [mark_of(record.id, rank) for rank in ranks]
    if len(ranks) == len(record.places):
        marks = [mark_of(record.id)]
    guards = [guard for rank in ranks if (guard := guard_of(paths.host(rank))) is not None]
    for guard in guards:  # each clears its own host; a command killed right here leaves nothing running
        processes.send(guard, signal.SIGTERM)

    def standing(table: processes.Table) -> list[processes.Process]:
        return [found for guard in guards if (found := table.get(guard.pid)) is not None and guard.is_same(found)]

    def below(table: processes.Table) -> list[processes.Process]:
        under = processes.descendants(table, [guard.pid for guard in standing(table)])
        return [*under, *(process for mark in marks for process in processes.carrying(table, mark))]

    def all_of_them(table: processes.Table) -> list[processes.Process]:
        return [*standing(table), *below(table)]

    # The guards go last: while they live, whatever is orphaned on the way stays below them.
    left = processes.sweep(below, limit=END_LIMIT) or processes.sweep(all_of_them, limit=END_LIMIT)
    if left:
        pids = " ".join(str(process.pid) for process in left)
        raise CloudError(
            f"local slice '{record.name}' is still running",
            f"these processes cannot be ended from here: {pids}",
            f"sudo kill -9 {pids}   then: orch down {record.cluster}",
        )
    for rank in ranks:
        paths.host(rank).guard.unlink(missing_ok=True)
        paths.host(rank).sshd_pid.unlink(missing_ok=True)


def _write_config(paths: SlicePaths, record: SliceRecord, rank: int, sshd: Sshd, who: Account) -> None:
    folder = paths.host(rank)
    mark = mark_of(record.id, rank)
    write_whole(folder.admit, make_admit_program(str(folder.admitted)) + "\n", mode=0o700)
    write_whole(folder.config, config(sshd, who, folder, record.places[rank], paths.session, mark))


def _launch(paths: SlicePaths, record: SliceRecord, ranks: Sequence[int], sshd: Sshd, lock: int) -> dict[int, str]:
    """Run guard.main for these ranks; what went wrong, by rank."""
    numbers = ",".join(map(str, ranks))
    argv = [sys.executable, "-I", "-S", "-c", _BOOT, str(_PACKAGE_ROOT)]
    argv += [str(lock), str(sshd.path), str(paths.path), record.id, numbers]
    environment = {"PATH": CLEAN_PATH, "LANG": "C.UTF-8"}
    environment |= {name: os.environ[name] for name in ("TZ", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd="/",
        pass_fds=(lock,),
        start_new_session=True,
    )
    said = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    words = [line for line in done.stderr.strip().splitlines() if line]
    silent = words[-1] if words else f"its launcher ended with status {done.returncode}"
    answers = {rank: said.get(str(rank), silent) for rank in ranks}
    return {rank: answer for rank, answer in answers.items() if answer != UP}
