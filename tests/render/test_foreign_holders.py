"""On machines that are not rented, only programs of this installation are ended; others refuse the start, by name.

A plain file in a folder of the test replaces the device node, and a script replaces nvidia-smi; the processes are real.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import pytest
from render_support import HOST, program, run_script

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup

OURS = "a1b2c3d4e5f60718"
# The queries and their columns: nvidia-smi(1) of driver 610.43, May 2026.
NVIDIA_SMI = """#!/bin/sh
case $1 in
  -L) printf 'GPU 0: a (UUID: GPU-aa00)\\nGPU 1: a (UUID: GPU-bb11)\\n' ;;
  --query-gpu=index,uuid) printf '0, GPU-aa00\\n1, GPU-bb11\\n' ;;
  --query-gpu=index) printf '0\\n1\\n' ;;
  --query-compute-apps=gpu_uuid,pid) cat "$APPS" ;;
esac
"""
NODES: list[tuple[Backend, str]] = [("xla", "accel0"), ("jax", "vfio/3"), ("neuron", "neuron1"), ("cuda", "nvidia0")]

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
Hold = Callable[..., subprocess.Popen[bytes]]
NO_MORE: Mapping[str, str] = MappingProxyType({})


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Start a process that has `node` open, as a program of an installation or of none, by any name."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(
        node: str, *, installation: str = "", name: str = "sleep", user: int = 0, more: Mapping[str, str] = NO_MORE
    ) -> subprocess.Popen[bytes]:
        device = tmp_path / "dev" / node
        device.parent.mkdir(parents=True, exist_ok=True)
        device.touch()
        binary = tmp_path / "programs" / name
        binary.parent.mkdir(exist_ok=True)
        if not binary.exists():
            shutil.copy(shutil.which("sleep") or "", binary)
        env = {"PATH": "/usr/bin:/bin", **({"ORCH_INSTALLATION": installation} if installation else {}), **more}
        become = f"setpriv --reuid {user} --clear-groups sleep" if user else f"'{binary}'"
        command = f"exec 9<'{device}'; echo held; exec {become} 61"
        process = subprocess.Popen(["bash", "-c", command], env=env, stdout=subprocess.PIPE, start_new_session=True)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != name[:15]:
            assert process.poll() is None
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def start_program(backend: Backend, tmp_path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {
        **HOST,
        "ORCH_DEV_DIR": str(tmp_path / "dev"),
        "ORCH_LIBTPU_LOCKFILE": str(tmp_path / "lock"),
        "ORCH_INSTALLATION": OURS,
        "ORCH_RANKS_PER_HOST": "1",
        **more,
    }
    script = render_run(RunInputs(backend=backend, user_run="echo started", holders="refuse"))
    return run_script(script, tmp_path / "home", env, path=str(tmp_path / "bin"))


@pytest.mark.parametrize(("backend", "node"), NODES)
def test_a_holder_of_others_is_named_and_refuses_the_start(
    backend: Backend, node: str, tmp_path: Path, hold: Hold
) -> None:
    colleague = hold(node, installation="0123456789abcdef")
    unmarked = hold(node)
    ours = hold(node, installation=OURS)
    (tmp_path / "lock").touch()
    done = start_program(backend, tmp_path)
    assert (done.returncode, done.stdout) == (6, "")
    user = pwd.getpwuid(os.getuid()).pw_name
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning:")]
    assert lines[0].startswith("run: refused: the accelerator is in use by processes that this installation")
    for line, process in zip(lines[1:3], (colleague, unmarked), strict=True):
        words = f"  user {user}: process {process.pid} ({tmp_path}/programs/sleep 61 ) since "
        assert line.startswith(words)
        assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \S+", line.removeprefix(words))
    assert lines[3].startswith("  next: ")
    assert "ORCH_HOLDERS_CHECK=0" in lines[3]
    assert len(lines) == 4
    assert [one.poll() for one in (colleague, unmarked, ours)] == [None] * 3
    assert (tmp_path / "lock").exists()


@pytest.mark.parametrize(("backend", "node"), NODES)
def test_what_this_installation_left_behind_is_ended(backend: Backend, node: str, tmp_path: Path, hold: Hold) -> None:
    ours = hold(node, installation=OURS)
    done = start_program(backend, tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "started"), done.stderr
    assert ours.wait(5) == -15


def test_a_colleague_who_begins_while_ours_are_ended_is_named_and_refuses_the_start(tmp_path: Path, hold: Hold) -> None:
    """The end of a process of ours takes up to 20 s, and a colleague saw the device free."""
    device = tmp_path / "dev" / "accel0"
    device.parent.mkdir()
    device.touch()
    program = tmp_path / "stubborn.sh"
    program.write_text(
        f"begin() {{\n  exec 8<'{device}'\n  env -u ORCH_INSTALLATION setsid sleep 62 >/dev/null &\n"
        f"  echo $! >'{tmp_path}/pid'\n"
        f"  sleep 1\n  exit\n}}\ntrap begin TERM\nexec 9<'{device}'\necho held\nwhile :; do sleep 0.1; done\n"
    )
    stubborn = subprocess.Popen(
        ["bash", program], env={"PATH": "/usr/bin:/bin", "ORCH_INSTALLATION": OURS}, stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert stubborn.stdout is not None and stubborn.stdout.readline() == b"held\n"
    done = start_program("xla", tmp_path)
    assert (tmp_path / "pid").exists(), done
    colleague = int((tmp_path / "pid").read_text())
    try:
        assert (done.returncode, "started" in done.stdout) == (6, False), done.stderr
        assert f"process {colleague} (sleep 62 )" in done.stderr
        assert Path(f"/proc/{colleague}").exists()
    finally:
        os.kill(colleague, 9)
        stubborn.kill()
        stubborn.wait()
        stubborn.stdout.close()


def test_mark_in_the_value_of_another_variable_is_none(tmp_path: Path, hold: Hold) -> None:
    """Such as the text of a change in a colleague's CI, which others write."""
    colleague = hold("accel0", more={"MESSAGE": f"first\nORCH_INSTALLATION={OURS}\nlast"})
    done = start_program("xla", tmp_path)
    assert (done.returncode, done.stdout) == (6, ""), done.stderr
    assert f"process {colleague.pid} " in done.stderr
    assert colleague.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_mark_in_a_process_of_another_user_is_none(tmp_path: Path, hold: Hold) -> None:
    """`su colleague` in a terminal of a program keeps the environment, and a colleague may copy it."""
    colleague = hold("accel0", installation=OURS, user=65534)
    done = start_program("xla", tmp_path)
    assert (done.returncode, done.stdout) == (6, ""), done.stderr
    assert f"  user {pwd.getpwuid(65534).pw_name}: process {colleague.pid} (sleep 61 ) since " in done.stderr
    assert colleague.poll() is None


