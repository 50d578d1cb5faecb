"""Run on TPU: chips that are missing, and the all-reduce of the trainer before a run on several hosts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from render_support import HOST, program, run_script

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, render_run

FOUR = {"ORCH_ACCELERATOR": "v6e-16", "ORCH_CHIPS_PER_HOST": "4"}


def run(text: str, tmp_path: Path, nodes: tuple[str, ...], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """On a host with these device nodes, where waiting takes no time."""
    for node in nodes:
        program(tmp_path / "dev" / node, "")
    program(tmp_path / "bin" / "sleep", "#!/bin/sh\nexit 0\n")
    return run_script(
        text, tmp_path / "home", {"ORCH_DEV_DIR": str(tmp_path / "dev"), **env}, path=str(tmp_path / "bin")
    )


@pytest.mark.parametrize("backend", ["jax", "xla", "tpu"])
@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (("accel0", "accel1", "accel2"), 3),
        (("accel0", "accel1", "accel2", "accel3"), 4),
        (("vfio/vfio", "vfio/0", "vfio/1", "vfio/2"), 3),
        (("vfio/vfio", "vfio/0", "vfio/1", "vfio/2", "vfio/10"), 4),
        ((), 0),
    ],
)
def test_missing_chips_are_an_error(tmp_path: Path, backend: Backend, nodes: tuple[str, ...], found: int) -> None:
    text = render_run(RunInputs(backend=backend, user_run="echo started", holders="leave"))
    done = run(text, tmp_path, nodes, {**HOST, **FOUR})
    if found == 4:
        assert (done.stdout, done.stderr) == ("started\n", "")
        return
    assert (done.returncode, done.stdout) == (1, "")
    assert f"this host shows {found} TPU chips of 4" in done.stderr
    assert "ORCH_TPU_CHECK=0" in done.stderr
    assert run(text, tmp_path, (), {**HOST, **FOUR, "ORCH_TPU_CHECK": "0"}).stdout == "started\n"


@pytest.mark.parametrize("accelerator", ["H100:8", "local:2", ""])
def test_only_a_tpu_host_has_tpu_chips(tmp_path: Path, accelerator: str) -> None:
    text = render_run(RunInputs(backend="jax", user_run="echo started"))
    env = {**HOST, **FOUR, "ORCH_ACCELERATOR": accelerator}
    assert run(text, tmp_path, (), env).stdout == "started\n"


@pytest.mark.parametrize(
    "name", ["v2-32", "v3-32", "v4-16", "v5litepod-16", "v5p-16", "v6e-16", "tpu7x-16", "tpu-v6e-16"]
)
def test_every_name_of_a_slice_is_known(tmp_path: Path, name: str) -> None:
    text = render_run(RunInputs(backend="jax", user_run="echo started"))
    assert run(text, tmp_path, (), {**HOST, **FOUR, "ORCH_ACCELERATOR": name}).returncode == 1


def started(tmp_path: Path, env: dict[str, str], *, ends: int = 0) -> list[str]:
    """The commands of the trainer that the run script starts, and only those."""
    python = program(
        tmp_path / "bin" / "python", f'#!/bin/sh\necho "$3" >>"$HOME/starts"\n[ "$3" != network ] || exit {ends}\n'
    )
    text = render_run(RunInputs(backend="jax", trainer_args=(("steps", "1"),), device="tpu", smoke=True))
    nodes = tuple(f"accel{chip}" for chip in range(4))
    done = run(text, tmp_path, nodes, {**HOST, **FOUR, "ORCH_PYTHON": str(python), **env})
    assert done.returncode == ends
    return (tmp_path / "home" / "starts").read_text().splitlines()


def test_several_hosts_measure_their_network_before_anything_else(tmp_path: Path) -> None:
    assert started(tmp_path, {"ORCH_NUM_HOSTS": "4"}) == ["network", "smoke", "engine=jax"]


def test_one_host_measures_nothing(tmp_path: Path) -> None:
    assert started(tmp_path, {}) == ["smoke", "engine=jax"]


def test_a_network_that_fails_ends_the_run(tmp_path: Path) -> None:
    assert started(tmp_path, {"ORCH_NUM_HOSTS": "4"}, ends=4) == ["network"]
