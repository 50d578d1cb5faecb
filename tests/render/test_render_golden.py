"""The scripts as they are: reviewed as files, and clean by the judgement of bash and shellcheck."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from render_support import GOLDEN, TEMPLATES

from orchestrator.plan.environment import HostEnvironment
from orchestrator.render.mounts import MountInputs, render_copy_mount, render_mount, render_scratch
from orchestrator.render.packages import Backend, backend_packages, trainer_packages
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup
from orchestrator.values import Text

UPDATE = os.environ.get("ORCH_UPDATE_GOLDEN") == "1"
BACKENDS: tuple[Backend, ...] = ("cpu", "cuda", "tpu", "xla", "neuron", "jax")


def _scripts() -> dict[str, str]:
    """Every golden file by name."""
    user_setup = "pip install -r requirements.txt\n"
    user_run = 'python train.py --rank "$ORCH_RANK"\n'
    args = (("model", "tiny"), ("steps", "120"), ("data", "file:///data/my books"))
    made: dict[str, str | None] = {}
    for backend in BACKENDS:
        packages = backend_packages(backend, "tpu") if backend == "jax" else ()
        made[f"setup-{backend}"] = render_setup(
            SetupInputs(backend, user_setup=user_setup, workdir="orch_workdir", packages=packages)
        )
        made[f"run-{backend}"] = render_run(
            RunInputs(backend, user_run=user_run, workdir="orch_workdir", own_venv=bool(packages))
        )
    for backend in BACKENDS:
        device = "tpu" if backend == "jax" else ""
        made[f"setup-{backend}-trainer"] = render_setup(
            SetupInputs(backend, bundled_trainer=True, may_install_system=backend == "xla", device=device)
        )
        made[f"run-{backend}-trainer"] = render_run(
            RunInputs(backend, trainer_args=args, device=device, topology="4x4", smoke=backend in ("cuda", "jax"))
        )
    for device in ("cpu", "cuda", "neuron"):
        made[f"setup-jax-trainer-{device}"] = render_setup(SetupInputs("jax", bundled_trainer=True, device=device))
        made[f"run-jax-trainer-{device}"] = render_run(RunInputs("jax", trainer_args=args, device=device))
    made["setup-neuron-trainer-lazy"] = render_setup(SetupInputs("neuron", bundled_trainer=True, device="xla"))
    made["run-neuron-trainer-lazy"] = render_run(RunInputs("neuron", trainer_args=args, device="xla"))
    made["setup-cpu-trainer-local"] = render_setup(
        SetupInputs("cpu", bundled_trainer=True, python="/usr/bin/python3.11", user_setup=user_setup)
    )
    disks = {"scratch": "/opt/dlami/nvme", "neuron": True}
    made["setup-jax-neuron"] = render_setup(SetupInputs("jax", user_setup=user_setup, packages=("flax",), **disks))  # type: ignore[arg-type]  # the names are those of the fields
    made["run-jax-neuron"] = render_run(RunInputs("jax", user_run=user_run, own_venv=True, **disks))  # type: ignore[arg-type]  # as above
    made["run-xla-beside"] = render_run(RunInputs("xla", user_run=user_run, clear_holders=False))
    for scheme, source in (("s3", "s3://bucket/data"), ("gs", "gs://bucket/data"), ("file", "file:///data/my books")):
        made[f"copy-{scheme}"] = render_copy_mount(MountInputs(source, "~/data"))
    made["mount-gs"] = render_mount(MountInputs("gs://bucket/data", "~/my books"), may_install=True)
    made["mount-s3"] = render_mount(
        MountInputs("s3://bucket/data", "~/my books"), may_install=True, scratch="/opt/dlami/nvme"
    )
    made["mount-scratch"] = render_scratch("/opt/dlami/nvme")
    made["copy-gs-bucket"] = render_copy_mount(MountInputs("gs://bucket", "/data"))
    return {name: text for name, text in made.items() if text is not None}


SCRIPTS = _scripts()


def _update_golden() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.glob("*.sh"):
        old.unlink()
    for name, text in SCRIPTS.items():
        (GOLDEN / f"{name}.sh").write_text(text)


if UPDATE:
    _update_golden()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_script_is_the_reviewed_one(name: str) -> None:
    assert SCRIPTS[name] == (GOLDEN / f"{name}.sh").read_text(), "seen and meant? ORCH_UPDATE_GOLDEN=1 pytest …"


def test_every_golden_file_is_still_made() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(SCRIPTS)


def test_every_template_of_a_backend_has_a_golden_file() -> None:
    for kind in ("setup", "run"):
        for backend in BACKENDS:
            assert (TEMPLATES / kind / f"{backend}.sh.j2").is_file()
            assert f"{kind}-{backend}" in SCRIPTS


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed here")
def test_all_scripts_are_clean_by_shellcheck() -> None:
    found = subprocess.run(
        ["shellcheck", "--shell=bash", *map(str, sorted(GOLDEN.glob("*.sh")))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sh")), ids=lambda path: path.stem)
def test_bash_can_read_the_script(path: Path) -> None:
    found = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_script_has_no_trailing_blanks_and_at_most_one_empty_line(name: str) -> None:
    text = SCRIPTS[name]
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "\n\n\n" not in text
    assert text.endswith("\n") and not text.endswith("\n\n")


def test_no_script_installs_a_placeholder_of_neuron() -> None:
    """Their names on the public index are empty packages that install without a word (facts of November 2026)."""
    placeholders = ("torch-neuronx", "neuronx-cc", "neuronx-distributed", "libneuronxla", "jax-neuronx", "nki")
    texts = [path.read_text() for path in TEMPLATES.rglob("*.j2")] + list(SCRIPTS.values())
    for name in placeholders:
        for text in texts:
            assert name not in text and name.replace("-", "_") + "=" not in text
    for backend in BACKENDS:
        assert not any("neuron" in package or package == "nki" for package in trainer_packages(backend))
    assert backend_packages("neuron") == ()


def test_no_script_sets_what_efa_does_not_want() -> None:
    for name, text in SCRIPTS.items():
        code = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        obsolete_names = (
            "NCCL_IB_HCA",
            "NCCL_NET_GDR_LEVEL",
            "RDMAV_",
            "NCCL_PROTO",
            "XLA_USE_BF16",
            "XLA_DOWNCAST_BF16",
        )
        for obsolete in obsolete_names:
            assert not any(obsolete in line for line in code), (name, obsolete)


def test_every_variable_that_a_program_gets_is_documented() -> None:
    page = (TEMPLATES.parent / "docs" / "environment.md").read_text()
    exported = {
        name
        for script in SCRIPTS.values()
        for line in script.splitlines()
        if line.lstrip().startswith("export ")
        for name in re.findall(r"(?:^|\s)([A-Z][A-Z0-9_]+)(?==|\s|$)", line)
    }
    assert {"MASTER_ADDR", "PJRT_DEVICE", "WORLD_SIZE", "ORCH_PYTHON"} <= exported
    for for_setup in (False, True):
        ips = (Text.of("10.0.0.1"), Text.of("10.0.0.2"))
        place = HostEnvironment((), ips, 4, "v5litepod-8", 29500, Text.of("id"), for_setup=for_setup)
        exported |= {name for name, _ in place.of(1)}
    missing = {name for name in exported - {"PATH"} if f"`{name}`" not in page}
    assert missing == set()