def test_with_consent_the_program_starts_beside_others_and_ends_none_of_them(tmp_path: Path, hold: Hold) -> None:
    colleague, ours = hold("accel0"), hold("accel0", installation=OURS)
    (tmp_path / "lock").touch()
    done = start_program("xla", tmp_path, ORCH_HOLDERS_CHECK="0")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "started"), done.stderr
    assert f"process {colleague.pid} " in done.stderr
    assert colleague.poll() is None
    assert ours.wait(5) == -15
    assert (tmp_path / "lock").exists()


def test_many_holders_fit_five_lines(tmp_path: Path, hold: Hold) -> None:
    for _ in range(5):
        hold("accel0")
    lines = start_program("xla", tmp_path).stderr.splitlines()
    assert len([line for line in lines if not line.startswith("warning:")]) == 5
    assert lines[-2].endswith(", and 2 more")


def test_setup_refuses_too(tmp_path: Path, hold: Hold) -> None:
    """It would try the chips with the trainer's own check."""
    hold("accel0")
    script = render_setup(SetupInputs(backend="xla", bundled_trainer=True, python=sys.executable, holders="refuse"))
    assert script is not None
    env = {**HOST, "ORCH_DEV_DIR": str(tmp_path / "dev"), "ORCH_INSTALLATION": OURS}
    done = run_script(script, tmp_path / "home", env)
    assert done.returncode == 6
    assert "setup: refused: the accelerator is in use" in done.stderr


