"""What is refused, asked and suggested, through the command line as a process."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.s3 import s3_server

from orchestrator.plan.observed import IntentState
from orchestrator.slices import Candidate, Spot
from orchestrator.store.leases import Lease
from orchestrator.store.store import Store

Orch = Callable[..., Any]


def on_a_terminal(*words: str, answer: bytes) -> tuple[int, str]:
    """Run a command on a terminal, answer its first question, and return its exit status and output."""
    main, side = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "orchestrator", *words], stdin=side, stdout=side, stderr=side)
    os.close(side)
    seen = b""
    try:
        while b"[y/N]" not in seen:
            seen += os.read(main, 4096)
        os.write(main, answer)
        while True:
            seen += os.read(main, 4096)
    except OSError:  # Linux reports the end of a terminal as EIO
        pass
    finally:
        os.close(main)
    return process.wait(60), seen.decode()


@pytest.mark.parametrize("verb", ["down", "stop"])
def test_ending_the_hosts_of_a_running_job_asks_on_a_terminal(filled: Path, verb: str) -> None:
    status, shown = on_a_terminal(verb, "mine", answer=b"n\n")
    assert status == 1 and "job 2 (exec" in shown and "is running on 'mine'" in shown
    assert "you declined" in shown and "nothing was done" in shown


@pytest.mark.parametrize("verb", ["down", "stop"])
def test_the_plan_says_which_job_ends(orch_process: Orch, filled: Path, verb: str) -> None:
    said = orch_process(verb, "mine", "-y", "--dry-run").err
    assert "note: job 2 (exec) is running on 'mine'; it ends with the machines" in said


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("launch", "the question before money is spent"),
        ("down", "the question about running jobs"),
        ("reap", "the question before the orphans are ended"),
        ("stop", "the question about running jobs"),
        ("cancel", "this command asks nothing"),
    ],
)
def test_help_of_yes_says_what_it_skips(orch_process: Orch, home: Path, command: str, text: str) -> None:
    shown = " ".join(orch_process(command, "--help", env={"COLUMNS": "110"}).out.split())
    assert text in shown


@pytest.mark.parametrize(
    "words",
    [
        ("status", "mone"),
        ("status", "mone", "--refresh"),
        ("queue", "mone"),
        ("events", "mone"),
        ("logs", "mone"),
        ("ssh", "mone"),
        ("cp", "mone:a", "b"),
        ("exec", "mone", "--", "true"),
        ("watch", "mone"),
        ("profile", "mone"),
        ("stop", "mone"),
        ("start", "mone"),
        ("down", "mone"),
        ("cancel", "mone"),
        ("local", "preempt", "mone", "0"),
        ("resume", "mone"),
        ("pull", "mone"),
    ],
)
def test_a_mistyped_cluster_gets_the_nearest_name(orch_process: Orch, filled: Path, words: tuple[str, ...]) -> None:
    done = orch_process(*words)
    assert done.status == 3 and "did you mean mine?" in done.err, done.err


@pytest.mark.parametrize("words", [("status", "other"), ("exec", "other", "--", "true"), ("stop", "other")])
def test_a_deleted_cluster_is_said_to_be_deleted(orch_process: Orch, filled: Path, words: tuple[str, ...]) -> None:
    done = orch_process(*words)
    assert done.status == 3 and re.search(r"cluster 'other' was deleted, \d\d:\d\d UTC", done.err), done.err
    assert "orch runs -c other" in done.err and "orch logs other" in done.err


def test_a_second_down_succeeds(orch_process: Orch, filled: Path) -> None:
    done = orch_process("down", "other")
    assert (done.status, done.err) == (0, "cluster 'other' is already deleted\n")


@pytest.mark.parametrize("verb", ["resume", "pull"])
def test_a_mistyped_run_gets_the_nearest_names_also_of_deleted_clusters(
    orch_process: Orch, filled: Path, verb: str
) -> None:
    assert "did you mean other?" in orch_process(verb, "othor").err
    assert "did you mean run-a?" in orch_process(verb, "run-aa").err


@pytest.fixture
def spot_task(home: Path, tmp_path: Path) -> str:
    """A cluster 'mine' of spot machines on record, and the task file that created it."""
    candidate = Candidate(
        provider="gcp",
        accelerator="v5litepod-16",
        hosts=4,
        chips_per_host=4,
        market=Spot(),
        region="us-west4",
        zone="us-west4-a",
    )
    with Store(home / "state" / "orch.db") as store:
        mine = store.open_cluster("mine", "v5litepod-16 on gcp")
        lease = store.acquire("cluster:mine", "test")
        assert isinstance(lease, Lease)
        store.write_intent(lease, mine, 1, "mine-1", candidate, "token-1", "{}")
        store.update_intent(lease, mine, "mine-1", IntentState.ACCEPTED)
        store.release(lease)
    place = "infra: gcp/us-west4/us-west4-a, accelerators: v5litepod-16, use_spot: true"
    (tmp_path / "task.yaml").write_text(f"resources: {{{place}}}\nrun: echo hi\n")
    return str(tmp_path / "task.yaml")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--no-use-spot",), "--no-use-spot"),
        (("--disk-size", "500"), "--disk-size"),
        (("--infra", "gcp/us-east5/us-east5-a"), "--infra"),
        (("--num-nodes", "2"), "machines"),
    ],
)
def test_an_option_that_cannot_apply_to_existing_machines_is_refused(
    orch_process: Orch, spot_task: str, words: tuple[str, ...], option: str
) -> None:
    for preview in ((), ("--dry-run",)):
        done = orch_process("launch", spot_task, "-c", "mine", *words, *preview)
        assert done.status == 6 and option in done.out + done.err, done.err


def test_an_option_that_agrees_with_existing_machines_is_accepted(orch_process: Orch, spot_task: str) -> None:
    done = orch_process("launch", spot_task, "-c", "mine", "--use-spot", "--infra", "gcp/us-west4", "--dry-run")
    assert done.status == 0, done.err


def test_ls_of_a_bucket_that_does_not_exist_fails(orch_process: Orch, home: Path) -> None:
    with s3_server() as server:
        env = {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
        done = orch_process("storage", "ls", "s3://no-such-bucket", env={**env, "AWS_REGION": "us-east-1"})
    assert done.status == 3 and "there is no bucket s3://no-such-bucket" in done.err, done.err


def test_config_unset_removes_one_key_and_keeps_the_rest(orch_process: Orch, home: Path) -> None:
    path = Path(orch_process("config", "path").out.strip())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# mine\n[resources]\nuse_spot = true  # cheap\ndisk_size = 300\n")
    done = orch_process("config", "unset", "resources.use_spot")
    assert done.status == 0 and path.read_text() == "# mine\n[resources]\ndisk_size = 300\n"
    again = orch_process("config", "unset", "resources.use_spot")
    assert again.status == 0 and "resources.use_spot is not set in" in again.out, "again changes nothing"
    unknown = orch_process("config", "unset", "resources.use_spott")
    assert unknown.status == 2 and "use_spot" in unknown.err


def test_config_has_the_keys_of_task_files(orch_process: Orch, home: Path) -> None:
    done = orch_process("config", "set", "checkpoint.bucket", "gs://mine")
    assert done.status == 0 and "checkpoint.bucket = gs://mine is set in" in done.out
    assert "gs://mine" in orch_process("config", "explain", "checkpoint.bucket").out
    assert orch_process("config", "set", "config.gcp.vpc_name", "mine").status == 0
    assert "mine" in orch_process("config", "explain", "gcp.vpc_name").out
    assert orch_process("config", "unset", "checkpoint.bucket").status == 0
    assert "gs://mine" not in orch_process("config", "list").out


def test_an_interactive_shell_shows_that_its_cloud_is_simulated(home: Path) -> None:
    main, side = pty.openpty()
    command = [sys.executable, "-m", "orchestrator", "simulate", "aws", "--", "bash"]
    process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side)
    os.close(side)
    seen = b""
    try:
        while b"(orch simulated aws) " not in seen:
            seen += os.read(main, 4096)
        os.write(main, b"exit 3\n")
        while True:
            seen += os.read(main, 4096)
    except OSError:  # Linux reports the end of a terminal as EIO
        pass
    finally:
        os.close(main)
    assert process.wait(60) == 3


def test_a_task_file_for_a_cloud_gets_commands_that_work(orch: Orch, tmp_path: Path) -> None:
    file = tmp_path / "11.yaml"
    file.write_text("resources: {accelerators: v5e-8}\nrun: ls\n")
    said = orch("check", "gcp", str(file))
    assert said.status == 2 and f"next: orch check gcp   for the account; orch plan {file}   for the task" in said.err
