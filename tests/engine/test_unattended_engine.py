"""What an unattended engine does with jobs that people detach, stop, take down, cancel and repeat in odd orders."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

LONG = """
name: mine
resources: {infra: "local:1"}
run: |
  echo "attempt $ORCH_ATTEMPT ${TOKEN:-}" >> "$MARKS"
  for i in $(seq 300); do [ -e "$GO" ] && exit 0; sleep 0.2; done
  exit 9
"""


@pytest.fixture(params=["plain"])
def orch(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Orch]:
    folder = tmp_path / str(request.param)
    folder.mkdir()
    (folder / "long.yaml").write_text(LONG)
    for word in ("two", "three"):
        (folder / f"{word}.yaml").write_text(
            f"name: mine\nresources: {{infra: 'local:1'}}\nrun: echo {word} $TOKEN >> $MARKS\n"
        )
    orch = Orch(folder, {"MARKS": str(tmp_path / "marks"), "GO": str(tmp_path / "go")})
    yield orch
    (tmp_path / "go").write_text("")
    for name in ("mine", "other"):
        orch("down", name)
    until("no engine is left", lambda: not orch.engines(), 40)


def launch(orch: Orch, task: str = "long", *more: str, detach: bool = True) -> str:
    names = ("--env", "MARKS", "--env", "GO", *(("--detach",) if detach else ()))
    done = orch("launch", f"{task}.yaml", *names, *more)
    assert done.returncode == 0, done.stderr
    return done.stderr


def jobs(orch: Orch) -> dict[int, tuple[str, int | None, str]]:
    """State, status and what of every job of every cluster called mine, gone or not, by number, newest cluster."""
    from orchestrator.store.store import Store

    with Store(orch.state / "orch.db") as store:
        record = store.cluster("mine")
        found = store.jobs(record) if record is not None else _jobs_of_deleted_clusters(orch)
    return {job.id: (job.state, job.status, job.what) for job in found}


def _jobs_of_deleted_clusters(orch: Orch) -> Any:
    from orchestrator.store.read import open_reader_at

    with open_reader_at(orch.state / "orch.db") as reader:
        record = reader.deleted_cluster("mine")
        return reader.jobs(record) if record is not None else ()


def marks(orch: Orch) -> list[str]:
    path = Path(orch.more["MARKS"])
    return [line.strip() for line in path.read_text().splitlines()] if path.exists() else []


def go(orch: Orch) -> None:
    Path(orch.more["GO"]).write_text("")


def machines(orch: Orch) -> list[str]:
    """Return the slices that run, as their provider reports them."""
    from orchestrator.providers.local.provider import LocalProvider
    from orchestrator.slices import SliceState
    from orchestrator.store.read import open_reader_at

    with open_reader_at(orch.state / "orch.db") as reader:
        installation = reader.installation() or ""
    owned = LocalProvider(orch.state).owned(installation)
    return [one.name for one in owned if one.state is not SliceState.ABSENT]


def test_down_ends_the_job_that_runs_and_those_that_wait_and_nothing_comes_back(orch: Orch) -> None:
    launch(orch)
    until("it runs", lambda: marks(orch) == ["attempt 1"])
    launch(orch, "two")
    launch(orch, "three")
    said = orch("down", "mine")
    assert said.returncode == 0
    assert "2 queued jobs of 'mine' ended too" in said.stderr
    until("the engine ends", lambda: not orch.engines())
    assert machines(orch) == []
    assert json.loads(orch.ok("status", "-o", "json"))["clusters"] == []
    assert {number: job[:2] for number, job in jobs(orch).items()} == {
        1: ("ended", 130),
        2: ("ended", 130),
        3: ("ended", 130),
    }
    assert marks(orch) == ["attempt 1"]


def test_a_stopped_cluster_stays_stopped_and_its_queue_resumes_after_start(orch: Orch) -> None:
    launch(orch)
    until("it runs", lambda: marks(orch) == ["attempt 1"])
    launch(orch, "two")
    said = orch("stop", "mine")
    assert said.returncode == 0, said.stderr
    assert "1 job left in the queue until: orch start mine" in said.stderr
    time.sleep(4)
    (cluster,) = json.loads(orch.ok("status", "-o", "json"))["clusters"]
    assert (cluster["state"], cluster["wanted"]) == ("stopped", "stopped")
    assert jobs(orch)[1][:2] == ("ended", 130)
    (waiting,) = json.loads(orch.ok("queue", "-o", "json"))["jobs"]
    assert "stopped (orch start)" in waiting["driven_by"]
    refused = orch("watch", "mine")
    assert (refused.returncode, "orch start mine" in refused.stderr) == (6, True), refused.stderr
    orch.ok("start", "mine")
    until("the queued job has run", lambda: jobs(orch)[2][1] == 0)
    assert marks(orch) == ["attempt 1", "two"]


def test_a_job_that_was_left_with_ctrl_c_does_not_block_the_queue_behind_it(orch: Orch) -> None:
    front = orch.start("launch", "long.yaml", "--env", "MARKS", "--env", "GO")
    until("it runs", lambda: marks(orch) == ["attempt 1"])
    front.send_signal(signal.SIGINT)
    _, said = front.communicate(timeout=30)
    assert front.returncode == 130
    assert "orch watch mine" in said
    launch(orch, "two")
    go(orch)
    until("the queued job has run", lambda: jobs(orch)[2][1] == 0)
    assert jobs(orch)[1][:2] == ("ended", 0)


def test_a_job_never_started_by_a_killed_launch_does_not_block_the_queue(orch: Orch) -> None:
    (orch.folder / "slow.yaml").write_text("name: mine\nresources: {infra: 'local:1'}\nsetup: sleep 60\nrun: 'true'\n")
    front = orch.start("launch", "slow.yaml")
    until("its record is there", lambda: (orch.state / "orch.db").exists() and bool(jobs(orch)))
    time.sleep(1)
    front.kill()
    front.communicate()
    launch(orch, "two")
    until("the second job has run", lambda: jobs(orch).get(2, ("", None))[1] == 0, 100)
    assert jobs(orch)[1][:2] == ("ended", 130)


def test_down_at_the_end_waits_for_the_queue_and_the_last_one_does_it(orch: Orch) -> None:
    launch(orch, "long", "--down")
    launch(orch, "two")
    launch(orch, "three")
    until("it runs", lambda: marks(orch) == ["attempt 1"])
    go(orch)
    until("all is gone", lambda: not json.loads(orch.ok("status", "-o", "json"))["clusters"])
    assert marks(orch) == ["attempt 1", "two", "three"]
    assert {job[1] for job in jobs(orch).values()} == {0}
    assert machines(orch) == []
    assert orch.ok("events", "mine").count(" planned,") == 1, "the cluster was created again for the queue"


def test_the_same_command_twice_is_one_job(orch: Orch) -> None:
    launch(orch)
    launch(orch, "two")
    assert "this same command, and it is running" in launch(orch)
    assert "this same command, and it waits in the queue" in launch(orch, "two")
    assert sorted(jobs(orch)) == [1, 2]


def test_cancel_without_a_number_ends_the_job_that_runs_not_one_that_waits(orch: Orch) -> None:
    launch(orch)
    until("it runs", lambda: marks(orch) == ["attempt 1"])
    launch(orch, "two")
    orch.ok("cancel", "mine")
    until("the next one has run", lambda: jobs(orch)[2][1] == 0)
    assert jobs(orch)[1][1] == 130
    assert marks(orch) == ["attempt 1", "two"]


def test_each_detached_job_gets_the_secret_it_was_launched_with(orch: Orch) -> None:
    launch(orch, "long", "--secret", "TOKEN=first-word")
    launch(orch, "two", "--secret", "TOKEN=second-word")
    launch(orch, "three", "--env", "TOKEN=plain")
    until("it runs", lambda: marks(orch) == ["attempt 1 first-word"])
    go(orch)
    until("all have run", lambda: jobs(orch)[3][1] == 0)
    assert marks(orch) == ["attempt 1 first-word", "two second-word", "three plain"]
    store = b"".join(path.read_bytes() for path in orch.state.glob("orch.db*"))
    assert b"second-word" not in store
    assert b"second-word" not in (orch.state / "engine.log").read_bytes()


def test_an_engine_without_the_secret_reports_it_and_a_watch_with_it_continues(orch: Orch) -> None:
    launch(orch, "long", "--secret", "TOKEN=first-word")
    until("it runs", lambda: marks(orch) == ["attempt 1 first-word"])
    for process in orch.engines():
        os.kill(process, signal.SIGKILL)  # as a reboot of this computer would
    idle = orch("serve", "--engine-only", "--until-idle", timeout=30)
    assert idle.returncode == 0
    assert "secret TOKEN has no value" in orch.ok("events")
    refused = orch("watch", "mine")
    assert (refused.returncode, "TOKEN" in refused.stderr) == (2, True)
    go(orch)
    done = Orch(orch.folder, {**orch.more, "TOKEN": "first-word"})("watch", "mine")
    assert done.returncode == 0, done.stderr
    assert jobs(orch)[1][1] == 0


def test_two_watchers_beside_an_engine_keep_each_line_once(orch: Orch) -> None:
    (orch.folder / "talk.yaml").write_text(
        "name: mine\nresources: {infra: 'local:1'}\nrun: |\n"
        '  i=0; until [ -e "$GO" ]; do i=$((i + 1)); echo line $i; sleep 0.02; done; echo "last $i"\n'
    )
    launch(orch, "talk")
    watchers = [orch.start("watch", "mine") for _ in range(2)]
    for watcher in watchers:
        assert watcher.stdout is not None
        assert watcher.stdout.readline()  # it watches, however slowly it started
    go(orch)
    for watcher in watchers:
        _, said = watcher.communicate(timeout=60)
        assert watcher.returncode == 0, said
    (log,) = orch.state.glob("logs/**/attempt-0001/0.log")
    lines = [line for line in log.read_text().splitlines() if line.startswith(("line", "last"))]
    assert lines == [*(f"line {number}" for number in range(1, len(lines))), f"last {len(lines) - 1}"]


@pytest.mark.parametrize("orch", ["with a space"], indirect=True)
def test_a_home_with_a_space_is_served(orch: Orch) -> None:
    launch(orch)
    until("it runs", lambda: marks(orch) == ["attempt 1"])
    go(orch)
    until("it succeeds", lambda: jobs(orch)[1][1] == 0)


@pytest.mark.parametrize("orch", ['it\'s a "home"'], indirect=True)
def test_a_home_path_that_sshd_cannot_use_is_refused_in_few_lines(orch: Orch) -> None:
    done = orch("launch", "two.yaml", "--env", "MARKS", "--detach")
    assert done.returncode == 2
    assert "a folder with a plain name" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_engine_ends_immediately_and_quietly_on_request(orch: Orch, number: signal.Signals) -> None:
    launch(orch)
    until("it runs", lambda: bool(orch.engines()) and marks(orch) == ["attempt 1"])
    for process in orch.engines():
        os.kill(process, number)
    until("it ends", lambda: not orch.engines(), 15)
    log = (orch.state / "engine.log").read_text()
    assert not re.search(r"Traceback|Fatal|Exception", log), log
    go(orch)
    assert orch("watch", "mine").returncode == 0