@pytest.mark.parametrize("name", ["Xorg", "gnome-shell", "nvidia-persistenced", "nv-hostengine", "dcgm-exporter"])
def test_programs_that_serve_the_machine_are_no_holders_of_gpus(name: str, tmp_path: Path, hold: Hold) -> None:
    process = hold("nvidia0", name=name)
    done = start_program("cuda", tmp_path)
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    assert process.poll() is None


@pytest.mark.parametrize(
    ("visible", "chips", "used"),
    [
        (None, "0", {0, 1}),
        (None, "1", {0}),
        ("1", "0", {1}),
        ("GPU-bb", "0", {1}),
        ("1,0", "1", {1}),
        ("", "0", set[int]()),
        ("-1", "0", set[int]()),
    ],
)
def test_only_the_gpus_of_this_launch_count(
    visible: str | None, chips: str, used: set[int], tmp_path: Path, hold: Hold
) -> None:
    program(tmp_path / "bin" / "nvidia-smi", NVIDIA_SMI)
    holders = [hold(f"nvidia{number}") for number in range(2)]
    apps = tmp_path / "apps"
    apps.write_text("".join(f"{gpu}, {one.pid}\n" for gpu, one in zip(("GPU-aa00", "GPU-bb11"), holders, strict=True)))
    more = {"APPS": str(apps), "ORCH_CHIPS_PER_HOST": chips, "ORCH_FABRIC_CHECK": "0"}
    done = start_program("cuda", tmp_path, **more, **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}))
    named = {number for number, one in enumerate(holders) if f"process {one.pid} " in done.stderr}
    assert named == used
    assert done.returncode == (6 if used else 0), done.stderr


def test_a_process_that_ends_while_it_is_looked_at_is_no_holder(tmp_path: Path) -> None:
    """Workers of ours come and go: what has ended has no mark any more, and was taken for a colleague's."""
    program(tmp_path / "bin" / "nvidia-smi", NVIDIA_SMI.replace('cat "$APPS"', 'cat "$APPS"; : >"$APPS"'))
    (tmp_path / "apps").write_text("GPU-aa00, 4194305\n")  # above the largest id of Linux
    done = start_program("cuda", tmp_path, APPS=str(tmp_path / "apps"), ORCH_FABRIC_CHECK="0")
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    program(tmp_path / "bin" / "nvidia-smi", NVIDIA_SMI)
    (tmp_path / "apps").write_text("GPU-aa00, 4194305\n")  # of a container, say: it is named, and not seen
    assert start_program("cuda", tmp_path, APPS=str(tmp_path / "apps"), ORCH_FABRIC_CHECK="0").returncode == 6


def test_jax_on_gpus_refuses_too(tmp_path: Path, hold: Hold) -> None:
    hold("nvidia0")
    script = render_run(RunInputs(backend="jax", device="cuda", user_run="echo started", holders="refuse"))
    env = {**HOST, "ORCH_DEV_DIR": str(tmp_path / "dev"), "ORCH_INSTALLATION": OURS}
    assert run_script(script, tmp_path / "home", env).returncode == 6


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root, to leave it")
def test_what_only_root_sees_is_said_to_be_unseen() -> None:
    script = render_run(RunInputs(backend="xla", user_run="echo started", holders="refuse"))
    with TemporaryDirectory() as folder:
        Path(folder, "accel0").touch()
        Path(folder).chmod(0o777)  # another user's home
        env = {"HOME": folder, "PATH": "/usr/bin:/bin", **HOST, "ORCH_DEV_DIR": folder, "ORCH_INSTALLATION": OURS}
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-s"]
        done = subprocess.run(command, input=script, env=env, capture_output=True, text=True, timeout=60, check=False)
    warning = r"^warning: \d+ processes of other users are unseen without root: they may hold"
    assert re.search(warning, done.stderr, re.MULTILINE)
    assert done.stdout == "started\n"
