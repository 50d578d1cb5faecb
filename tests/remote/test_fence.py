"""A host obeys the newest owner alone: every command presents an epoch and an installation, compared on the host."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.orch_process import until
from support.sshd import Farm

from orchestrator.hosts import (
    EndedBy,
    Failure,
    Fence,
    HostAddress,
    HostOutcome,
    JobPhase,
    hosts_from_json,
    hosts_to_json,
)
from orchestrator.remote.fence import guard_command
from orchestrator.remote.files import fetch_tree, put_files
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.host_folder import FORMAT
from orchestrator.remote.host_operations import SshHostOperations
from orchestrator.remote.jobs import follow_job
from orchestrator.remote.tree import read_tree

OLD = Fence(epoch=1, installation="aaaaaaaaaaaa", owner="ann@one")
NEW = Fence(epoch=2, installation="bbbbbbbbbbbb", owner="bob@two")


def presenting(farm: Farm, fence: Fence | None) -> tuple[HostAddress, ...]:
    return tuple(replace(host, fence=fence) for host in farm.addresses)


def set_version(farm: Farm, version: int) -> None:
    for host in farm.hosts:
        (host.rank_folder / "format").write_text(f"{version}\n")


def list_files(farm: Farm) -> list[list[str]]:
    return [sorted(str(path) for path in host.home.rglob("*")) for host in farm.hosts]


def owner(farm: Farm, rank: int = 0) -> list[str]:
    return (farm.hosts[rank].rank_folder / "owner").read_text().split()


def test_the_first_command_owns_a_host_and_a_higher_epoch_takes_it_over(farm: Farm) -> None:
    with Fleet(presenting(farm, OLD)) as old, Fleet(presenting(farm, NEW)) as new:
        assert old.run("echo one", timeout=60).ok and owner(farm)[:3] == ["1", OLD.installation, "ann@one"]
        assert old.run("echo again", ranks=[0], timeout=60).by_rank(0).output == b"again\n"
        assert new.run("echo two", timeout=60).by_rank(1).output == b"two\n"
        refused = old.run("echo three; touch ran", timeout=60)
        assert not any((host.home / "ran").exists() for host in farm.hosts)
        for outcome in refused.outcomes:
            assert outcome.failure is Failure.TAKEN_OVER and outcome.exit_code is None
            assert "by installation bbbbbbbbbbbb (bob@two) at 20" in outcome.detail and "epoch 2" in outcome.detail
        assert new.run("true", timeout=60).ok and owner(farm)[:2] == ["2", NEW.installation]


def test_the_same_epoch_of_another_installation_is_refused(farm: Farm) -> None:
    with Fleet(presenting(farm, OLD)) as old, Fleet(presenting(farm, replace(NEW, epoch=1))) as other:
        assert old.run("true", timeout=60).ok
        assert {one.failure for one in other.run("true", timeout=60).outcomes} == {Failure.TAKEN_OVER}


def test_of_two_that_take_over_at_the_same_moment_one_wins(farm: Farm) -> None:
    fences = [replace(NEW, installation=f"{number:012d}") for number in range(6)]
    results: list[HostOutcome] = []

    def take(fence: Fence) -> None:
        with Fleet(presenting(farm, fence)[:1]) as fleet:
            results.extend(fleet.run("true", timeout=60).outcomes)

    threads = [threading.Thread(target=take, args=(fence,)) for fence in fences]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(one.ok for one in results) == 1
    assert sum(one.failure is Failure.TAKEN_OVER for one in results) == len(fences) - 1


def _put(fleet: SshHostOperations, folder: Path) -> tuple[HostOutcome, ...]:
    return put_files(fleet._fleet, {"put": b"content"}).outcomes


def _fetch(fleet: SshHostOperations, folder: Path) -> tuple[HostOutcome, ...]:
    return fetch_tree(fleet._fleet, ".orch", lambda host: folder / host.label).outcomes


def _sync(hands: SshHostOperations, folder: Path) -> tuple[HostOutcome, ...]:
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("content")
    return hands.sync_tree(read_tree(folder), "tree", (0, 1), lambda _done, _total: None)


SEND = pytest.mark.parametrize(
    "send",
    [
        lambda hands, _folder: hands.run_script(b"touch ran\n", (0, 1)),
        lambda hands, _folder: hands.start_job("job", b"touch ran\n", lambda _host: b"", (0, 1)),
        lambda hands, _folder: hands.kill_job("job", EndedBy.CANCEL, 0.1, (0, 1)),
        lambda hands, _folder: hands.read_job("job").failed,
        lambda hands, _folder: hands.read_marks().failed,
        lambda hands, _folder: hands.write_mark("label", "digest"),
        lambda hands, _folder: hands.collect_stacks("job").failed,
        _put,
        _fetch,
        _sync,
    ],
)


@SEND
def test_every_operation_is_refused_after_a_take_over(
    farm: Farm, tmp_path: Path, send: Callable[[SshHostOperations, Path], tuple[HostOutcome, ...]]
) -> None:
    with Fleet(presenting(farm, NEW)) as new:
        assert new.run("true", timeout=60).ok
    before = [sorted(path.name for path in host.home.iterdir()) for host in farm.hosts]
    hands = SshHostOperations(presenting(farm, OLD))
    try:
        outcomes = send(hands, tmp_path / "folder")
    finally:
        hands.close()
    assert [one.failure for one in outcomes] == [Failure.TAKEN_OVER] * 2, outcomes
    assert [sorted(path.name for path in host.home.iterdir()) for host in farm.hosts] == before


@SEND
def test_every_operation_is_refused_by_a_folder_of_another_version(
    farm: Farm, tmp_path: Path, send: Callable[[SshHostOperations, Path], tuple[HostOutcome, ...]]
) -> None:
    with Fleet(presenting(farm, OLD)) as fleet:
        assert fleet.run("true", timeout=60).ok
    set_version(farm, FORMAT + 1)
    before = list_files(farm)
    hands = SshHostOperations(presenting(farm, OLD))
    try:
        outcomes = send(hands, tmp_path / "folder")
    finally:
        hands.close()
    assert [one.failure for one in outcomes] == [Failure.OTHER_VERSION] * 2, outcomes
    assert list_files(farm) == before


def test_the_log_of_a_folder_of_another_version_is_not_read(farm: Farm) -> None:
    hands = SshHostOperations(presenting(farm, OLD))
    assert all(one.ok for one in hands.start_job("job", b"echo said\n", lambda _host: b"", (0, 1)))
    until("its end", lambda: all(one.phase is JobPhase.FINISHED for one in hands.read_job("job").jobs))
    set_version(farm, FORMAT + 1)
    heard: list[bytes] = []
    ended = follow_job(hands._fleet, "job", lambda _host, block: heard.append(block))
    hands.close()
    assert heard == [] and [one.failure for one in ended.outcomes] == [Failure.OTHER_VERSION] * 2


def test_of_two_versions_that_meet_a_new_host_at_the_same_moment_one_is_refused(farm: Farm) -> None:
    results: list[HostOutcome] = []
    newer = guard_command("true", OLD).replace(f" orch {FORMAT} ", f" orch {FORMAT + 1} ")
    newer = newer.replace(f'= "{FORMAT} ', f'= "{FORMAT + 1} ')
    barrier = threading.Barrier(2)

    def send(fence: Fence | None, line: str) -> None:
        with Fleet(presenting(farm, fence)[:1]) as fleet:
            assert fleet.reachable(timeout=60).ok
            barrier.wait()
            results.extend(fleet.run(line, timeout=60).outcomes)

    threads = [threading.Thread(target=send, args=one) for one in ((OLD, "true"), (None, newer))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.ok for one in results) == [False, True], results


def test_following_a_log_reads_on_and_then_says_who_has_the_host(farm: Farm) -> None:
    hands = SshHostOperations(presenting(farm, OLD))
    assert all(one.ok for one in hands.start_job("job", b"echo said\n", lambda _host: b"", (0, 1)))
    until("its end", lambda: all(one.phase is JobPhase.FINISHED for one in hands.read_job("job").jobs))
    with Fleet(presenting(farm, NEW)) as new:
        assert new.run("true", timeout=60).ok
    heard: list[bytes] = []
    ended = follow_job(hands._fleet, "job", lambda _host, block: heard.append(block))
    hands.close()
    assert heard == [b"said\n"] * 2
    assert [one.failure for one in ended.outcomes] == [Failure.TAKEN_OVER] * 2


def test_a_full_or_read_only_home_refuses_no_one(farm: Farm) -> None:
    (farm.hosts[0].home / ".orch").write_text("a file where the folder should be")
    with Fleet(presenting(farm, OLD)) as old:
        assert old.run("echo ran", ranks=[0], timeout=60).by_rank(0).output == b"ran\n"
        (farm.hosts[1].rank_folder / "owner").mkdir(parents=True)  # cannot be written either
        assert old.run("echo ran", ranks=[1], timeout=60).by_rank(1).output == b"ran\n"


def test_a_host_that_answers_nonsense_is_no_take_over(farm: Farm) -> None:
    with Fleet(presenting(farm, OLD)) as old:
        said = "printf 'orch-taken-over 5 \\033[31m x y\\n'; exit 79"
        assert [one.exit_code for one in old.run(said, timeout=60).outcomes] == [79, 79]
        assert [one.exit_code for one in old.run("exit 79", timeout=60).outcomes] == [79, 79]


def test_a_fence_is_no_part_of_the_stored_address(farm: Farm) -> None:
    hosts = presenting(farm, OLD)
    assert OLD.installation not in hosts_to_json(hosts) and hosts_from_json(hosts_to_json(hosts)) == hosts
    assert hosts == tuple(farm.addresses) and hash(hosts[0]) == hash(farm.addresses[0])


def test_the_comparison_costs_no_process_and_no_round_trip(farm: Farm) -> None:
    """The best of several rounds, each with and without a fence; a fork alone would cost a millisecond."""
    with Fleet(presenting(farm, None)[:1]) as plain, Fleet(presenting(farm, OLD)[:1]) as fenced:
        assert plain.run("true", timeout=60).ok and fenced.run("true", timeout=60).ok
        best: dict[str, float] = {}
        for _, (name, fleet) in itertools.product(range(25), (("plain", plain), ("fenced", fenced))):
            began = time.perf_counter()
            assert fleet.run("true", timeout=60).ok
            best[name] = min(best.get(name, 1.0), time.perf_counter() - began)
        print(best)
        assert best["fenced"] < best["plain"] * 1.5 + 0.002
