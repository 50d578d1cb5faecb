"""The verbs one after the other on real hosts of this computer: each host a real sshd, every call a real process."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow]
TASK = """
name: mine
resources: {infra: "local:2"}
setup: echo preparing
run: |
  echo "hello from $ORCH_RANK of $ORCH_NUM_HOSTS"
"""


@dataclass(frozen=True)
class Cluster:
    """Cluster 'mine' on two local hosts, in its own orch."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ORCH_")}
        return {**kept, "ORCH_HOME": str(self.folder / "orch"), "HOME": str(self.folder)}

    def __call__(self, *words: str, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *words],
            capture_output=True,
            text=True,
            env=self.env,
            cwd=self.folder,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "orchestrator", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.env, cwd=self.folder)


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("cli"))
    (cluster.folder / "task.yaml").write_text(TASK)
    launched = cluster("launch", "task.yaml")
    try:
        assert launched.returncode == 0, launched.stderr
        assert sorted(launched.stdout.splitlines()) == sorted(
            f"({name}, rank={rank}, {ip}) hello from {rank} of 2"
            for rank, (name, ip) in enumerate(zip(("head", "worker1"), addresses(cluster), strict=True))
        )
        assert launched.stderr.endswith("\n2 hosts keep running until: orch down mine\n")
        assert "preparing" in launched.stderr and "preparing" not in launched.stdout
        yield cluster
    finally:
        cluster("down", "mine")


def status(cluster: Cluster) -> dict[str, Any]:
    found = json.loads(cluster("status", "-o", "json").stdout)
    schema = json.loads((ROOT / "orchestrator" / "documents" / "data" / "status.schema.json").read_text())
    jsonschema.validate(found, schema)
    clusters: list[dict[str, Any]] = found["clusters"]
    return clusters[0] if clusters else {}


def addresses(cluster: Cluster) -> list[str]:
    return [host["internal_ip"] for host in status(cluster)["hosts"]]


def test_status_shows_the_hosts_and_the_finished_job(mine: Cluster) -> None:
    found = status(mine)
    assert found["state"] == "ready" and len(found["hosts"]) == 2
    assert found["jobs"][0]["status"] == 0 and found["jobs"][0]["kind"] == "launch"


def test_a_failed_hosts_status_passes_through_with_a_table(mine: Cluster) -> None:
    done = mine("exec", "mine", "--", "echo rank $ORCH_RANK; exit $((ORCH_RANK * 7))")
    assert done.returncode == 7
    assert "worker1" in done.stderr and "exit 7" in done.stderr and "host 0: exit 0" in done.stderr
    assert "rank 1" in done.stdout and "error[program-failed]" in done.stderr


def test_exec_on_the_head_without_prefix_gives_the_bytes(mine: Cluster) -> None:
    done = mine("exec", "mine", "--head", "--no-prefix", "--", "printf", "a b\\nc\\n")
    assert (done.returncode, done.stdout) == (0, "a b\nc\n"), done.stderr


def test_a_host_that_is_not_there_is_refused(mine: Cluster) -> None:
    done = mine("exec", "mine", "--host", "0,5", "--", "true")
    assert done.returncode == 2 and "no host 5" in done.stderr


