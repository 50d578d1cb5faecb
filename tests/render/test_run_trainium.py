"""Run on Trainium: cores, the place where processes meet, the image's own Python, and chips that are missing."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from render_support import HOST, TRAINER_ROOT, program, run_script

from orchestrator.render.packages import Backend
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup

TWO = {**HOST, "ORCH_RANK": "1", "ORCH_NUM_HOSTS": "2", "ORCH_COORDINATOR": "10.0.0.1:29507"}
# "CONNECTED DEVICES" of a trn2n.48xlarge, in the order of AWS Neuron documentation, "Neuron LS User Guide" (release
# 2.28.0, read 26 November 2026); the JSON form is that document's "neuron-ls -j".
LINKS: Mapping[int, tuple[int, ...]] = {
    0: (12, 3, 4, 1), 1: (13, 0, 5, 2), 2: (14, 1, 6, 3), 3: (15, 2, 7, 0),
    4: (0, 7, 8, 5), 5: (1, 4, 9, 6), 6: (2, 5, 10, 7), 7: (3, 6, 11, 4),
    8: (4, 11, 12, 9), 9: (5, 8, 13, 10), 10: (6, 9, 14, 11), 11: (7, 10, 15, 8),
    12: (8, 15, 0, 13), 13: (9, 12, 1, 14), 14: (10, 13, 2, 15), 15: (11, 14, 3, 12),
}  # fmt: skip
TRN1 = {"ORCH_ACCELERATOR": "trn1.32xlarge", "ORCH_CHIPS_PER_HOST": "16"}


def show_chips(tmp_path: Path, links: Mapping[int, tuple[int, ...] | None]) -> None:
    """Install a neuron-ls that shows these chips, each with those that it is connected to."""
    shown = [
        {
            "neuron_device": chip,
            "bdf": f"00:{chip:02x}.0",
            "connected_to": None if peers is None else list(peers),
            "nc_count": 4,
            "logical_neuroncore_config": 2,
            "memory_size": 103079215104,
            "neuron_processes": [],
        }
        for chip, peers in links.items()
    ]
    answer = f'#!/bin/sh\n[ "$*" = --json-output ] && echo {shlex.quote(json.dumps(shown, indent=4))}\n'
    program(tmp_path / "opt" / "aws" / "neuron" / "bin" / "neuron-ls", answer)


def run(text: str, tmp_path: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """On a host with 16 chips and with programs of the test's own, where waiting takes no time."""
    for chip in range(16):
        program(tmp_path / "dev" / f"neuron{chip}", "")
    program(tmp_path / "dev" / "neuron_aux", "")
    tool = tmp_path / "opt" / "aws" / "neuron" / "bin" / "neuron-ls"
    if not tool.exists():
        show_chips(tmp_path, LINKS)
    program(tmp_path / "bin" / "sleep", '#!/bin/sh\n[ "$1" != 5 ] || echo waited >>"$HOME/waits"\n')
    places = {"ORCH_DEV_DIR": str(tmp_path / "dev"), "ORCH_VENVS_DIR": str(tmp_path / "opt")}
    return run_script(text, tmp_path / "home", {**places, **env}, path=str(tmp_path / "bin"))


def shown(tmp_path: Path, env: dict[str, str], backend: Backend = "neuron") -> dict[str, str]:
    """The environment that the user's program sees."""
    done = run(render_run(RunInputs(backend=backend, user_run="env -0", neuron=True)), tmp_path, env)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(pair.split("=", 1) for pair in done.stdout.split("\0") if pair)


