"""The bundled trainer's scripts beyond one command: the smoke test, TorchTPU, an image's own torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from render_support import HOST, TRAINER_ROOT, program, recorded, run_script

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup

ARGS = (("model", "tiny"), ("data", "s3://b/books"), ("mesh.fsdp", "4"), ("dtype", "bf16"))
# Plays the interpreter: writes its arguments down, one line a start, and ends as the test wants.
PLAYED = """#!/bin/sh
case "$*" in *find_spec*|*version_info*|*set_tpu_launch_env*|*metadata*) exec "$REAL" "$@" ;; esac
echo "${RANK:--} $*" >>"$HOME/starts"
case "$3" in smoke) exit "${SMOKE:-0}" ;; esac
exit "${RUN:-0}"
"""


def played(tmp_path: Path) -> dict[str, str]:
    python = program(tmp_path / "bin" / "played", PLAYED)
    return {**HOST, "ORCH_PYTHON": str(python), "REAL": sys.executable}


def starts(tmp_path: Path) -> list[str]:
    return (tmp_path / "home" / "starts").read_text().splitlines()


@pytest.mark.parametrize("backend", ["cpu", "jax"])
def test_the_smoke_test_comes_first_with_the_settings_of_devices_and_data(tmp_path: Path, backend: Backend) -> None:
    text = render_run(RunInputs(backend=backend, trainer_args=ARGS, device="cpu", smoke=True))
    done = run_script(text, tmp_path / "home", played(tmp_path))
    assert done.returncode == 0, done.stderr
    engine = "jax" if backend == "jax" else "torch"
    words = f"engine={engine} device=cpu"
    assert starts(tmp_path) == [
        f"- -m trainer smoke {words} data=s3://b/books dtype=bf16",
        f"- -m trainer {words} model=tiny data=s3://b/books mesh.fsdp=4 dtype=bf16",
    ]


@pytest.mark.parametrize(("backend", "processes"), [("cpu", 1), ("cuda", 2)])
def test_a_smoke_test_that_fails_is_the_end(tmp_path: Path, backend: Backend, processes: int) -> None:
    text = render_run(RunInputs(backend=backend, trainer_args=ARGS, smoke=True))
    env = {**played(tmp_path), "SMOKE": "5", "ORCH_RANKS_PER_HOST": str(processes)}
    done = run_script(text, tmp_path / "home", env)
    assert done.returncode == 5
    assert "the smoke test failed (exit 5); the run was not begun" in done.stderr.splitlines()[-1]
    assert len(starts(tmp_path)) == processes and all(" smoke " in line for line in starts(tmp_path))


def test_with_one_process_a_device_both_start_once_on_each(tmp_path: Path) -> None:
    text = render_run(RunInputs(backend="cuda", trainer_args=ARGS, smoke=True))
    done = run_script(text, tmp_path / "home", {**played(tmp_path), "RUN": "75", "ORCH_RANKS_PER_HOST": "2"})
    assert done.returncode == 75, done.stderr
    assert sorted(line[0] for line in starts(tmp_path)) == ["0", "0", "1", "1"]
    assert all(" smoke " in line for line in starts(tmp_path)[:2])
    assert not any(" smoke " in line for line in starts(tmp_path)[2:])


# TorchTPU's own function, played by one that says what it found and sets what the real one sets (torch_tpu 0.2.0).
TORCH = """
import os
def set_tpu_launch_env(*, nnodes, nproc_per_node):
    print("a library may say something on stdout")
    hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "localhost").split(",")
    assert nnodes == len(hosts), (nnodes, hosts)
    addresses = ",".join(f"{host}:{8070 + at}" for host in hosts for at in range(nproc_per_node))
    os.environ.setdefault("TORCH_TPU_SLICEBUILDER_ADDRESSES", addresses)
    os.environ.setdefault("TORCH_TPU_TOPOLOGY", "2,2,1")
