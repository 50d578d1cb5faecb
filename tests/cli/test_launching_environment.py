"""On `local`, programs of the environment that is active where the command runs are found first."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from support.orch_process import Orch, until

TASK = """\
name: mine
resources: {infra: local}
setup: tool-of-env > said
run: cat said; tool-of-env; command -v python3
"""


def test_setup_and_run_find_the_environment_of_the_shell_that_launched(tmp_path: Path) -> None:
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(sys.executable)
    (folder / "tool-of-env").write_text("#!/bin/sh\necho tool of the environment\n")
    (folder / "tool-of-env").chmod(0o755)
    orch = Orch(tmp_path, more={"PATH": f"{folder}:{os.environ['PATH']}"}, fresh=True)
    (tmp_path / "t.yaml").write_text(TASK)
    try:
        printed = orch.ok("launch", "t.yaml", "--yes")
        assert printed.count("tool of the environment\n") == 2, printed
        assert f"{folder}/python3\n" in printed
        assert "tool of the environment\n" in orch.ok("exec", "mine", "--yes", "--", "tool-of-env")
    finally:
        orch("down", "mine", "--yes")
        orch.kill_engines()


INTERRUPTED = """\
name: mine
resources: {infra: local}
envs: {PLACE: PLACE}
setup: echo x >> $PLACE/set-up
run: cd $PLACE; echo x >> begun; while [ ! -e go ]; do sleep 0.1; done; echo finished
"""


def test_the_same_command_from_another_shell_finds_its_launch_and_repeats_no_setup(tmp_path: Path) -> None:
    """The shells differ in the Python that they find first: one of an environment, and that of the system."""
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(sys.executable)
    first = Orch(tmp_path, more={"PATH": f"{folder}:/usr/bin:/bin"}, fresh=True)
    second = Orch(tmp_path, more={"PATH": "/usr/bin:/bin"}, fresh=True)
    (tmp_path / "t.yaml").write_text(INTERRUPTED.replace(": PLACE}", f": {tmp_path}}}"))
    begun, set_up = tmp_path / "begun", tmp_path / "set-up"
    try:
        running = first.start("launch", "t.yaml", "--yes")
        until("the program runs", begun.exists)
        running.send_signal(signal.SIGKILL)
        running.wait()
        (tmp_path / "go").touch()
        said = second("launch", "t.yaml", "--yes")
        assert said.returncode == 0, said.stderr
        assert "job 1 on 'mine' succeeded" in said.stderr
        assert (begun.read_text(), set_up.read_text()) == ("x\n", "x\n"), "neither begins again"
        assert second("launch", "t.yaml", "--yes").returncode == 0
        assert (begun.read_text(), set_up.read_text()) == ("x\nx\n", "x\n"), "another run needs no setup either"
    finally:
        second("down", "mine", "--yes")
        second.kill_engines()
