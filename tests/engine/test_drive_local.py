"""What a launch promises, seen on real hosts of this computer."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from support.driving import Listener, fulfil, local_task
from support.slice_names import slice_name

from orchestrator.catalog.accelerators import resolve
from orchestrator.engine.loop import results
from orchestrator.engine.loop.drive import drive_cluster
from orchestrator.engine.operations.logs import follow_logs
from orchestrator.engine.preparation import commands
from orchestrator.engine.preparation.resume import prepare_resume
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import (
    ConflictError,
    HostError,
    NotFoundError,
    StorageError,
    UntrustedRecordError,
    UserError,
)
from orchestrator.exits import Exit
from orchestrator.hosts import HostAddress
from orchestrator.paths import load_paths
from orchestrator.plan.actions import EndSlice, StopJob
from orchestrator.plan.dry_run import make_plan
from orchestrator.plan.observed import FINAL_STATES
from orchestrator.plan.steps import Done, GiveUp
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.registry import open_provider
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.host_operations import SshHostOperations
from orchestrator.slices import SliceState
from orchestrator.task.infra import parse_infra
from orchestrator.task.model import Checkpoint, FileMount, Recovery, Resources, Task, UserHost

KEEP, DOWN = TeardownPolicy.KEEP, TeardownPolicy.DOWN


def living(name: str) -> list[str]:
    """Names of slices that our record takes for living."""
    with open_reader() as reader:
        cluster = reader.cluster(name)
        return [] if cluster is None else [i.name for i in reader.intents(cluster) if i.state not in FINAL_STATES]


def test_every_host_runs_the_program_with_its_own_rank(home: Path, listener: Listener) -> None:
    task = local_task(3, run='echo "rank $ORCH_RANK of $ORCH_NUM_HOSTS, run $SKYPILOT_NODE_RANK"')
    ending = fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener)
    assert ending.status == Exit.OK
    assert [outcome.verdict for outcome in ending.outcomes] == ["exit 0"] * 3
    assert listener.outputs == {rank: f"rank {rank} of 3, run {rank}\n".encode() for rank in range(3)}


def test_down_leaves_no_slice_no_record_and_no_folder(home: Path, listener: Listener) -> None:
    fulfil(commands.prepare_launch(local_task(2, run="true"), cluster="c", after=KEEP))
    assert fulfil(commands.prepare_down("c")).status == Exit.OK
    with open_reader() as reader:
        assert reader.clusters() == ()
        installation = reader.installation()
    assert installation is not None
    assert open_provider("local", home / "state").owned(installation) == ()
    assert list((home / "state" / "local").glob("c*")) == []
    assert list((home / "state" / "keys").glob("c*")) == []


def wait_for_line(name: str, line: bytes) -> Path:
    """Wait until the program on each local host of cluster `name` has printed the line; the local folder of its log."""
    with open_reader() as reader:
        record = reader.cluster(name)
    assert record is not None
    with Fleet(record.hosts) as fleet:
        until = time.monotonic() + 20
        while not all(line in host.output for host in fleet.run("cat ~/.orch/hosts/*/jobs/*/log", timeout=60).hosts):
            assert time.monotonic() < until
            time.sleep(0.1)
    return load_paths().logs(record.uid, 1) / "attempt-0001"


def test_down_downloads_logs_that_were_not_followed(home: Path, listener: Listener) -> None:
    task = local_task(2, run='seq 1 20000; echo "last of $ORCH_RANK"; sleep 60')
    drive_cluster(commands.prepare_launch(task, cluster="c", after=KEEP), Listener(), follow=False)
    folder = wait_for_line("c", b"last of")
    assert not (folder / "1.log").exists() or b"last of" not in (folder / "1.log").read_bytes()
    assert fulfil(commands.prepare_down("c"), listener).status == Exit.OK
    for rank in (0, 1):
        expected = b"".join(b"%d\n" % number for number in range(1, 20001)) + b"last of %d\n" % rank
        assert (folder / f"{rank}.log").read_bytes() == expected
    assert not [note for note in listener.notes if "incomplete" in note]


def test_down_does_not_wait_for_hosts_that_give_no_log(
    home: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_cluster(
        commands.prepare_launch(local_task(2, run="echo here; sleep 60"), cluster="c", after=KEEP),
        Listener(),
        follow=False,
    )
    wait_for_line("c", b"here")
    monkeypatch.setattr(results, "LOG_SECONDS", 1.0)
    monkeypatch.setattr(SshHostOperations, "follow_job", lambda *_given, **_named: time.sleep(30))
    began = time.monotonic()
    assert fulfil(commands.prepare_down("c"), listener).status == Exit.OK
    assert time.monotonic() - began < 25
    assert [note for note in listener.notes if "incomplete" in note] == [
        "the log of job 1 is incomplete here: its hosts gave not all of it within 1 s"
    ]


def test_down_of_hosts_that_break_during_the_download_notes_it_and_ends_them(
    home: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_cluster(
        commands.prepare_launch(local_task(1, run="echo here; sleep 60"), cluster="c", after=KEEP),
        Listener(),
        follow=False,
    )
    wait_for_line("c", b"here")

    def broken(*_given: object, **_named: object) -> None:
        raise HostError("rank 0 does not answer")

    monkeypatch.setattr(SshHostOperations, "read_job", broken)
    assert fulfil(commands.prepare_down("c"), listener).status == Exit.OK
    assert "the log of job 1 is incomplete here: rank 0 does not answer" in listener.notes
    assert living("c") == []


def test_launching_with_down_ends_the_machines_even_when_the_program_fails(home: Path) -> None:
    ending = fulfil(commands.prepare_launch(local_task(2, run="exit 9"), cluster="c", after=DOWN))
    assert ending.status == 9
    assert living("c") == []
    with open_reader() as reader:
        assert reader.clusters() == ()


def test_a_second_launch_sends_nothing_again_and_skips_setup(home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "code.py").write_text("print('v1')")
    task = local_task(2, workdir=str(work), setup="echo once >> ~/setups", run="python3 code.py; cat ~/setups")
    first, second, third = Listener(), Listener(), Listener()
    assert fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), first).status == 0
    assert fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), second).status == 0
    (work / "code.py").write_text("print('v2')")
    assert fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), third).status == 0
    assert first.steps == ["CreateSlice", "SyncTree", "RunSetup", "StartJob", "Conclude"]
    assert second.steps == ["StartJob", "Conclude"]
    assert third.steps == ["SyncTree", "StartJob", "Conclude"]
    assert third.outputs[1] == b"v2\nonce\n"


def test_setup_runs_again_when_a_dependency_file_changes(home: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "requirements.txt").write_text("one")
    task = local_task(1, workdir=str(work), setup="echo once >> ~/setups", run="cat ~/setups")
    fulfil(commands.prepare_launch(task, cluster="c", after=KEEP))
    (work / "requirements.txt").write_text("two")
    again = Listener()
    fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), again)
    assert "RunSetup" in again.steps
    assert again.outputs[0].endswith(b"once\nonce\n")


def test_a_setup_that_fails_on_one_host_of_four_stops_before_the_program(home: Path, tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    task = local_task(
        4, setup='[ "$ORCH_RANK" != 2 ] || { echo "no space for wheels" >&2; exit 5; }', run=f"touch {canary}"
    )
    listener = Listener()
    ending = fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener)
    assert ending.status == Exit.SETUP_FAILED
    assert ending.step.what == "setup failed on 1 of 4 hosts (worker2: exit 5)"  # type: ignore[union-attr]  # it is a GiveUp
    assert ending.step.why == "worker2: no space for wheels"  # type: ignore[union-attr]  # likewise
    assert [outcome.verdict for outcome in ending.outcomes] == ["exit 0", "exit 0", "exit 5", "exit 0"]
    assert not canary.exists()
    assert living("c") == [slice_name("c")]


def test_a_copy_that_fails_on_one_host_names_it(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("x")
    fulfil(commands.prepare_launch(local_task(3), cluster="c", after=KEEP))
    blocked = fulfil(commands.prepare_exec("c", "touch ~/data", hosts=(1,), workdir=None))
    assert blocked.status == 0
    task = local_task(3, file_mounts=(FileMount("~/data", str(data)),), run="true")
    ending = fulfil(commands.prepare_launch(task, cluster="c", after=KEEP))
    assert ending.status == Exit.SETUP_FAILED
    assert "1 of 3 hosts (worker1: " in ending.step.what  # type: ignore[union-attr]  # it is a GiveUp


def test_the_first_failure_stops_the_others_and_its_code_passes_through(home: Path, tmp_path: Path) -> None:
    task = local_task(3, run='if [ "$ORCH_RANK" = 1 ]; then echo bad luck; exit 42; fi; sleep 300')
    listener = Listener()
    ending = fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener)
    assert ending.status == 42
    assert ending.step.why.endswith("bad luck")  # type: ignore[union-attr]  # likewise
    assert any(isinstance(action, StopJob) and action.ranks == (0, 2) for action in listener.actions)
    verdicts = [outcome.verdict for outcome in ending.outcomes]
    assert verdicts[1] == "exit 42"
    assert verdicts[0] == verdicts[2] == "signal TERM, ended by restart"


def test_a_program_killed_by_a_signal_is_a_failure_with_its_signal(home: Path) -> None:
    ending = fulfil(
        commands.prepare_launch(local_task(2, run="[ $ORCH_RANK = 0 ] || kill -SEGV $$"), cluster="c", after=KEEP)
    )
    assert ending.status == 128 + signal.SIGSEGV
    assert ending.outcomes[1].verdict == "signal SEGV"


def test_a_preempted_host_brings_a_new_slice_and_the_next_attempt(home: Path, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    marks = tmp_path / "marks"
    run = f'echo "$ORCH_ATTEMPT $ORCH_RUN_ID $ORCH_RESUME_FROM" >> {marks}; [ "$ORCH_ATTEMPT" = 2 ] || sleep 300'
    task = local_task(
        2, run=run, checkpoint=Checkpoint(bucket=f"file://{bucket}"), recovery=Recovery(max_preemptions=3)
    )
    listener = Listener()
    started = threading.Event()

    def preempt() -> None:
        started.wait(60)
        open_provider("local", home / "state").preempt(slice_name("c"), 1)  # type: ignore[attr-defined]  # local hosts can be

    helper = threading.Thread(target=preempt)
    helper.start()
    watcher = threading.Thread(
        target=_when, args=(lambda: marks.exists() and len(marks.read_text().split("\n")) > 2, started)
    )
    watcher.start()
    ending = fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener)
    helper.join()
    assert isinstance(ending.step, Done)
    lines = sorted(marks.read_text().splitlines())
    assert [line.split()[0] for line in lines] == ["1", "1", "2", "2"]
    assert len({line.split()[1] for line in lines}) == 1
    assert all(line.split()[2] == "latest" for line in lines[2:])
    assert living("c") == [slice_name("c", 2)]
    assert [type(action).__name__ for action in listener.actions if isinstance(action, EndSlice)] == ["EndSlice"]


def _when(condition: object, event: threading.Event) -> None:
    for _ in range(600):
        if condition():  # type: ignore[operator]  # a function without arguments
            break
        time.sleep(0.1)
    event.set()


def test_a_preemption_without_budget_ends_the_slice_and_names_the_resume_command(home: Path, tmp_path: Path) -> None:
    task = local_task(2, run="sleep 300", recovery=Recovery(max_preemptions=0))
    listener = Listener()
    ready = commands.prepare_launch(task, cluster="c", after=KEEP)
    drive_cluster(ready, Listener(), follow=False)
    open_provider("local", home / "state").preempt(slice_name("c"), 0)  # type: ignore[attr-defined]  # of this provider
    ending = fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener)
    assert ending.status == Exit.HOST_LOST
    assert living("c") == []


def test_exec_runs_beside_a_job_and_only_on_the_given_hosts(home: Path) -> None:
    drive_cluster(
        commands.prepare_launch(local_task(3, run="sleep 300"), cluster="c", after=KEEP), Listener(), follow=False
    )
    listener = Listener()
    ending = fulfil(
        commands.prepare_exec("c", "echo on $ORCH_RANK; exit $ORCH_RANK", hosts=(0, 2), workdir=None), listener
    )
    assert listener.outputs == {0: b"on 0\n", 2: b"on 2\n"}
    assert ending.status == 2
    assert [outcome.rank for outcome in ending.outcomes] == [0, 2]


def test_cancel_reports_what_continues(home: Path) -> None:
    task = local_task(1, run="sleep 300")
    drive_cluster(commands.prepare_launch(task, cluster="c", after=KEEP), Listener(), follow=False)
    drive_cluster(commands.prepare_exec("c", "sleep 300", hosts=None, workdir=None), Listener(), follow=False)
    listener = Listener()
    fulfil(commands.prepare_cancel("c", 1), listener)
    assert listener.notes == ["job 2 (exec) continues to run on 'c'"]


def read_log(job: int | None = None, hosts: tuple[int, ...] | None = None) -> dict[int, bytes]:
    """Return what `orch logs c` shows, by rank."""
    seen: dict[int, bytes] = {}

    def sink(host: HostAddress, block: bytes) -> None:
        seen[host.rank] = seen.get(host.rank, b"") + block

    follow_logs("c", job, sink, Listener(), hosts=hosts, follow=False)
    return seen


def test_a_command_does_not_hide_the_output_of_the_training(home: Path) -> None:
    task = local_task(2, run="echo training; sleep 300")
    drive_cluster(commands.prepare_launch(task, cluster="c", after=KEEP), Listener(), follow=False)
    fulfil(commands.prepare_exec("c", "echo command", hosts=(1,), workdir=None))
    wait_for_line("c", b"training")
    assert read_log() == {0: b"training\n", 1: b"training\n"}
    assert read_log(2) == {1: b"command\n"}
    for job, host in ((1, 7), (2, 0)):
        with pytest.raises(UserError, match=f"job {job} of 'c' has no host {host}"):
            read_log(job, (host,))


def test_a_command_on_a_stopped_cluster_is_refused_and_not_recorded(home: Path) -> None:
    fulfil(commands.prepare_launch(local_task(1, run="true"), cluster="c", after=KEEP))
    fulfil(commands.prepare_stop("c"))
    ready = commands.prepare_exec("c", "true", hosts=None, workdir=None)
    assert make_plan(ready.desired, ready.recorded, ready.facts).steps == ()
    ending = fulfil(ready)
    assert isinstance(ending.step, GiveUp)
    assert (ending.step.what, ending.step.next_step.command) == ("cluster 'c' is stopped", "orch start c")
    with open_reader() as reader:
        cluster = reader.cluster("c")
        assert cluster is not None and [job.id for job in reader.jobs(cluster)] == [1]


def test_logs_of_a_stopped_cluster_are_those_that_stop_downloaded(home: Path) -> None:
    task = local_task(2, run="echo $ORCH_RANK; sleep 300")
    drive_cluster(commands.prepare_launch(task, cluster="c", after=KEEP), Listener(), follow=False)
    copies = wait_for_line("c", b"\n")
    fulfil(commands.prepare_stop("c"))
    assert read_log() == {0: b"0\n", 1: b"1\n"}
    with pytest.raises(UserError, match="has no host 7"):
        read_log(hosts=(7,))
    named: set[str] = set()
    follow_logs("c", None, lambda host, _block: named.add(host.host), Listener(), hosts=None, follow=False)
    assert "deleted" not in named and len(named) == 2
    shutil.rmtree(copies)
    with pytest.raises(NotFoundError, match="cluster 'c' is stopped") as refused:
        read_log()
    assert refused.value.next_step == "orch start c"


def test_following_the_log_of_a_deleted_cluster_ends_as_its_job_did(home: Path, listener: Listener) -> None:
    fulfil(commands.prepare_launch(local_task(1, run="echo no; exit 7"), cluster="c", after=DOWN))
    seen: list[bytes] = []
    ending = follow_logs("c", None, lambda _host, block: seen.append(block), listener, hosts=None, follow=True)
    assert (ending.status, b"".join(seen)) == (7, b"no\n")
    assert re.fullmatch(
        r"cluster 'c' was deleted, \d\d:\d\d UTC; this is the copy of its output that was kept", *listener.notes
    )


def test_a_second_launch_while_a_job_runs_is_refused(home: Path) -> None:
    drive_cluster(
        commands.prepare_launch(local_task(1, run="sleep 300"), cluster="c", after=KEEP), Listener(), follow=False
    )
    with pytest.raises(ConflictError, match="still runs"):
        fulfil(commands.prepare_launch(local_task(1, run="sleep 301"), cluster="c", after=KEEP))


def test_cancel_ends_the_program_and_keeps_the_hosts(home: Path) -> None:
    drive_cluster(
        commands.prepare_launch(local_task(2, run="sleep 300"), cluster="c", after=KEEP), Listener(), follow=False
    )
    ending = fulfil(commands.prepare_cancel("c", None))
    assert ending.step == Done("job 1 is ended; the hosts of 'c' stay, until: orch down c")
    ending = fulfil(commands.prepare_exec("c", "ps -ef | grep -c '[s]leep 300' || true", hosts=None, workdir=None))
    assert ending.status == 0
    assert living("c") == [slice_name("c")]
    assert fulfil(commands.prepare_launch(local_task(2, run="true"), cluster="c", after=KEEP)).status == Exit.OK


def test_ending_a_job_touches_no_job_of_the_same_number_elsewhere(home: Path, tmp_path: Path) -> None:
    still = tmp_path / "still"
    program = f"while sleep 0.1; do echo $ORCH_RANK >> {still}; done"
    for name in ("a", "b"):
        drive_cluster(
            commands.prepare_launch(local_task(1, run=program), cluster=name, after=KEEP), Listener(), follow=False
        )
    assert fulfil(commands.prepare_cancel("a", None)).status == Exit.OK
    still.write_text("")
    time.sleep(1)
    assert still.read_text() != ""
    assert fulfil(commands.prepare_cancel("b", None)).status == Exit.OK
    still.write_text("")
    time.sleep(0.5)
    assert still.read_text() == ""


def test_a_later_cluster_of_the_same_name_shows_its_own_complete_output(home: Path) -> None:
    for words in ("first and longer", "second"):
        listener = Listener()
        fulfil(commands.prepare_launch(local_task(1, run=f"echo {words}"), cluster="c", after=DOWN), listener)
        assert listener.outputs == {0: f"{words}\n".encode()}
    seen: list[bytes] = []
    follow_logs("c", None, lambda _host, block: seen.append(block), Listener(), hosts=None, follow=False)
    assert b"".join(seen) == b"second\n"


def test_stop_and_start_keep_the_homes(home: Path) -> None:
    fulfil(commands.prepare_launch(local_task(2, run="echo kept > ~/note"), cluster="c", after=KEEP))
    assert fulfil(commands.prepare_stop("c")).status == Exit.OK
    assert open_provider("local", home / "state").observe(slice_name("c")).state is SliceState.STOPPED
    assert fulfil(commands.prepare_start("c")).status == Exit.OK
    listener = Listener()
    fulfil(commands.prepare_exec("c", "cat ~/note", hosts=None, workdir=None), listener)
    assert listener.outputs == {0: b"kept\n", 1: b"kept\n"}


def test_a_changed_host_key_is_refused_before_anything_is_sent(home: Path) -> None:
    fulfil(commands.prepare_launch(local_task(2, run="true"), cluster="c", after=KEEP))
    record = next((home / "state" / "local").glob(f"{slice_name('c')}/**/*.json"))
    text = record.read_text()
    with open_reader() as reader:
        cluster = reader.cluster("c")
    assert cluster is not None
    first, second = (host.host_key or "" for host in cluster.hosts)
    record.write_text(
        text.replace(first.split()[1], "@").replace(second.split()[1], first.split()[1]).replace("@", second.split()[1])
    )
    ending = fulfil(commands.prepare_exec("c", "touch ~/never", hosts=None, workdir=None))
    assert ending.status == Exit.IDENTITY


def test_a_run_without_bucket_cannot_be_resumed_and_the_error_explains_why(home: Path) -> None:
    fulfil(commands.prepare_launch(local_task(1, run="exit 3"), cluster="c", after=KEEP))
    with pytest.raises(UserError, match="no bucket"):
        prepare_resume("c", after=KEEP)


def test_a_finished_run_is_not_resumed_by_accident(home: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    task = local_task(1, run="true", checkpoint=Checkpoint(bucket=f"file://{tmp_path}/b"))
    fulfil(commands.prepare_launch(task, cluster="c", after=KEEP))
    with pytest.raises(ConflictError, match="succeeded"):
        prepare_resume("c", after=KEEP)


def test_a_run_of_another_computer_is_resumed_from_its_bucket(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b").mkdir()
    bucket = f"file://{tmp_path}/b"
    task = local_task(1, run='[ "$ORCH_ATTEMPT" -gt 1 ]', checkpoint=Checkpoint(bucket=bucket))
    ending = fulfil(commands.prepare_launch(task, cluster="c", after=DOWN))
    assert ending.status == 1
    monkeypatch.setenv("ORCH_HOME", str(tmp_path / "other"))
    with pytest.raises(NotFoundError, match="another computer"):
        prepare_resume(ending.run_id, after=DOWN)
    with pytest.raises(UntrustedRecordError):
        prepare_resume(ending.run_id, bucket=bucket, after=DOWN)
    again = fulfil(prepare_resume(ending.run_id, bucket=bucket, after=DOWN, consent=lambda _: None))
    assert again.status == 0
    assert again.run_id == ending.run_id
    monkeypatch.setenv("ORCH_HOME", str(home))


def test_a_bucket_that_refuses_writes_is_an_error_before_a_machine_is_made(home: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    task = local_task(1, run="true", checkpoint=Checkpoint(bucket=f"file://{blocked}/b"))
    listener = Listener()
    with pytest.raises((StorageError, NotFoundError, UserError)):
        fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener)
    assert listener.actions == []
    with open_reader() as reader:
        assert reader.clusters() == ()


def test_a_secret_reaches_the_program_and_nothing_else(home: Path, tmp_path: Path) -> None:
    from orchestrator.values import Secret

    canary = "s3cr3t-canary-value"
    task = local_task(
        1, run='printf %s "$TOKEN" | sha256sum', secret_names=("TOKEN",), secrets=(Secret("TOKEN", canary),)
    )
    listener = Listener()
    assert fulfil(commands.prepare_launch(task, cluster="c", after=KEEP), listener).status == 0
    import hashlib

    assert hashlib.sha256(canary.encode()).hexdigest().encode() in listener.outputs[0]
    leaks = [
        str(path)
        for path in home.rglob("*")
        if path.is_file() and not path.is_symlink() and canary.encode() in path.read_bytes()
    ]
    assert leaks == []
    assert os.environ.get("TOKEN") is None


def test_own_hosts_used_again_run_the_new_program(home: Path) -> None:
    fulfil(commands.prepare_launch(local_task(2, run="true"), cluster="base", after=KEEP))
    with open_reader() as reader:
        (base,) = reader.clusters()
    machines = tuple(UserHost(host=h.host, user=h.user, port=h.port, key=str(h.identity_file)) for h in base.hosts)
    choice = Resources(infra=parse_infra("hosts"), machine=resolve("cpu"))
    for words in ("first", "second"):
        listener = Listener()
        task = Task(choices=(choice,), hosts=machines, run=f"echo {words} $ORCH_RANK")
        assert fulfil(commands.prepare_launch(task, cluster="mine", after=KEEP), listener).status == 0
        assert listener.outputs == {0: f"{words} 0\n".encode(), 1: f"{words} 1\n".encode()}
        assert fulfil(commands.prepare_down("mine")).status == 0
    assert living("base") == [slice_name("base")]
