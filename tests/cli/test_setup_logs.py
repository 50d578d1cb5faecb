"""What a setup printed is shown, above all after it failed; a failure names host, exit status and error lines."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from support.orch_process import Orch
from support.sshd import sshd_farm

pytestmark = [pytest.mark.slow]

TASK = "name: mine\nresources: {infra: 'local:3'}\nsetup: |\n  echo setting up rank $ORCH_RANK\n  %s\nrun: |\n  %s\n"
FAILING = "echo 'ERROR: no wheel for torch==9' >&2; echo cleaning up; [ $ORCH_RANK != 2 ] || exit 3"


def launch(orch: Orch, setup: str, run: str, *, status: int) -> str:
    (orch.folder / "task.yaml").write_text(TASK % (setup, run))
    done = orch("launch", "task.yaml", "-c", "mine", "--yes")
    assert done.returncode == status, done.stderr
    return done.stderr


@pytest.fixture
def orch(tmp_path: Path) -> Orch:
    return Orch(tmp_path)


def test_a_failed_setup_is_shown_by_logs_and_blames_the_host_that_failed(orch: Orch) -> None:
    said = launch(orch, FAILING, "echo never", status=7)
    assert "setup failed on 1 of 3 hosts (worker2: exit 3)" in said
    assert "worker2: ERROR: no wheel for torch==9" in said.split("why:")[1], "the last line is of the clean-up"
    assert "orch logs mine --setup" in said
    for words in (("logs", "mine"), ("logs", "mine", "--setup"), ("logs", "mine", "1")):
        shown = orch(*words, "--host", "2", "--no-prefix")
        assert shown.stdout == "setting up rank 2\nERROR: no wheel for torch==9\ncleaning up\n", shown.stderr
        assert "ended before its program started" in shown.stderr
    left = orch("launch", "task.yaml", "-c", "mine", "--yes", "--detach")
    assert left.returncode == 7
    assert left.stderr.endswith("\n3 hosts keep running until: orch down mine\n"), "nothing else will end them"
    orch.ok("down", "mine", "--yes")
    assert "setting up rank 1" in orch.ok("logs", "mine")


def test_the_setup_of_an_earlier_job_and_on_another_computer(orch: Orch) -> None:
    launch(orch, "true", "echo the program", status=0)
    launch(orch, "true", "echo the second program", status=0)
    orch.ok("exec", "mine", "--", "echo", "a command")
    assert "the second program" in orch.ok("logs", "mine", "--host", "0")
    assert "a command" in orch.ok("logs", "mine", "3", "--host", "0")
    assert orch.ok("status").splitlines()[1].find("2 exit 0") > 0
    shown = orch("logs", "mine", "--setup", "--host", "1", "--no-prefix")
    assert (shown.stdout, shown.returncode) == ("setting up rank 1\n", 0)
    assert "the hosts were set up by job 1" in shown.stderr
    shutil.rmtree(orch.state / "logs")  # a computer that did not run it
    again = orch("logs", "mine", "--setup", "--host", "0", "--no-prefix", "-o", "json")
    assert [line["line"] for line in json.loads(again.stdout)["lines"]] == ["setting up rank 0"]
    orch.ok("down", "mine", "--yes")


def test_a_message_of_the_setup_itself_is_the_reason_with_its_next_step(orch: Orch) -> None:
    said = launch(
        orch, "echo 'setup: python misses: torch'; echo '  next: pip install torch'; exit 1", "true", status=7
    )
    assert re.search(r"why:  (head|worker[12]): setup: python misses: torch\n  next: orch logs mine --setup   ", said)
    assert "\n        pip install torch\n" in said
    orch.ok("down", "mine", "--yes")


def test_a_failed_program_names_the_lines_that_look_like_errors(orch: Orch) -> None:
    run = "if [ $ORCH_RANK = 1 ]; then echo 'RuntimeError: shapes differ'; echo bye; exit 4; fi; sleep 100"
    said = launch(orch, "true", run, status=4)
    assert "job 1 failed on worker1 (rank 1): exit 4" in said
    assert "RuntimeError: shapes differ" in said.split("why:")[1]
    followed = orch("logs", "mine", "-f", "--no-prefix")
    assert followed.returncode == 4
    assert "worker1 (rank 1)" in followed.stderr, "rank 0 was only stopped"
    orch.ok("down", "mine", "--yes")
    none = orch("logs", "nothing", "--setup")
    assert none.returncode == 3


def test_hosts_that_do_not_answer_are_named_beside_the_setup_of_the_others(tmp_path: Path) -> None:
    orch = Orch(tmp_path, {"SSH_AUTH_SOCK": ""})
    with sshd_farm(tmp_path / "farm", 2) as farm:
        (tmp_path / ".ssh").mkdir(mode=0o700)
        known = "".join(f"[{one.ip}]:{one.port} {one.address.host_key}\n" for one in farm.hosts)
        (tmp_path / ".ssh" / "known_hosts").write_text(known)
        addresses = ", ".join(f"'{one.ip}:{one.port}'" for one in farm.hosts)
        (tmp_path / "task.yaml").write_text(
            "name: mine\nresources: {infra: hosts, accelerators: cpu}\nnum_nodes: 2\n"
            f"hosts: {{addresses: [{addresses}], key: {farm.identity}}}\nsetup: echo setting up\nrun: echo hello\n"
        )
        orch.ok("launch", "task.yaml", "--yes")
        shutil.rmtree(orch.state / "logs")  # a computer that did not run it
        farm.hosts[1].kill()
        shown = orch("logs", "mine", "--setup", "--no-prefix", timeout=170)
        assert (shown.stdout, shown.returncode) == ("setting up\n", 8), shown.stderr
        assert "no output of the setup on host 1" in shown.stderr
        farm.hosts[0].kill()
        none = orch("logs", "mine", "--setup", timeout=170)
        assert none.returncode == 8 and "no output of the setup on" in none.stderr, none.stderr
        orch("down", "mine", "--yes", "--abandon", timeout=170)
