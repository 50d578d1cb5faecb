"""A rented host without conda gets Miniforge before a setup that calls conda, from a server on the loopback."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from render_support import HOST, program, run_script
from test_tool_install import Quiet

from orchestrator.catalog.installs import HostTool, ToolFile
from orchestrator.engine.preparation.host_inputs import build_setup
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup
from orchestrator.slices import HostFacts
from orchestrator.task.parse import parse_task

# Takes the options of the real installer (-b -u -p PREFIX) and makes what conda.sh of conda 25 offers to a shell.
INSTALLER = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -p) prefix=$2; shift ;; esac; shift; done
mkdir -p "$prefix/etc/profile.d" "$prefix/bin"
echo 'conda() { echo "conda $*"; }' >"$prefix/etc/profile.d/conda.sh"
echo installed by the installer
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "file").write_text(INSTALLER)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}/file"
        server.shutdown()


def set_up(home: Path, url: str, setup: str | None = "conda create -n mine", **env: str) -> tuple[int, str, str]:
    digest = hashlib.sha256(INSTALLER.encode()).hexdigest()
    tool = HostTool("miniforge", "1.2.3", (ToolFile(os.uname().machine, url, digest),))
    text = render_setup(SetupInputs(backend="cpu", user_setup=setup, conda=tool))
    assert text is not None
    done = run_script(text, home, env)
    return done.returncode, done.stdout, done.stderr


def test_conda_is_installed_once_and_its_base_is_active_in_setup_and_run(
    served: tuple[Path, str], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    status, out, err = set_up(home, served[1])
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == "setup: installing Miniforge 1.2.3"
    assert out.splitlines()[-1] == "conda create -n mine" and "conda activate base" in out
    assert (home / "miniconda3").resolve() == home / "miniforge3", "the dialect's place of it"
    assert "installing" not in set_up(home, served[1])[1]
    assert len((served[0] / "requests").read_text().splitlines()) == 1
    run = run_script(render_run(RunInputs(backend="cpu", user_run="conda activate mine")), home, HOST)
    assert run.stdout.splitlines()[-1] == "conda activate mine" and "conda activate base" in run.stdout


def test_a_task_whose_run_alone_calls_conda_gets_it_too(served: tuple[Path, str], tmp_path: Path) -> None:
    status, _, err = set_up(tmp_path / "home", served[1], setup=None)
    assert (status, err) == (0, "")
    assert (tmp_path / "home/miniforge3/etc/profile.d/conda.sh").exists()


def test_conda_of_the_host_is_used_as_it_is(served: tuple[Path, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(home / "anaconda3/etc/profile.d/conda.sh", 'conda() { echo "own $*"; }\n')
    assert set_up(home, served[1]) == (0, "own create -n mine\n", "")
    assert not (home / "miniforge3").exists()


def test_an_install_that_was_cut_off_is_done_again(served: tuple[Path, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    program(home / "miniforge3/etc/profile.d/conda.sh", "broken(\n")
    status, out, _ = set_up(home, served[1])
    assert status == 0 and out.splitlines()[-1] == "conda create -n mine"


def test_another_file_is_refused_and_a_copy_may_be_named(served: tuple[Path, str], tmp_path: Path) -> None:
    home = tmp_path / "home"
    status, _, err = set_up(home, "http://127.0.0.1:9/file")
    assert status == 1 and "ORCH_CONDA_URL in envs" in err
    assert set_up(home, "http://127.0.0.1:9/file", ORCH_CONDA_URL=served[1])[0] == 0
    (served[0] / "file").write_text(INSTALLER + "# changed\n")
    status, _, err = set_up(tmp_path / "other", served[1])
    assert status == 1 and "is not the one that orch knows" in err
    assert not (tmp_path / "other/miniforge3").exists()


@pytest.mark.parametrize(
    ("resources", "text", "installs"),
    [
        ("accelerators: v5e-8", "setup: conda create -n a", True),
        ("accelerators: v5e-8", "run: conda activate a", True),
        ("accelerators: v5e-8", "setup: bash Miniforge3.sh -b && conda env list", False),
        ("accelerators: v5e-8", "setup: pip install x", False),
        ("infra: local", "setup: conda create -n a", False),
    ],
)
def test_only_rented_machines_get_conda_and_only_for_tasks_that_expect_it(
    resources: str, text: str, installs: bool
) -> None:
    task = parse_task(f"resources: {{{resources}}}\n{text}\n", file="t.yaml", env={}).only
    made = build_setup(task, HostFacts(), (), "")
    assert (made is not None and "orch_tool=Miniforge" in made.script.reveal()) is installs
