"""Killed at any point and asked again: one set of hosts, or none; never two, never half a one left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from provider_support import LocalWorld, asked, eventually, make_keys, on_host

from orchestrator.errors import ConflictError
from orchestrator.providers.local import processes
from orchestrator.providers.local import record as record_module
from orchestrator.providers.local.machines import guard_of, is_up
from orchestrator.providers.local.record import Phase, is_busy, read_record, write_record
from orchestrator.providers.local.sshd import find_sshd
from orchestrator.slices import SliceState

CREATE_POINTS: dict[str, Callable[[LocalWorld], object]] = {
    "folder made": lambda world: world.paths.path.exists(),
    "record written": lambda world: world.paths.record.exists(),
    "first key written": lambda world: world.host(0).host_key.exists(),
    "last host written": lambda world: world.host(1).authorized_keys.exists(),
    "first configuration": lambda world: world.host(0).config.exists(),
    "last configuration": lambda world: world.host(1).config.exists(),
    "first guard": lambda world: world.host(0).guard.exists(),
    "last guard": lambda world: world.host(1).guard.exists(),
    "first sshd listens": lambda world: world.host(0).sshd_pid.exists(),
    "all listen": lambda world: is_up(world.host(0)) and is_up(world.host(1)),
}


def _one_set(world: LocalWorld) -> bool:
    """Guard and keeper for each host, and one sshd: exactly."""
    commands = world.processes().values()
    listeners = sum("[listener]" in command for command in commands)
    return listeners == 2 and len(commands) == 6


def _kill(pid: int, *, with_children: bool) -> None:
    children = processes.descendants(processes.snapshot(), [pid]) if with_children else []
    os.kill(pid, signal.SIGKILL)
    for child in children:
        processes.send(child, signal.SIGKILL)


@pytest.mark.parametrize("launcher", ["launcher lives", "launcher killed"])
@pytest.mark.parametrize("point", CREATE_POINTS.values(), ids=CREATE_POINTS.keys())
def test_create_killed_at_a_point_is_completed_by_the_next(
    world: LocalWorld, point: Callable[[LocalWorld], object], launcher: str
) -> None:
    creator = asked("create", world.state, world.spec, world.keys, world.folder).start()
    reached = False
    while not reached and creator.poll() is None:
        reached = bool(point(world))
    _kill(creator.pid, with_children=launcher == "launcher killed")
    creator.communicate()
    assert world.seen in (SliceState.CREATING, SliceState.READY)
    hosts = world.up()
    assert eventually(lambda: _one_set(world)), world.processes()
    assert [on_host(host, "echo $ORCH_LOCAL_HOST").stdout.split(":")[1] for host in hosts] == ["0", "1"]
    world.provider.end(world.spec.name)
    assert eventually(lambda: world.processes() == {}), world.processes()
    assert not world.paths.path.exists()


@pytest.mark.parametrize("point", list(CREATE_POINTS.values())[::3], ids=list(CREATE_POINTS)[::3])
def test_create_killed_at_a_point_can_be_ended(world: LocalWorld, point: Callable[[LocalWorld], object]) -> None:
    creator = asked("create", world.state, world.spec, world.keys, world.folder).start()
    while not point(world):
        assert creator.poll() is None
    _kill(creator.pid, with_children=False)
    creator.communicate()
    world.provider.end(world.spec.name)
    assert world.seen is SliceState.ABSENT
    assert eventually(lambda: world.processes() == {}), world.processes()


def test_half_made_slice_whose_keys_were_lost_is_built_anew(world: LocalWorld) -> None:
    old = _leave_half_made(world)
    keys = make_keys(world.folder / "again", 2)
    world.provider.create(world.spec, keys)
    hosts = world.hosts()
    assert [host.host_key for host in hosts] == list(keys.host_public)
    assert on_host(hosts[0], "echo ok").stdout == "ok\n"
    assert not set(old) & set(world.processes())
    assert eventually(lambda: _one_set(world)), world.processes()


def test_half_made_slice_says_that_it_needs_the_same_create_again(world: LocalWorld) -> None:
    _leave_half_made(world)
    view = world.provider.observe(world.spec.name)
    assert view.state is SliceState.CREATING
    assert "2 of 2 hosts are up" in view.reason
    assert "the same create continues" in view.reason


def test_many_creates_at_once_make_one_set_of_hosts(world: LocalWorld) -> None:
    creators = []
    for number in range(4):
        folder = world.folder / str(number)
        folder.mkdir()
        creators.append(asked("create", world.state, world.spec, world.keys, folder).start())
    answers = [creator.communicate(timeout=60) for creator in creators]
    assert [out.split() for out, _ in answers] == [["ready", "ready"]] * 4, answers
    assert eventually(lambda: _one_set(world)), world.processes()


@pytest.mark.parametrize("late", [0.0, 0.005, 0.01, 0.02, 0.03, 0.05])
def test_end_killed_midway_is_finished_by_the_next(world: LocalWorld, late: float) -> None:
    world.up()
    ender = asked("end", world.state, world.spec, world.keys, world.folder).start()
    while ender.poll() is None and _phase(world) is Phase.RUNNING:
        pass
    time.sleep(late)
    _kill(ender.pid, with_children=True)
    ender.communicate()
    # ENDING would mean that somebody is at it: whoever waits for that would wait for ever.
    assert world.seen in (SliceState.FAILED, SliceState.ABSENT, SliceState.CREATING)
    world.provider.end(world.spec.name)
    assert world.seen is SliceState.ABSENT
    assert eventually(lambda: world.processes() == {}), world.processes()


@pytest.mark.parametrize("late", [0.0, 0.005, 0.01, 0.02])
def test_stop_killed_midway_still_stops_every_host(world: LocalWorld, late: float) -> None:
    world.up()
    stopper = asked("stop", world.state, world.spec, world.keys, world.folder).start()
    while stopper.poll() is None and _phase(world) is Phase.RUNNING:
        pass
    time.sleep(late)
    _kill(stopper.pid, with_children=True)
    stopper.communicate()
    world.provider.stop(world.spec.name)
    assert world.seen is SliceState.STOPPED
    assert world.processes() == {}
    world.provider.start(world.spec.name)
    assert on_host(world.hosts()[0], "echo ok").stdout == "ok\n"


@pytest.mark.parametrize("late", [0.0, 0.03, 0.06, 0.1])
def test_start_killed_midway_is_completed_by_the_next(world: LocalWorld, late: float) -> None:
    world.up()
    world.provider.stop(world.spec.name)
    starter = asked("start", world.state, world.spec, world.keys, world.folder).start()
    while starter.poll() is None and _phase(world) is Phase.STOPPED:
        pass
    time.sleep(late)
    _kill(starter.pid, with_children=False)
    starter.communicate()
    assert world.seen in (SliceState.STARTING, SliceState.STOPPED, SliceState.READY)
    world.provider.start(world.spec.name)
    assert on_host(world.hosts()[1], "echo ok").stdout == "ok\n"
    assert eventually(lambda: _one_set(world)), world.processes()


def _leave_half_made(world: LocalWorld) -> dict[int, str]:
    """What a create leaves that is killed just before its last step; its processes."""
    world.up()
    record = read_record(world.paths)
    assert record is not None
    write_record(world.paths, replace(record, phase=Phase.CREATING))
    return world.processes()


def _phase(world: LocalWorld) -> Phase | None:
    record = read_record(world.paths)
    return None if record is None else record.phase


def test_launcher_of_a_killed_create_keeps_the_lock_until_its_hosts_are_up(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, slow = find_sshd().path, world.folder / "sshd"
    slow.write_text(f'#!/bin/sh\ncase $1 in -V|-t) ;; *) sleep 0.5;; esac\nexec {real} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("ORCH_SSHD", str(slow))
    creator = asked("create", world.state, world.spec, world.keys, world.folder).start()
    assert eventually(lambda: guard_of(world.host(0)) and guard_of(world.host(1)))
    _kill(creator.pid, with_children=False)
    creator.communicate()
    assert is_busy(world.paths)
    guards = [guard_of(world.host(rank)) for rank in (0, 1)]
    world.up()
    assert [guard_of(world.host(rank)) for rank in (0, 1)] == guards, "hosts that were coming up were started again"


def test_create_that_waited_for_an_end_makes_a_new_folder(world: LocalWorld) -> None:
    with _somebody_at_work(world):
        creator = asked("create", world.state, world.spec, world.keys, world.folder).start()
        assert eventually(lambda: _has_open(creator.pid, world.paths.lock))
        shutil.rmtree(world.paths.path)
    out, err = creator.communicate(timeout=60)
    assert out.split() == ["ready", "ready"], err
    assert on_host(world.hosts()[0], "echo ok").stdout == "ok\n"


def _has_open(pid: int, path: Path) -> bool:
    try:
        return str(path) in [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    except FileNotFoundError:
        return False


@contextmanager
def _somebody_at_work(world: LocalWorld) -> Generator[None]:
    """Another process that holds the lock of the slice, as one in the middle of a change does."""
    world.paths.path.mkdir(parents=True, exist_ok=True)
    code = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    argv = [sys.executable, "-c", code, str(world.paths.lock)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        try:
            yield
        finally:
            other.kill()


def test_change_waits_for_another_command_and_then_says_so(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "LOCK_LIMIT", 0.1)
    with _somebody_at_work(world):
        for change in (lambda: world.provider.create(world.spec, world.keys), lambda: world.provider.end("demo-1")):
            with pytest.raises(ConflictError, match="being changed"):
                change()
    world.provider.end("demo-1")
    assert world.seen is SliceState.ABSENT


def test_word_ending_in_ing_is_used_only_while_somebody_is_at_work(world: LocalWorld) -> None:
    world.up()
    record = read_record(world.paths)
    assert record is not None
    at_work, abandoned = {}, {}
    for phase in (Phase.STARTING, Phase.STOPPING, Phase.ENDING):
        write_record(world.paths, replace(record, phase=phase))
        with _somebody_at_work(world):
            at_work[phase] = world.seen
        abandoned[phase] = world.seen
    assert at_work == {
        Phase.STARTING: SliceState.STARTING,
        Phase.STOPPING: SliceState.STOPPING,
        Phase.ENDING: SliceState.ENDING,
    }
    assert abandoned[Phase.STARTING] is SliceState.STOPPED  # a start completes it
    assert abandoned[Phase.ENDING] is SliceState.FAILED  # an end completes it
    assert abandoned[Phase.STOPPING] is SliceState.STOPPING  # hosts are still up: their guards end them
    world.provider.end("demo-1")
    assert world.processes() == {}
