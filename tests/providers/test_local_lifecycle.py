"""Create, stop, start, preempt and end local slices; nothing outlives them, and nothing is taken for something else."""

from __future__ import annotations

import os
import signal
import socket
import stat
from dataclasses import replace

import pytest
from provider_support import (
    INSTALLATION,
    LocalWorld,
    asked,
    eventually,
    is_alive,
    leave_on_host,
    living,
    make_keys,
    make_spec,
    on_host,
)

from orchestrator.errors import CloudError, ConflictError, NotFoundError, UserError
from orchestrator.providers.local import processes
from orchestrator.providers.local.machines import guard_of
from orchestrator.providers.local.record import read_record
from orchestrator.slices import SliceState
from orchestrator.values import Text

# What a program may do to get away from whoever started it.
ESCAPES = {
    "plain": "sleep 1000",
    "setsid and nohup": "setsid nohup sleep 1000",
    "without its environment": "env -i setsid sleep 1000",
    "orphan without its environment": "env -i sh -c 'setsid sh -c \"sleep 1000 & wait\" & exec sleep 1000'",
    "deaf to signals": "sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1000; done'",
}


def _guard(world: LocalWorld, rank: int) -> processes.Process:
    guard = guard_of(world.host(rank))
    assert guard is not None
    return guard


def _tree(world: LocalWorld, rank: int) -> dict[str, int]:
    """The pids of guard, keeper and sshd of a host."""
    table, guard = processes.snapshot(), _guard(world, rank)
    keeper = next(process for process in table.values() if process.parent == guard.pid)
    below = {process.pid for process in table.values() if process.parent == keeper.pid}  # also orphans of sessions
    (sshd,) = below & set(living("[listener]"))
    return {"guard": guard.pid, "keeper": keeper.pid, "sshd": sshd}


def _without_sessions(world: LocalWorld, rank: int) -> list[int]:
    """What is below a host's guard, once the SSH sessions that started it have gone."""
    assert eventually(lambda: not set(_below(world, rank)) & set(living("sshd: ")) - set(living("[listener]")))
    return _below(world, rank)


def _below(world: LocalWorld, rank: int) -> list[int]:
    return [process.pid for process in processes.descendants(processes.snapshot(), [_guard(world, rank).pid])]


def test_ended_slice_leaves_no_process_and_no_folder(world: LocalWorld) -> None:
    hosts = world.up()
    left = [leave_on_host(host, "setsid nohup sleep 1000") for host in hosts]
    assert all(map(is_alive, left))
    world.provider.end(world.spec.name)
    assert not any(map(is_alive, left))
    assert world.processes() == {}
    assert not (world.state / "local").exists()
    assert world.seen is SliceState.ABSENT


def test_ending_what_is_absent_succeeds(world: LocalWorld) -> None:
    world.provider.end(world.spec.name)
    assert world.seen is SliceState.ABSENT
    assert not world.state.exists()


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES.keys())
def test_preempting_one_host_ends_all_it_ran_and_nothing_of_the_others(world: LocalWorld, escape: str) -> None:
    hosts = world.up()
    for host in hosts:
        leave_on_host(host, escape)
    assert eventually(lambda: len(_below(world, 1)) > 2)
    gone, stays = _without_sessions(world, 1), _without_sessions(world, 0)
    world.provider.preempt(world.spec.name, 1)
    assert [pid for pid in gone if is_alive(pid)] == []
    assert all(map(is_alive, stays))
    view = world.provider.observe(world.spec.name)
    assert view.state is SliceState.PREEMPTED
    assert view.hosts == ()
    assert "host 1" in view.reason
    assert on_host(hosts[1], "true").returncode == 255
    world.provider.end(world.spec.name)
    assert [pid for pid in stays if is_alive(pid)] == []


@pytest.mark.parametrize(
    "victims", [["guard"], ["keeper"], ["sshd"], ["guard", "keeper"], ["guard", "keeper", "sshd"]], ids="+".join
)
@pytest.mark.parametrize("escape", ["plain", "setsid and nohup"])
def test_host_whose_processes_are_killed_dies_as_a_whole(world: LocalWorld, victims: list[str], escape: str) -> None:
    hosts = world.up()
    left = leave_on_host(hosts[0], ESCAPES[escape])
    tree = _tree(world, 0)
    for name in victims:
        os.kill(tree[name], signal.SIGKILL)
    if len(victims) == 1:  # whoever is left of the three sees to it, without the provider
        assert eventually(lambda: not any(map(is_alive, [left, *tree.values()])))
    assert eventually(lambda: world.seen is SliceState.PREEMPTED)
    world.provider.end(world.spec.name)
    assert not any(map(is_alive, [left, *tree.values()]))
    assert eventually(lambda: world.processes() == {})