@pytest.mark.parametrize(
    ("accelerator", "more", "cores"),
    [
        ("Trainium:16", {}, "32"),
        ("trn1.32xlarge", {}, "32"),
        ("Trainium2:16", {}, "64"),
        ("trn2.48xlarge", {"NEURON_LOGICAL_NC_CONFIG": "1"}, "128"),
        ("Trainium3:16", {}, "64"),
        ("trn3.48xlarge", {"ORCH_CHIPS_PER_HOST": "0"}, "64"),
        ("something new", {"ORCH_RANKS_PER_HOST": "8"}, "8"),
    ],
)
def test_cores_are_those_that_frameworks_see(
    tmp_path: Path, accelerator: str, more: dict[str, str], cores: str
) -> None:
    env = shown(tmp_path, {**TWO, "ORCH_ACCELERATOR": accelerator, "ORCH_CHIPS_PER_HOST": "16", **more})
    assert env["ORCH_RANKS_PER_HOST"] == cores
    assert env["NEURON_RT_ROOT_COMM_ID"] == "10.0.0.1:29607"
    assert (env["FI_PROVIDER"], env["FI_EFA_USE_DEVICE_RDMA"]) == ("efa", "1")
    assert env["NEURON_COMPILE_CACHE_URL"].endswith("/.orch/host/cache/neuron")
    assert env["TORCH_NEURONX_NEFF_CACHE_DIR"].endswith("/.orch/host/cache/neff")
    assert env["MALLOC_ARENA_MAX"] == "64"
    assert env.get("NEURON_CC_FLAGS") == ("--lnc=1" if cores == "128" else None)


def test_the_compiler_gets_the_logical_cores_once(tmp_path: Path) -> None:
    env = {**HOST, **TRN1, "ORCH_ACCELERATOR": "trn2.48xlarge", "NEURON_LOGICAL_NC_CONFIG": "1"}
    theirs = shown(tmp_path, {**env, "NEURON_CC_FLAGS": "--model-type=transformer"})
    assert theirs["NEURON_CC_FLAGS"] == "--model-type=transformer --lnc=1"
    for own in ("-lnc=1 -O1", "--logical-nc-config=1"):
        assert shown(tmp_path, {**env, "NEURON_CC_FLAGS": own})["NEURON_CC_FLAGS"] == own


def test_pytorch_finds_its_cores_from_the_variables_of_torchrun(tmp_path: Path) -> None:
    """A list of cores for each host would be taken for one of each process by libneuronxla."""
    assert not [name for name in shown(tmp_path, {**TWO, **TRN1}) if name.startswith("NEURON_PJRT")]


def test_jax_is_one_process_a_host(tmp_path: Path) -> None:
    env = shown(tmp_path, {**TWO, **TRN1}, "jax")
    assert (env["NEURON_PJRT_PROCESSES_NUM_DEVICES"], env["NEURON_PJRT_PROCESS_INDEX"]) == ("32,32", "1")
    assert (env["JAX_COORDINATOR_ADDRESS"], env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_ID"]) == (
        "10.0.0.1:29507",
        "2",
        "1",
    )
    assert env["NEURON_RT_ROOT_COMM_ID"] == "10.0.0.1:29607"


def test_jax_on_a_tpu_knows_nothing_of_trainium(tmp_path: Path) -> None:
    assert "NEURON" not in render_run(RunInputs(backend="jax", user_run="x"))
    assert "neuron" not in (render_setup(SetupInputs(backend="jax", packages=("jax",))) or "")


def test_compiled_graphs_are_kept_in_the_bucket_of_the_run(tmp_path: Path) -> None:
    base = {**HOST, "ORCH_RANKS_PER_HOST": "2"}
    env = shown(tmp_path, {**base, "ORCH_CHECKPOINT_URI": "s3://bucket/run-1/checkpoints"})
    assert env["NEURON_COMPILE_CACHE_URL"] == "s3://bucket/run-1/neuron-cache"
    assert "FI_PROVIDER" not in env
    env = shown(tmp_path, {**base, "ORCH_CHECKPOINT_URI": "gs://bucket/run-1/checkpoints"})
    assert env["NEURON_COMPILE_CACHE_URL"].endswith("/.orch/host/cache/neuron")


@pytest.mark.parametrize(("port", "calls"), [("41000", 1), ("29607", 0), ("theirs", 0), ("", 0)])
def test_a_port_that_the_kernel_could_give_away_is_reserved(tmp_path: Path, port: str, calls: int) -> None:
    program(tmp_path / "bin" / "sysctl", '#!/bin/sh\necho "$*" >>"$HOME/calls"\n')
    shown(tmp_path, {**HOST, **TRN1, "NEURON_RT_ROOT_COMM_ID": f"10.0.0.1:{port}"})
    record = tmp_path / "home" / "calls"
    lines = record.read_text().splitlines() if record.exists() else []
    assert len(lines) == calls
    for line in lines:
        name, _, ports = line.removeprefix("-q -w ").partition("=")
        assert (name, ports.split(",")[-1]) == ("net.ipv4.ip_local_reserved_ports", port)


