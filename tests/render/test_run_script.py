"""Run: the environment of each backend, the program's own status, and the start of one process per device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from render_support import HOST, TRAINER_ROOT, program, run_script

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, render_run

CHECKOUT = Path(__file__).resolve().parents[2]
SHOW = "env -0"
TWO = {**HOST, "ORCH_RANK": "1", "ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": "10.0.0.1:29507"}


def shown(backend: Backend, tmp_path: Path, env: dict[str, str]) -> dict[str, str]:
    """The environment that the user's program sees."""
    done = run_script(render_run(RunInputs(backend=backend, user_run=SHOW)), tmp_path / "home", env)
    assert done.returncode == 0, done.stderr
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


def test_cpu_threads_are_shared_among_the_hosts_on_one_machine(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "nproc", "#!/bin/sh\necho 12\n")
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    alone = shown("cpu", tmp_path, {**HOST, "PATH": path})
    assert alone["OMP_NUM_THREADS"] == "12"
    shared = shown("cpu", tmp_path, {**HOST, "PATH": path, "ORCH_LOCAL_RANKS_PER_MACHINE": "5"})
    assert shared["OMP_NUM_THREADS"] == "2"
    crowded = shown("cpu", tmp_path, {**HOST, "PATH": path, "ORCH_LOCAL_RANKS_PER_MACHINE": "64"})
    assert crowded["OMP_NUM_THREADS"] == "1"
    assert shown("cpu", tmp_path, {**HOST, "OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"


def test_cuda_meets_over_the_network_and_leaves_nccl_alone(tmp_path: Path) -> None:
    env = shown("cuda", tmp_path, TWO)
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.1", "29507")
    assert (env["FI_EFA_USE_HUGE_PAGE"], env["NCCL_SOCKET_IFNAME"]) == ("0", "^docker,lo,veth")
    assert {name for name in env if name.startswith("NCCL")} == {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME"}
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & set(env)


@pytest.mark.parametrize("coordinator", ["127.0.0.2:29500", "[::1]:29500", "localhost:29500"])
def test_cuda_on_one_machine_may_use_loopback(tmp_path: Path, coordinator: str) -> None:
    assert "NCCL_SOCKET_IFNAME" not in shown("cuda", tmp_path, {**TWO, "ORCH_COORDINATOR": coordinator})


def test_address_of_ipv6_loses_its_brackets(tmp_path: Path) -> None:
    env = shown("cpu", tmp_path, {**TWO, "ORCH_COORDINATOR": "[fd00::7]:29501"})
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("fd00::7", "29501")


def test_jax_gets_coordinator_count_and_id(tmp_path: Path) -> None:
    env = shown("jax", tmp_path, TWO)
    assert env["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:29507"
    assert (env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_ID"]) == ("2", "1")


def test_xla_uses_the_tpu_unless_configured_otherwise(tmp_path: Path) -> None:
    assert shown("xla", tmp_path, HOST)["PJRT_DEVICE"] == "TPU"
    assert shown("xla", tmp_path, {**HOST, "PJRT_DEVICE": "CPU"})["PJRT_DEVICE"] == "CPU"


@pytest.mark.parametrize("backend", ["cpu", "cuda", "xla", "neuron", "jax"])
def test_what_the_user_set_wins_even_when_it_is_empty(backend: Backend, tmp_path: Path) -> None:
    base = {**TWO, "ORCH_RANKS_PER_HOST": "2", "ORCH_CHECKPOINT_URI": "s3://b/r/checkpoints"}
    ours = shown(backend, tmp_path, base)
    places = {"HOME", "PWD", "OLDPWD", "ORCH_HOST_DIR", "ORCH_WORKDIR"}
    added = set(ours) - set(base) - places - {"PATH", "PYTHONPATH", "LANG", "SHLVL", "_"}
    assert {"MASTER_ADDR", "MASTER_PORT", "PYTHONUNBUFFERED"} <= added
    for value in ("theirs", ""):
        env = shown(backend, tmp_path, {**base, **dict.fromkeys(added, value)})
        assert {name: env[name] for name in added} == dict.fromkeys(added, value)


@pytest.mark.parametrize(
    ("text", "status", "out"),
    [
        ("false\necho on", 0, "on\n"),
        ("exit 75", 75, ""),
        ("kill -SEGV $$", -signal.SIGSEGV, ""),
        ("echo ${nothing}x", 0, "x\n"),
        ("set | grep -c ^orch_; declare -F | wc -l", 0, "0\n0\n"),
        ("trap", 0, ""),
    ],
)
@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("backend", ["cpu", "cuda", "xla", "neuron", "jax"])
def test_program_is_a_plain_bash_script(backend: Backend, text: str, status: int, out: str, tmp_path: Path) -> None:
    env = {**HOST, "ORCH_RANKS_PER_HOST": "1"}
    done = run_script(render_run(RunInputs(backend=backend, user_run=text)), tmp_path / "home", env)
    assert (done.returncode, done.stdout) == (status, out)


@pytest.mark.parametrize("missing", ["ORCH_RANK", "ORCH_NUM_HOSTS", "ORCH_COORDINATOR"])
def test_a_host_that_does_not_know_its_place_does_not_start(missing: str, tmp_path: Path) -> None:
    env = {name: value for name, value in HOST.items() if name != missing}
    done = run_script(render_run(RunInputs(backend="cpu", user_run="echo started")), tmp_path / "home", env)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{missing} is not set" in done.stderr


def test_environment_of_our_own_is_first_on_the_path_when_requested(tmp_path: Path) -> None:
    program(tmp_path / "home/.orch/venv/bin/tool", "#!/bin/sh\necho ours\n")
    with_it = run_script(render_run(RunInputs(backend="cpu", user_run="tool", own_venv=True)), tmp_path / "home", HOST)
    assert with_it.stdout == "ours\n"
    assert run_script(render_run(RunInputs(backend="cpu", user_run="tool")), tmp_path / "home", HOST).returncode == 127


def test_trainer_without_its_python_is_reported(tmp_path: Path) -> None:
    done = run_script(render_run(RunInputs(backend="cpu", trainer_args=())), tmp_path / "home", HOST)
    assert done.returncode == 1
    assert "there is no Python at" in done.stderr


def test_a_run_is_one_program() -> None:
    with pytest.raises(ValueError, match="either"):
        RunInputs(backend="cpu")
    with pytest.raises(ValueError, match="either"):
        RunInputs(backend="cpu", user_run="x", trainer_args=())
    with pytest.raises(ValueError, match="smoke"):
        RunInputs(backend="cpu", user_run="x", smoke=True)


# One process per device. The trainer is played by a program whose end can be chosen; it is started for real.

PLAYED = """
import os, signal, sys, time
rank, ends = int(os.environ["RANK"]), dict(word.split("=", 1) for word in sys.argv[1:])
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
line = " ".join(os.environ[name] for name in names)
def stop(*_):
    line = "stop %d" % rank
    os.write(1, (line + "\\n").encode())
    if "patient" in ends: time.sleep(1.5)
    os._exit(int(ends.get("stopped", "75")))
if "stubborn" in ends: signal.signal(signal.SIGTERM, signal.SIG_IGN)
else: signal.signal(signal.SIGTERM, stop)
os.write(1, (line + "\\n").encode())
end = ends.get("end%d" % rank, ends.get("end", "0"))
if end == "wait": time.sleep(60)
if end.startswith("-"): os.kill(os.getpid(), -int(end))
sys.exit(int(end))
"""


def play(tmp_path: Path, args: dict[str, str], **env: str) -> subprocess.CompletedProcess[str]:
    base = {**HOST, "ORCH_RANKS_PER_HOST": "3", "ORCH_NETWORK_CHECK": "0"}  # the played trainer has no such check
    return run_script(_played(tmp_path, args), tmp_path / "home", {**base, **env})


def _played(tmp_path: Path, args: dict[str, str]) -> str:
    program(tmp_path / "home" / TRAINER_ROOT / "trainer/__main__.py", PLAYED)
    program(tmp_path / "home" / TRAINER_ROOT / "trainer/__init__.py", "")
    return render_run(RunInputs(backend="cuda", trainer_args=tuple(args.items()), python=sys.executable))


def test_every_process_gets_the_variables_of_torchrun(tmp_path: Path) -> None:
    done = play(tmp_path, {}, **{**TWO, "ORCH_RANKS_PER_HOST": "3"})
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == [f"{3 + at} {at} 6 3 1 10.0.0.1 29507" for at in range(3)]


def test_hosts_of_eight_gpus_number_their_processes_through(tmp_path: Path) -> None:
    env = {**TWO, "ORCH_RANKS_PER_HOST": "", "ORCH_CHIPS_PER_HOST": "8"}
    lines = [line for rank in "01" for line in play(tmp_path, {}, **{**env, "ORCH_RANK": rank}).stdout.splitlines()]
    expected = [f"{8 * host + at} {at} 16 8 {host} 10.0.0.1 29507" for host in range(2) for at in range(8)]
    assert sorted(lines) == sorted(expected)


def test_count_of_processes_is_that_of_the_chips(tmp_path: Path) -> None:
    done = play(tmp_path, {}, ORCH_RANKS_PER_HOST="", ORCH_CHIPS_PER_HOST="2")
    assert len(done.stdout.splitlines()) == 2
    program(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\necho 'GPU 0: x'; echo 'GPU 1: x'; echo '  MIG'\n")
    refused = play(tmp_path, {}, ORCH_RANKS_PER_HOST="", ORCH_CHIPS_PER_HOST="0", PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    assert len(refused.stdout.splitlines()) == 2
    none = play(tmp_path, {}, ORCH_RANKS_PER_HOST="", ORCH_CHIPS_PER_HOST="0")
    assert none.returncode == 1
    assert "this host shows no GPU" in none.stderr


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ({"end": "0"}, 0),
        ({"end": "75"}, 75),
        ({"end0": "75", "end1": "143", "end2": "0"}, 75),
        ({"end2": "143"}, 143),
        ({"end1": "3"}, 3),
        ({"end0": "75", "end1": "4"}, 4),
        ({"end1": "-9"}, 137),
        ({"end2": "-11"}, 139),
    ],
)
def test_status_of_the_host_is_that_of_the_first_failure(tmp_path: Path, ends: dict[str, str], status: int) -> None:
    done = play(tmp_path, ends)
    assert done.returncode == status
    if status not in (0, 75, 143):
        assert f"ended with status {status}" in done.stderr


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of a test; whoever is left in their groups is ended."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _start(tmp_path: Path, args: dict[str, str], started: list[subprocess.Popen[bytes]]) -> Path:
    text = _played(tmp_path, args)
    script, log = tmp_path / "home" / "run.sh", tmp_path / "log"
    script.write_text(text)
    with log.open("wb") as out:
        env = {**HOST, "HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "ORCH_RANKS_PER_HOST": "3"}
        started.append(subprocess.Popen(["bash", str(script)], env=env, stdout=out, stderr=out, start_new_session=True))
    for _ in range(300):
        if len(log.read_text().splitlines()) >= 3:
            return log
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def test_a_stop_lets_every_process_save_and_exits_75(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    log = _start(tmp_path, {"end": "wait", "patient": "1"}, started)
    os.killpg(started[0].pid, signal.SIGTERM)
    assert started[0].wait(30) == 75
    assert sorted(log.read_text().splitlines()[3:]) == ["stop 0", "stop 1", "stop 2"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"stopped": "9"}, {"stubborn": "1"}], ids=["willing", "stubborn"])
def test_the_others_do_not_outlive_a_failed_process(
    tmp_path: Path, started: list[subprocess.Popen[bytes]], more: dict[str, str]
) -> None:
    log = _start(tmp_path, {"end": "wait", "end1": "5", **more}, started)
    assert started[0].wait(60) == 5
    assert "device 1 ended with status 5" in log.read_text()
    with pytest.raises(ProcessLookupError):
        os.killpg(started[0].pid, 0)


@pytest.mark.slow
def test_the_real_trainer_trains_with_one_process_per_device(tmp_path: Path) -> None:
    """The start of the cuda template, on two processes of this processor."""
    home = tmp_path / "home"
    (home / TRAINER_ROOT).mkdir(parents=True)
    (home / TRAINER_ROOT / "trainer").symlink_to(CHECKOUT / "trainer")
    (home / "text").write_bytes(bytes(range(256)) * 400)
    args = {"device": "cpu", "model": "tiny", "steps": "2", "batch": "4", "seq_len": "16", "data": str(home / "text")}
    text = render_run(RunInputs(backend="cuda", trainer_args=tuple(args.items()), python=sys.executable))
    done = run_script(text, home, {**HOST, "ORCH_COORDINATOR": f"127.0.0.1:{_free_port()}", "ORCH_RANKS_PER_HOST": "2"})
    assert done.returncode == 0, done.stderr
    assert "step 2/2" in done.stdout


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