@pytest.mark.parametrize("victim", ["guard", "keeper"])
def test_orphans_without_a_mark_die_with_the_guard_or_the_keeper(world: LocalWorld, victim: str) -> None:
    leave_on_host(world.up()[0], ESCAPES["orphan without its environment"])
    assert eventually(lambda: len(_below(world, 0)) >= 5)
    tree, below = _tree(world, 0), _below(world, 0)
    os.kill(tree[victim], signal.SIGKILL)
    assert eventually(lambda: not any(map(is_alive, below)))


def test_frozen_host_can_be_ended(world: LocalWorld) -> None:
    leave_on_host(world.up()[0], "sleep 1000")
    frozen = [_guard(world, 0).pid, *_without_sessions(world, 0)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    assert world.seen is SliceState.READY  # a provider does not see that a machine hangs
    world.provider.end(world.spec.name)
    assert not any(map(is_alive, frozen))


def test_unwritable_folders_in_a_home_do_not_stop_the_end(world: LocalWorld) -> None:
    host = world.up()[0]
    assert on_host(host, "mkdir -p a/b/c && touch a/b/c/file && chmod -R a-w a && chmod 0 a/b").returncode == 0
    world.provider.end(world.spec.name)
    assert not world.paths.path.exists()


def test_second_create_with_the_same_token_changes_nothing(world: LocalWorld) -> None:
    first = world.up()
    before = world.processes()
    assert world.up() == first
    assert world.processes() == before


def test_other_token_is_a_conflict_and_touches_nothing(world: LocalWorld) -> None:
    world.up()
    before = world.processes()
    with pytest.raises(ConflictError, match="another request"):
        world.provider.create(replace(world.spec, token=Text.of("token-2")), world.keys)
    assert world.processes() == before
    assert world.seen is SliceState.READY


def test_same_token_with_other_keys_is_a_conflict_once_the_slice_is_made(world: LocalWorld) -> None:
    world.up()
    with pytest.raises(ConflictError, match="other keys"):
        world.provider.create(world.spec, make_keys(world.folder / "others", 2))
    assert world.seen is SliceState.READY


def test_create_of_a_preempted_slice_does_not_revive_it(world: LocalWorld) -> None:
    world.up()
    world.provider.preempt(world.spec.name, 0)
    world.provider.create(world.spec, world.keys)
    assert world.seen is SliceState.PREEMPTED


def test_stopped_slice_has_no_processes_and_comes_back_with_its_homes(world: LocalWorld) -> None:
    hosts = world.up()
    for host in hosts:
        assert on_host(host, f"echo of-rank-{host.rank} > kept").returncode == 0
    left = leave_on_host(hosts[0], "setsid nohup sleep 1000")
    world.provider.stop(world.spec.name)
    assert world.seen is SliceState.STOPPED
    assert not is_alive(left)
    assert world.processes() == {}
    world.provider.start(world.spec.name)
    again = world.hosts()
    assert [(host.alias, host.host_key) for host in again] == [(host.alias, host.host_key) for host in hosts]
    assert [on_host(host, "cat kept").stdout for host in again] == ["of-rank-0\n", "of-rank-1\n"]


def test_stop_and_start_can_be_asked_again(world: LocalWorld) -> None:
    world.up()
    world.provider.start(world.spec.name)
    assert world.seen is SliceState.READY
    world.provider.stop(world.spec.name)
    world.provider.stop(world.spec.name)
    assert world.seen is SliceState.STOPPED


def test_preempted_slice_can_only_be_ended(world: LocalWorld) -> None:
    world.up()
    world.provider.preempt(world.spec.name, 1)
    world.provider.preempt(world.spec.name, 1)
    for verb in (world.provider.stop, world.provider.start):
        with pytest.raises(ConflictError, match="preempted"):
            verb(world.spec.name)
    assert world.seen is SliceState.PREEMPTED
    world.provider.end(world.spec.name)
    assert world.seen is SliceState.ABSENT


def test_verbs_on_an_absent_slice_say_so_and_make_nothing(world: LocalWorld) -> None:
    with pytest.raises(NotFoundError):
        world.provider.stop(world.spec.name)
    with pytest.raises(NotFoundError):
        world.provider.start(world.spec.name)
    with pytest.raises(NotFoundError):
        world.provider.preempt(world.spec.name, 0)
    assert not world.state.exists()


def test_preempting_a_rank_that_is_not_there_is_refused(world: LocalWorld) -> None:
    world.up()
    for rank in (2, -1):
        with pytest.raises(UserError, match=f"no host {rank}"):
            world.provider.preempt(world.spec.name, rank)
    assert world.seen is SliceState.READY


@pytest.mark.parametrize("name", ["../x", "a/b", "", "Upper", "-x", "x-", ".hidden", "a" * 64])
def test_name_that_could_leave_the_folder_is_refused(world: LocalWorld, name: str) -> None:
    with pytest.raises(UserError, match="cannot name a slice"):
        world.provider.observe(name)


def test_port_taken_while_the_slice_was_stopped_is_avoided(world: LocalWorld) -> None:
    taken = [(host.host, host.port) for host in world.up()]
    world.provider.stop(world.spec.name)
    with socket.socket() as other:
        other.bind(taken[1])
        other.listen()
        world.provider.start(world.spec.name)
        hosts = world.hosts()
        assert (hosts[0].host, hosts[0].port) == taken[0]
        assert hosts[1].port != taken[1][1]
        assert on_host(hosts[1], "echo ok").stdout == "ok\n"


def test_other_process_with_the_number_of_a_dead_guard_is_not_taken_for_it(world: LocalWorld) -> None:
    world.up()
    guard = _guard(world, 0)
    world.provider.preempt(world.spec.name, 0)
    stranger = os.fork()
    if stranger == 0:
        signal.pause()
        os._exit(0)
    try:
        world.host(0).guard.write_text(f"{stranger} {guard.start}\n")
        assert guard_of(world.host(0)) is None
        world.provider.end(world.spec.name)
        assert is_alive(stranger)
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)


