"""A host that answers every question with bytes of its choice: it gets an error or a plain value, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.sshd import Farm, sshd_farm

from orchestrator.engine.operations.profile import ProfileRequest, record_on_hosts
from orchestrator.errors import OrchError
from orchestrator.hosts import EndedBy, HostJob
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.holdings import parse_inventory
from orchestrator.remote.host_operations import SshHostOperations
from orchestrator.remote.jobs import read_job_statuses
from orchestrator.remote.tree import read_tree

JOB = "0011223344556677-1-a1"
MANY = b"9" * 5000
ANSWERS = {
    "nothing": b"",
    "zeros": b"\0" * 100_000,
    "noise": bytes(range(256)) * 4000,
    "one endless line": b"orch-job " + b"a" * 3_000_000,
    "another job": b"orch-job other running - 5 1 1 training - hello\n",
    "the same job a thousand times": b"orch-job %s running - 5 1 1 training - hello\n" % JOB.encode() * 1000,
    "numbers without end": b"orch-job %s running %s %s %s %s training - x\n" % (JOB.encode(), MANY, MANY, MANY, MANY),
    "chips without end": b"orch-chips-age 1\n"
    + b"orch-chips orch-sample nvidia %s, nan, -1, %s, 5\n" % (MANY, MANY) * 1000,
    "a profile of words": b"orch-profile many few none ended\n",
    "a profile of numbers without end": b"orch-profile %s %s %s ended\n" % (MANY, MANY, MANY),
    "a failure that is none": b'orch-profile 1 0 1 ended\n{"rank": {"a": []}, "why": "\\u001b]52;c;eA==\\u0007"}\n[[\n',
    "a time": b"orch-time " + MANY + b"\n",
    "marks": b"../../x\t" + MANY + b"\n\t\t\t\n" + b"a\tb\n" * 10_000,
    "stacks": b"orch-stacks %s\n\x1b[2J" % JOB.encode(),
    "inventory": b"O../../../etc/passwd\0S81ed /etc/x\0S-rwx ./x\0Sfffffffff ./x\0Hzz\0H  \0O\0D../..\0D\0",
}


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("hostile"), 1) as found:
        yield found


@pytest.fixture(params=ANSWERS)
def hostile(request: pytest.FixtureRequest, farm: Farm) -> Farm:
    """Its login shell prints the answer in place of running anything."""
    (host,) = farm.hosts
    (host.home / "answer").write_bytes(ANSWERS[request.param])
    (host.home / ".bashrc").write_text('cat "$HOME/answer"\nexit 0\n')
    return farm


def questions(farm: Farm, folder: Path) -> dict[str, Callable[[], object]]:
    """Every way by which orch reads from hosts, but for copies, which test_files.py has."""
    hands = SshHostOperations(farm.addresses)
    fleet = Fleet(farm.addresses)
    (folder / "tree").mkdir(exist_ok=True)
    (folder / "tree" / "file").write_text("content")
    request = ProfileRequest(cluster="c", steps=1, first_only=False, into=folder, wait=3.0)
    return {
        "status": lambda: hands.read_job(JOB).jobs,
        "chips": lambda: hands.read_job(JOB, chips=True).jobs,
        "statuses": lambda: [one for found in read_job_statuses(fleet, [JOB, "b"]) for one in found.jobs],
        "marks": lambda: hands.read_marks().held,
        "stacks": lambda: hands.collect_stacks(JOB).stacks,
        "sync": lambda: hands.sync_tree(read_tree(folder / "tree"), "~/d", [0], lambda *_: None),
        "profile": lambda: record_on_hosts(fleet, JOB, "p1", request, lambda *_: None),
        "log": lambda: _follow(hands),
        "kill": lambda: hands.kill_job(JOB, EndedBy.CANCEL, 1.0, [0]),
    }


def _follow(hands: SshHostOperations) -> object:
    """A host may claim that its job runs for ever; who follows it leaves when they like."""
    stop = threading.Event()
    threading.Timer(12.0, stop.set).start()
    return hands.follow_job(JOB, lambda *_: None, {}, [0], stop=stop)


def test_no_answer_is_more_than_an_error_or_a_plain_value(hostile: Farm, tmp_path: Path) -> None:
    for name, ask in questions(hostile, tmp_path).items():
        began = time.monotonic()
        try:
            found = ask()
        except OrchError as error:
            assert "a bug" not in str(error) and len(str(error)) < 2000, name
            continue
        finally:
            assert time.monotonic() - began < 60, f"{name} takes as long as the host wants"
        for state in found if isinstance(found, list | tuple) else ():
            if isinstance(state, HostJob):
                numbers = [state.log_bytes, state.step or 0, state.exit_code or 0]
                assert max(numbers) < 1 << 53, "the store and JSON keep it exactly"
    assert not list(tmp_path.glob("**/passwd"))


def test_an_inventory_of_nonsense_holds_nothing() -> None:
    assert parse_inventory(ANSWERS["inventory"]).entries == {}