def test_a_type_of_unknown_size_is_queried(tmp_path: Path) -> None:
    text = render_run(RunInputs(backend="neuron", user_run="true"))
    done = run(text, tmp_path, {**HOST, "ORCH_ACCELERATOR": "trn9", "ORCH_CHIPS_PER_HOST": "4"})
    assert done.returncode == 1
    assert "how many cores has trn9?" in done.stderr
    assert "ORCH_RANKS_PER_HOST" in done.stderr


@pytest.mark.parametrize("backend", ["neuron", "jax"])
def test_missing_chips_are_an_error_unless_configured_otherwise(tmp_path: Path, backend: Backend) -> None:
    text = render_run(RunInputs(backend=backend, user_run="echo started", neuron=True))
    env = {**HOST, **TRN1, "ORCH_CHIPS_PER_HOST": "17"}
    done = run(text, tmp_path, env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "this host shows 16 Neuron chips of 17" in done.stderr
    assert "ORCH_NEURON_CHECK=0" in done.stderr
    assert (tmp_path / "home" / "waits").read_text() == "waited\n" * 2
    assert run(text, tmp_path, {**env, "ORCH_NEURON_CHECK": "0"}).stdout == "started\n"


def without(*cut: tuple[int, int]) -> dict[int, tuple[int, ...] | None]:
    """The documented links without some, in both directions."""
    missing = {pair for one, other in cut for pair in ((one, other), (other, one))}
    return {chip: tuple(peer for peer in peers if (chip, peer) not in missing) for chip, peers in LINKS.items()}


RING = {chip: ((chip - 1) % 4, (chip + 1) % 4) for chip in range(4)}


@pytest.mark.parametrize(
    ("accelerator", "chips", "links", "problem"),
    [
        ("trn2.48xlarge", 16, LINKS, ""),
        ("trn2.3xlarge", 1, {0: None}, ""),
        ("trn3.48xlarge", 16, dict.fromkeys(range(16)), ""),
        ("trn3.x", 4, RING, ""),
        ("trn1.32xlarge", 16, without((2, 6)), "chip 2 has 3 links of 4"),
        ("Trainium2:16", 16, {chip: LINKS[chip] for chip in range(15)}, "neuron-ls shows 15 chips of 16"),
        ("trn3.x", 4, {0: (1,), 1: (0,), 2: (3,), 3: (2,)}, "chip 0 reaches 1 of 3 others"),
    ],
)
def test_chips_that_are_not_connected_are_an_error(
    tmp_path: Path, accelerator: str, chips: int, links: Mapping[int, tuple[int, ...] | None], problem: str
) -> None:
    show_chips(tmp_path, links)
    text = render_run(RunInputs(backend="neuron", user_run="echo started", neuron=True))
    env = {**TWO, "ORCH_ACCELERATOR": accelerator, "ORCH_CHIPS_PER_HOST": str(chips)}
    done = run(text, tmp_path, env)
    if not problem:
        assert (done.stdout, done.stderr) == ("started\n", "")
        return
    assert (done.returncode, done.stdout) == (1, "")
    assert f"this host's chips are not all connected: {problem}\n" in done.stderr
    assert "neuron-ls --topology; launch again" in done.stderr
    assert run(text, tmp_path, {**env, "ORCH_NEURON_CHECK": "0"}).stdout == "started\n"


def test_a_neuron_ls_that_cannot_be_read_is_shown(tmp_path: Path) -> None:
    program(tmp_path / "opt" / "aws" / "neuron" / "bin" / "neuron-ls", "#!/bin/sh\necho no driver >&2\nexit 1\n")
    done = run(render_run(RunInputs(backend="neuron", user_run="x", neuron=True)), tmp_path, {**HOST, **TRN1})
    assert (done.returncode, done.stdout) == (1, "")
    assert "neuron-ls cannot be read: no driver" in done.stderr


# The image's own Python. A program that prints which one it is, and says of torch_xla what the test wants.


def venv(tmp_path: Path, name: str, *, lazy: bool = False) -> None:
    found = 0 if lazy else 1
    shown = 'env | grep -E "^(NEURON|PJRT)_" | sort'
    text = f'#!/bin/sh\nif [ "$1" = -c ]; then exit {found}; fi\necho {name} "$@"; {shown}\n'
    program(tmp_path / "opt" / f"aws_neuronx_venv_{name}" / "bin" / "python", text)


@pytest.mark.parametrize(
    ("backend", "names", "expected"),
    [
        ("jax", ["jax_0_7", "jax_0_10", "pytorch_2_9", "torch_neuronx_2_14_0"], "jax_0_10"),
        ("jax", ["jax", "pytorch_2_9"], "jax"),
        ("neuron", ["jax_0_10", "pytorch_2_8", "pytorch_2_9", "pytorch_2_9_nxd_training"], "pytorch_2_9"),
        ("neuron", ["pytorch_2_9", "torch_neuronx_2_13_0", "torch_neuronx_2_14_0"], "torch_neuronx_2_14_0"),
        ("neuron", ["pytorch", "pytorch_inference_vllm_0_24_0"], "pytorch"),
    ],
)
def test_a_program_finds_the_python_of_the_image(
    tmp_path: Path, backend: Backend, names: list[str], expected: str
) -> None:
    for name in names:
        venv(tmp_path, name)
    env = {**HOST, "ORCH_RANKS_PER_HOST": "2"}
    done = run(render_run(RunInputs(backend=backend, user_run="python me.py | head -n 1", neuron=True)), tmp_path, env)
    assert (done.returncode, done.stdout) == (0, f"{expected} me.py\n"), done.stderr
    setup = render_setup(SetupInputs(backend=backend, user_setup="python -m pip list | head -n 1", neuron=True))
    assert setup is not None
    assert run(setup, tmp_path, env).stdout == f"{expected} -m pip list\n"


def test_a_program_without_an_image_of_aws_takes_what_there_is(tmp_path: Path) -> None:
    env = {**HOST, "ORCH_RANKS_PER_HOST": "2"}
    done = run(render_run(RunInputs(backend="neuron", user_run="echo started")), tmp_path, env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "started\n", "")


def test_the_lazy_torch_gets_one_process_for_all_cores(tmp_path: Path) -> None:
    venv(tmp_path, "pytorch_2_9", lazy=True)
    done = run(render_run(RunInputs(backend="neuron", trainer_args=(), device="xla")), tmp_path, {**HOST, **TRN1})
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first == "pytorch_2_9 -m trainer engine=torch device=xla"
    assert {"NEURON_RT_NUM_CORES=32", "NEURON_PJRT_PROCESSES_NUM_DEVICES=32", "NEURON_PJRT_PROCESS_INDEX=0"} <= {*rest}
    assert "PJRT_DEVICE=NEURON" in rest


def test_an_image_without_the_lazy_torch_is_reported(tmp_path: Path) -> None:
    venv(tmp_path, "torch_neuronx_2_14_0")
    done = run(render_run(RunInputs(backend="neuron", trainer_args=(), device="xla")), tmp_path, {**HOST, **TRN1})
    assert done.returncode == 1 and "has no torch_xla" in done.stderr and "engine=jax" in done.stderr


def test_the_native_torch_gets_one_process_for_each_core(tmp_path: Path) -> None:
    venv(tmp_path, "torch_neuronx_2_14_0")
    env = {**TWO, **TRN1, "ORCH_RANKS_PER_HOST": "2"}
    lines = run(render_run(RunInputs(backend="neuron", trainer_args=())), tmp_path, env).stdout.splitlines()
    assert lines.count("torch_neuronx_2_14_0 -m trainer engine=torch device=neuron") == 2
    assert not [line for line in lines if line.startswith("NEURON_PJRT")]


@pytest.mark.parametrize("kind", ["setup", "run"])
def test_the_lazy_torch_on_several_hosts_is_refused_before_anything_is_installed(tmp_path: Path, kind: str) -> None:
    venv(tmp_path, "pytorch_2_9", lazy=True)
    program(tmp_path / "home" / TRAINER_ROOT / "trainer/__main__.py", "")
    setup = render_setup(SetupInputs(backend="neuron", bundled_trainer=True, device="xla"))
    text = setup if kind == "setup" else render_run(RunInputs(backend="neuron", trainer_args=(), device="xla"))
    assert text is not None
    done = run(text, tmp_path, {**TWO, **TRN1})
    assert done.returncode == 1
    assert "the bundled trainer uses one host only" in done.stderr
    assert "num_nodes: 1" in done.stderr and "engine=jax" in done.stderr
    assert "-m" not in done.stdout
