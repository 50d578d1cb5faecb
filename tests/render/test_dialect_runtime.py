"""The run-time contract of the dialect on a host: its working directory, and what setup appends to ~/.bashrc."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from render_support import HOST, run_script

from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup

# As Ubuntu's, it does nothing in a shell that is not interactive.
UBUNTU = "case $- in\n  *i*) ;;\n  *) return ;;\nesac\nPS1='$ '\nalias ls='ls --color'\n"


def run(home: Path, program: str, *fixed: str, workdir: str | None = None, **env: str) -> str:
    """Run a program on a host with this home folder, and return its output."""
    text = render_run(RunInputs(backend="cpu", user_run=program, fixed=fixed, workdir=workdir))
    done = run_script(text, home, {**HOST, **env})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder as an image has it."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / ".bashrc").write_text(UBUNTU)
    return folder


def test_run_sees_what_setup_appended_to_bashrc(home: Path) -> None:
    setup = render_setup(
        SetupInputs(backend="cpu", user_setup="echo 'export WORD=\"two words\" PATH=$HOME/tools:$PATH' >> ~/.bashrc")
    )
    assert setup is not None and run_script(setup, home, HOST).returncode == 0
    assert run(home, 'echo "$WORD"; echo "$PATH"').splitlines()[0] == "two words"
    assert run(home, 'echo "$PATH"').startswith(f"{home}/tools:")


def test_variables_of_the_task_and_of_orch_win(home: Path) -> None:
    (home / ".bashrc").write_text(f"{UBUNTU}export LR=9 OTHER=9 ORCH_RANK=9 SKYPILOT_NODE_RANK=9\n")
    shown = run(home, 'echo "$LR $OTHER $ORCH_RANK $SKYPILOT_NODE_RANK"', "LR", LR="1", SKYPILOT_NODE_RANK="0")
    assert shown == "1 9 0 0\n"


@pytest.mark.parametrize(
    "odd",
    [
        "echo to stdout; echo to stderr >&2",
        "export VALUE=$'a\\nb'",
        "sleep 60 & disown",
        "read -r answer",
        "cd /",
        "false",
        "trap 'echo bye' EXIT",
    ],
)
def test_odd_start_files_do_no_harm(home: Path, odd: str) -> None:
    (home / ".bashrc").write_text(f"{UBUNTU}export BEFORE=1\n{odd}\nexport AFTER=1\n")
    began = time.monotonic()
    assert run(home, 'echo "$BEFORE$AFTER"; pwd') == f"11\n{home}\n"
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("broken", ["exit 3", "exec false", "if then"])
def test_a_start_file_that_ends_the_shell_is_reported_and_the_program_runs(home: Path, broken: str) -> None:
    (home / ".bashrc").write_text(f"{UBUNTU}{broken}\n")
    done = run_script(render_run(RunInputs(backend="cpu", user_run="echo ran")), home, HOST)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    if broken != "if then":
        assert "its exports are missing here" in done.stderr


def test_a_script_on_a_terminal_does_not_stop_for_it(home: Path) -> None:
    (home / "run.sh").write_text(render_run(RunInputs(backend="cpu", user_run="echo ran")))
    main, side = pty.openpty()
    env = {"HOME": str(home), "PATH": os.environ["PATH"], **HOST}
    command = [sys.executable, "-c", f"import os, pty; os._exit(pty.spawn(['bash', {str(home / 'run.sh')!r}]) >> 8)"]
    process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=env)
    os.close(side)
    assert process.wait(30) == 0
    assert b"ran" in os.read(main, 4096)
    os.close(main)


def workdir_of(home: Path) -> Path:
    return home / ".orch/host/workdir"


def test_the_dialects_working_directory_is_ours(home: Path) -> None:
    workdir_of(home).mkdir(parents=True)
    (workdir_of(home) / "train.py").write_text("mine")
    assert run(home, "cd ~/sky_workdir && cat train.py", workdir="orch_workdir") == "mine"


def test_without_a_workdir_it_is_where_programs_start(home: Path) -> None:
    run(home, "mkdir cloned")
    assert run(home, "cd ~/sky_workdir/cloned && pwd -P") == f"{home}/cloned\n"
    workdir_of(home).mkdir(parents=True)
    assert run(home, "cd ~/sky_workdir && pwd -P", workdir="orch_workdir") == f"{workdir_of(home)}\n"
    assert run(home, "cd ~/sky_workdir && pwd -P") == f"{workdir_of(home)}\n", "a command beside does not move it"


def test_a_folder_of_the_programs_own_stays(home: Path) -> None:
    workdir_of(home).mkdir(parents=True)
    (home / "sky_workdir").mkdir()
    assert run(home, "cd ~/sky_workdir && pwd -P", workdir="orch_workdir") == f"{home}/sky_workdir\n"