def test_the_result_as_json_keeps_its_schema_and_stdout_holds_nothing_else(mine: Cluster) -> None:
    done = mine("exec", "mine", "-o", "json", "--", "echo noise; exit $ORCH_RANK")
    document = json.loads(done.stdout)
    schema = json.loads((ROOT / "orchestrator" / "cli" / "data" / "ending.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert done.returncode == 1 == document["status"]
    assert [host["exit_code"] for host in document["hosts"]] == [0, 1]
    assert "noise" in done.stderr


def test_logs_of_an_old_job_come_again_byte_by_byte(mine: Cluster) -> None:
    done = mine("logs", "mine", "1", "--no-prefix", "--host", "1")
    assert (done.returncode, done.stdout) == (0, "hello from 1 of 2\n"), done.stderr
    missing = mine("logs", "mine", "99")
    assert missing.returncode == 3


def test_logs_begin_at_the_last_lines_at_a_time_and_keep_matching_lines(mine: Cluster) -> None:
    mine("exec", "mine", "--head", "--", "printf 'one\\ntwo\\nthree'; sleep 6; printf ' four\\nfive\\n'")
    job = str(json.loads(mine("status", "mine", "-o", "json").stdout)["clusters"][0]["jobs"][-1]["id"])

    def lines(*options: str) -> str:
        done = mine("logs", "mine", job, "--no-prefix", "--host", "0", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert lines("--tail", "2") == "three four\nfive\n"
    assert lines("--tail", "0") == ""
    assert lines("--grep", "^t") == "two\nthree four\n"
    assert lines("--grep", "^t", "--tail", "2", "--follow") == "three four\n"
    assert lines("--since", "10m") == "one\ntwo\nthree four\nfive\n"
    shutil.rmtree(mine.folder / "orch" / "state" / "logs")  # so that the host is asked
    (times,) = mine.folder.parent.glob(f"**/.orch/hosts/*/jobs/*-{job}-a1/log-times")
    noted = [line.split() for line in times.read_text().splitlines()]
    assert [size for _, size in noted] == ["13", "24"], "the size after five seconds, and at the end"
    times.write_text(f"{int(noted[0][0]) - 900} 13\n{noted[1][0]} 24\n")
    assert lines("--since", "10m") == " four\nfive\n"
    assert mine("logs", "mine", "--since", "64KiB").returncode == 2
    assert mine("logs", "mine", "--grep", "(").returncode == 2


def test_files_are_uploaded_and_downloaded_completely(mine: Cluster) -> None:
    content = bytes(range(256)) * 300
    folder = mine.folder / "tree dir"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a b").write_bytes(content)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    assert mine("cp", "tree dir", "mine:").returncode == 0
    assert mine("cp", "tree dir/sub/a b", "mine/1:tree dir/").returncode == 0
    listed = mine("exec", "mine", "--host", "1", "--no-prefix", "--", "cd 'tree dir' && find . -type f | sort")
    assert listed.stdout.splitlines() == ["./a b", "./run.sh", "./sub/a b"]

    one = mine("cp", "mine/1:tree dir", "back")
    assert one.returncode == 0, one.stderr
    assert (mine.folder / "back" / "sub" / "a b").read_bytes() == content
    assert (mine.folder / "back" / "run.sh").stat().st_mode & 0o111
    both = mine("cp", "mine:tree dir/run.sh", "all/")
    assert both.returncode == 0, both.stderr
    assert {path.parent.name for path in (mine.folder / "all").glob("*/run.sh")} == {"head", "worker1"}
    assert not list(mine.folder.glob(".orch-cp-*"))


def test_a_copy_never_deletes_what_is_there(mine: Cluster) -> None:
    for name in ("first", "second"):
        (mine.folder / name).write_text(name)
        assert mine("cp", name, "mine:kept/").returncode == 0
    done = mine("exec", "mine", "--head", "--no-prefix", "--", "ls kept")
    assert done.stdout.split() == ["first", "second"]


def test_a_copy_that_fails_names_the_host_and_its_message(mine: Cluster) -> None:
    done = mine("cp", "mine:nothing here", "x/")
    assert done.returncode == 3 and "worker1" in done.stderr and "does not exist" in done.stderr
    assert not (mine.folder / "x").exists(), "nothing came"
    assert mine("exec", "mine", "--head", "--", "touch of-head").returncode == 0
    some = mine("cp", "mine:of-head", "some/")
    assert some.returncode == 3 and "host 0: copied" in some.stderr and "of-head does not exist" in some.stderr
    assert [path.name for path in (mine.folder / "some").iterdir()] == ["head"]
    missing = mine("cp", "no such file", "mine:")
    assert missing.returncode == 2 and "no such file" in missing.stderr


def test_previews_of_copies_and_commands_do_nothing(mine: Cluster) -> None:
    (mine.folder / "one").write_text("1")
    assert "would copy 1 file" in mine("cp", "one", "mine:preview-one", "--dry-run").stderr
    assert mine("exec", "mine", "--dry-run", "--", "touch preview-two").returncode == 0
    done = mine("exec", "mine", "--head", "--no-prefix", "--", "ls preview-* 2>/dev/null | wc -l")
    assert done.stdout.strip() == "0"


def test_ssh_is_the_same_host_with_a_pinned_key(mine: Cluster) -> None:
    done = mine("ssh", "mine", "1", "--", "cat .orch/hosts/*/jobs/*-1-a1/log")
    assert (done.returncode, done.stdout) == (0, "hello from 1 of 2\n"), done.stderr
    assert mine("ssh", "mine", "--", "exit 9").returncode == 9


def test_ctrl_c_detaches_and_the_job_continues(mine: Cluster) -> None:
    program = "trap 'echo asked to stop' TERM; for i in $(seq 40); do echo tick $i; sleep 0.1; done; exit 4"
    with mine.start("exec", "mine", "--", program) as process:
        assert process.stdout is not None and process.stderr is not None
        assert "tick 1" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        words = process.stderr.read()
    job = status(mine)["jobs"][-1]
    assert job["state"] == "running"
    assert f"job {job['id']} continues to run" in words and f"orch logs -f mine {job['id']}" in words
    assert "orch cancel mine" in words and "error" not in words and "Traceback" not in words
    followed = mine("logs", "-f", "mine", str(job["id"]), "--no-prefix", "--host", "1")
    assert followed.returncode == 4, followed.stderr
    assert followed.stdout.splitlines() == [f"tick {number}" for number in range(1, 41)]
    assert status(mine)["jobs"][-1]["status"] == 4


def test_a_detached_job_can_be_cancelled(mine: Cluster) -> None:
    started = mine("exec", "mine", "--detach", "--", "sleep 300")
    assert started.returncode == 0, started.stderr
    number = status(mine)["jobs"][-1]["id"]
    assert "would" not in mine("cancel", "mine", "--dry-run").stderr
    left = mine("exec", "mine", "--head", "--no-prefix", "--", "pgrep -f 'sleep 300' | wc -l")
    assert left.returncode != 0 or int(left.stdout) >= 1
    cancelled = mine("cancel", "mine", str(number))
    assert cancelled.returncode == 0, cancelled.stderr
    assert mine("status", "mine", "--refresh").returncode == 0
    assert status(mine)["jobs"][-1]["state"] == "ended" or status(mine)["jobs"][-2]["state"] == "ended"


def test_a_pipe_that_closes_ends_logs_but_not_the_job(mine: Cluster) -> None:
    assert mine("exec", "mine", "-d", "--", "while true; do echo yes; sleep 0.01; done").returncode == 0
    try:
        with mine.start("logs", "mine", "-f") as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(30) == 141
            assert process.stderr.read() == ""
        assert status(mine)["jobs"][-1]["state"] == "running"
    finally:
        assert mine("cancel", "mine").returncode == 0


def test_a_preempted_host_is_seen_by_refresh_and_down_leaves_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    (tmp_path / "task.yaml").write_text(TASK)
    assert cluster("launch", "task.yaml", "-c", "other").returncode == 0
    guards = processes_under(tmp_path)
    assert guards
    assert cluster("local", "preempt", "other", "1").returncode == 0
    assert cluster("status", "--refresh").returncode == 0
    assert status(cluster)["state"] == "preempted"
    ended = cluster("down", "other", "-o", "json")
    assert ended.returncode == 0 and json.loads(ended.stdout)["message"] == "cluster 'other' is deleted"
    assert status(cluster) == {}
    document = json.loads(cluster("runs", "-o", "json").stdout)
    jsonschema.validate(
        document, json.loads((ROOT / "orchestrator" / "documents" / "data" / "runs.schema.json").read_text())
    )
    (run,) = document["runs"]
    assert (run["cluster"], run["owner"], run["result"], run["dollars"]) == ("other", getpass.getuser(), "succeeded", 0)
    detail = cluster("runs", run["run_id"]).stdout
    assert "succeeded" in detail and "other" in detail
    assert run["run_id"] in cluster("runs").stdout and max(map(len, cluster("runs").stdout.splitlines())) <= 100
    assert cluster("runs", "no-such-run").returncode == 3
    deadline = time.monotonic() + 10
    while processes_under(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes_under(tmp_path) == []


@pytest.mark.core
def test_launch_with_down_leaves_nothing_and_keeps_the_programs_status(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    (tmp_path / "task.yaml").write_text(TASK.replace("setup: echo preparing", "") + "  exit 5\n")
    done = cluster("launch", "task.yaml", "--down")
    assert done.returncode == 5, done.stderr
    assert status(cluster) == {}
    assert "hello from 0 of 2" in done.stdout


def processes_under(folder: Path) -> list[int]:
    """Processes that name this folder in their arguments."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(folder) in arguments:
                found.append(int(entry.name))
    return found