def test_unreadable_record_is_unclear_and_never_absent(world: LocalWorld) -> None:
    world.up()
    good = world.paths.record.read_text()
    for bad in ("", "{", '{"name": "demo-1"}', "[]", '{"phase": "dancing"}'):
        world.paths.record.write_text(bad)
        assert world.seen is SliceState.UNCLEAR
        with pytest.raises(CloudError, match="cannot be read"):
            world.provider.end(world.spec.name)
        with pytest.raises(CloudError, match="cannot be read"):
            world.provider.owned(INSTALLATION)
    assert world.processes(), "the hosts of a slice that cannot be read were ended"
    world.paths.record.write_text(good)
    world.provider.end(world.spec.name)
    assert world.processes() == {}


def test_files_of_a_slice_are_for_their_owner_only(world: LocalWorld) -> None:
    world.up()
    assert stat.S_IMODE(world.paths.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(world.host(0).host_key.stat().st_mode) == 0o600
    assert stat.S_IMODE(world.host(0).home.stat().st_mode) == 0o700


def test_record_holds_no_private_key(world: LocalWorld) -> None:
    world.up()
    assert "PRIVATE" in world.host(0).host_key.read_text()
    assert "PRIVATE" not in world.paths.record.read_text()


def test_hosts_survive_the_command_that_made_them_and_its_whole_process_group(world: LocalWorld) -> None:
    creator = asked("create", world.state, world.spec, world.keys, world.folder).start()
    out, err = creator.communicate(timeout=60)
    assert out.split() == ["ready", "ready"], err
    with pytest.raises(ProcessLookupError):
        os.killpg(creator.pid, signal.SIGKILL)  # nobody of its group is left
    assert on_host(world.hosts()[0], "echo ok").stdout == "ok\n"


def test_owned_lists_every_slice_of_the_installation_in_whatever_state(world: LocalWorld) -> None:
    others = [make_spec(name, hosts=1, token=name) for name in ("other-1", "other-2")]
    foreign = replace(make_spec("foreign-1", hosts=1), labels=(("orch-installation", Text.of("somebody else")),))
    for spec in (*others, foreign):
        world.provider.create(spec, make_keys(world.folder / spec.name, 1))
    world.provider.preempt("other-2", 0)
    found = {(owned.name, owned.cluster, owned.state) for owned in world.provider.owned(INSTALLATION)}
    assert found == {("other-1", "other", SliceState.READY), ("other-2", "other", SliceState.PREEMPTED)}
    for spec in (*others, foreign):
        world.provider.end(spec.name)
    assert world.provider.owned(INSTALLATION) == ()


def test_places_are_remembered_as_they_are_used(world: LocalWorld) -> None:
    hosts = world.up()
    record = read_record(world.paths)
    assert record is not None
    assert [(place.host, place.port) for place in record.places] == [(host.host, host.port) for host in hosts]