"""
SHOW = 'env | grep -E "^(TORCH_TPU|TPU_|NODE_RANK|RANK|WORLD_SIZE)" | sort >>"$HOME/env.$RANK"\n'


@pytest.mark.parametrize(("hosts", "slice_", "each"), [(1, "v6e-4", 4), (2, "v6e-8", 4), (2, "tpu7x-16", 8)])
def test_all_processes_of_a_tpu_agree_on_what_torchtpu_needs(
    tmp_path: Path, hosts: int, slice_: str, each: int
) -> None:
    package = tmp_path / "torch"
    (package / "tpu").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tpu" / "__init__.py").touch()
    (package / "tpu" / "distributed.py").write_text(TORCH)
    for chip in range(4):
        (tmp_path / f"accel{chip}").touch()
    seen: list[dict[str, str]] = []
    for rank in range(hosts):
        home = tmp_path / f"host{rank}"
        python = program(tmp_path / "bin" / "played", PLAYED.replace('exit "${RUN', SHOW + 'exit "${RUN'))
        env = {**HOST, "ORCH_RANK": str(rank), "ORCH_NUM_HOSTS": str(hosts), "ORCH_HOST_IPS": "10.0.0.1\n10.0.0.2"}
        env |= {"ORCH_PYTHON": str(python), "REAL": sys.executable, "PYTHONPATH": str(tmp_path)}
        env |= {
            "ORCH_ACCELERATOR": slice_,
            "ORCH_CHIPS_PER_HOST": "4",
            "ORCH_JOB_ID": "7",
            "ORCH_ATTEMPT": "2",
            "ORCH_DEV_DIR": str(tmp_path),
        }
        done = run_script(render_run(RunInputs(backend="tpu", trainer_args=(), topology="2x4")), home, env)
        assert done.returncode == 0, done.stderr
        files = sorted(home.glob("env.*"), key=lambda file: int(file.suffix[1:]))
        assert [file.name for file in files] == [f"env.{rank * each + at}" for at in range(each)]
        seen += [dict(line.split("=", 1) for line in file.read_text().splitlines()) for file in files]
    shared = ("TORCH_TPU_SLICEBUILDER_ADDRESSES", "TORCH_TPU_TOPOLOGY", "TORCH_TPU_XPROF_SESSION_ID", "WORLD_SIZE")
    assert len({tuple(env[name] for name in shared) for env in seen}) == 1
    # The forms of torch_tpu 0.2.0, utils/hardware.py: three sides, then the devices of a chip.
    expected = {1: "2,2,1", 2: "2,4,1,2" if slice_.startswith("tpu7x") else "2,4,1"}
    assert seen[0]["TORCH_TPU_TOPOLOGY"] == expected[hosts]
    assert seen[0]["TORCH_TPU_XPROF_SESSION_ID"] == "7002"
    assert len(seen[0]["TORCH_TPU_SLICEBUILDER_ADDRESSES"].split(",")) == each * hosts == int(seen[0]["WORLD_SIZE"])
    assert [env.get("NODE_RANK") for env in seen[::each]] == ([None] if hosts == 1 else ["0", "1"])


# AWS's PyTorch image: an interpreter in /opt/pytorch whose torch is of some version.
IMAGE = """#!/bin/sh
case "$*" in
  *metadata*) exec "$REAL" -c "import importlib.metadata as m; m.version = lambda _: '$IMAGE_TORCH'; exec('''$2''')" ;;
  *find_spec*) ;;
  *) printf '%s\\0' "$@" >>"$RECORD" ; case "$*" in *--target*) mkdir -p "$HOME/.orch/site" ;; esac ;;
esac
"""


@pytest.mark.parametrize(("version", "used"), [("2.9.1+cu130", True), ("2.13.0", True), ("2.6.0", False), ("", False)])
def test_the_torch_of_an_image_is_used_when_it_is_new_enough(tmp_path: Path, version: str, used: bool) -> None:
    home, record = tmp_path / "home", tmp_path / "record"
    for place in (tmp_path / "opt/pytorch/bin/python", home / ".orch/venv/bin/python"):
        if version or "venv" in str(place):
            program(place, IMAGE)
    (home / ".orch/venv/.orch-packages").write_text("torch==2.12.0 --hash=sha256:0\n")
    program(home / TRAINER_ROOT / "trainer/__main__.py", "")
    record.touch()
    env = {**HOST, "ORCH_VENVS_DIR": str(tmp_path / "opt"), "REAL": sys.executable, "RECORD": str(record)}
    env |= {"IMAGE_TORCH": version}
    setup = render_setup(SetupInputs(backend="cuda", bundled_trainer=True))
    assert setup is not None
    done = run_script(setup, home, env)
    assert done.returncode == 0, done.stderr
    assert ("--target" in recorded(record)) is used
    held = (home / ".orch/venv/.orch-packages").read_text()
    assert held.startswith("torch==2.12.0 ") is used
    assert ("\ntorch==2.13.0 --hash=sha256:" in held) is not used
    run = run_script(render_run(RunInputs(backend="cuda", trainer_args=())), home, {**env, "ORCH_RANKS_PER_HOST": "1"})
    assert run.returncode == 0, run.stderr
    python = tmp_path / "opt/pytorch/bin/python" if used else home / ".orch/venv/bin/python"
    shown = run_script(
        render_run(RunInputs(backend="cuda", trainer_args=()))
        .replace("exec -- ", "echo ")
        .replace('"$@" &', 'echo "$@" &'),
        home,
        {**env, "ORCH_RANKS_PER_HOST": "1"},
    )
    assert str(python) in shown.stdout


@pytest.mark.parametrize(("backend", "device"), [("jax", "tpu"), ("tpu", ""), ("xla", "")])
@pytest.mark.parametrize("hosts", ["1", "2"])
def test_the_chips_of_a_slice_are_not_started_by_one_host_alone(
    tmp_path: Path, backend: Backend, device: str, hosts: str
) -> None:
    home = tmp_path / "home"
    program(home / TRAINER_ROOT / "trainer/__main__.py", "")
    text = '#!/bin/sh\ncase "$*" in *find_spec*) ;; *) echo "$ORCH_NUM_HOSTS $*" >>"$HOME/starts" ;; esac\n'
    python = program(tmp_path / "bin" / "played", text)
    setup = render_setup(SetupInputs(backend=backend, bundled_trainer=True, device=device, python=str(python)))
    assert setup is not None
    done = run_script(setup, home, {**HOST, "ORCH_NUM_HOSTS": hosts, "ORCH_DEV_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    begun = starts(tmp_path) if (home / "starts").exists() else []
    assert [line.split()[:4] for line in begun] == ([["1", "-m", "trainer", "check"]] if hosts == "1" else [])
