"""The scripts as they are: reviewed as files, and clean by the judgement of bash and shellcheck."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from render_support import GOLDEN, TEMPLATES

from orchestrator.plan.environment import HostEnvironment
from orchestrator.render.mounts import MountInputs, render_copy_mount, render_link_mount, render_mount, render_scratch
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
            SetupInputs(backend=backend, user_setup=user_setup, workdir="orch_workdir", packages=packages)
        )
        made[f"run-{backend}"] = render_run(
            RunInputs(backend=backend, user_run=user_run, workdir="orch_workdir", own_venv=bool(packages))
        )
    for backend in BACKENDS:
        device = "tpu" if backend == "jax" else ""
        made[f"setup-{backend}-trainer"] = render_setup(
            SetupInputs(backend=backend, bundled_trainer=True, may_install=backend == "xla", device=device)
        )
        made[f"run-{backend}-trainer"] = render_run(
            RunInputs(
                backend=backend, trainer_args=args, device=device, topology="4x4", smoke=backend in ("cuda", "jax")
            )
        )
    for device in ("cpu", "cuda", "neuron"):
        made[f"setup-jax-trainer-{device}"] = render_setup(
            SetupInputs(backend="jax", bundled_trainer=True, device=device)
        )
        made[f"run-jax-trainer-{device}"] = render_run(RunInputs(backend="jax", trainer_args=args, device=device))
    made["setup-neuron-trainer-lazy"] = render_setup(SetupInputs(backend="neuron", bundled_trainer=True, device="xla"))
    made["run-neuron-trainer-lazy"] = render_run(RunInputs(backend="neuron", trainer_args=args, device="xla"))
    made["setup-cpu-trainer-local"] = render_setup(
        SetupInputs(backend="cpu", bundled_trainer=True, python="/usr/bin/python3.11", user_setup=user_setup)
    )
    disks = {"scratch": "/opt/dlami/nvme", "neuron": True}
    made["setup-jax-neuron"] = render_setup(
        SetupInputs(backend="jax", user_setup=user_setup, packages=("flax",), **disks)
    )  # type: ignore[arg-type]  # the names are those of the fields
    made["run-jax-neuron"] = render_run(RunInputs(backend="jax", user_run=user_run, own_venv=True, **disks))  # type: ignore[arg-type]  # as above
    made["run-cuda-trainer-owned"] = render_run(RunInputs(backend="cuda", trainer_args=args, holders="refuse"))
    made["run-xla-beside"] = render_run(RunInputs(backend="xla", user_run=user_run, holders="leave"))
    for scheme, source in (("s3", "s3://bucket/data"), ("gs", "gs://bucket/data"), ("file", "file:///data/my books")):
        made[f"copy-{scheme}"] = render_copy_mount(MountInputs(source, "~/data"))
    made["mount-gs"] = render_mount(MountInputs("gs://bucket/data", "~/my books"), may_install=True)
    made["mount-s3"] = render_mount(
        MountInputs("s3://bucket/data", "~/my books"), may_install=True, scratch="/opt/dlami/nvme"
    )
    made["mount-link"] = render_link_mount(MountInputs("file:///data/my books", "~/my books"))
    made["mount-scratch"] = render_scratch("/opt/dlami/nvme")
    made["copy-gs-bucket"] = render_copy_mount(MountInputs("gs://bucket", "/data"))
    return {name: text for name, text in made.items() if text is not None}


SCRIPTS = _scripts()
# The fewest that together hold every part of every template; each is reviewed as a file.
REVIEWED = (
    "copy-file", "copy-gs", "copy-s3", "mount-gs", "mount-link", "mount-s3", "mount-scratch", "run-cpu",
    "run-cuda-trainer", "run-cuda-trainer-owned",
    "run-jax-neuron", "run-jax-trainer", "run-neuron-trainer", "run-neuron-trainer-lazy", "run-tpu-trainer",
    "setup-cuda-trainer", "setup-jax-neuron", "setup-jax-trainer", "setup-tpu-trainer", "setup-xla-trainer",
)  # fmt: skip
# What the other scripts have that no reviewed one has.
START = 'ORCH_RANK=0 ORCH_NUM_HOSTS=1 PYTHONSAFEPATH=1 PYTHONPATH=$orch_path "$ORCH_PYTHON" -m trainer "$@"'
OWN_LINES = {
    "copy-gs-bucket": {"orch_source=gs://bucket", "orch_target=/data"},
    "run-cpu-trainer": {"device=cpu \\"},
    "run-jax": {'export PATH="$HOME/.orch/venv/bin:$PATH"'},
    "run-jax-trainer-cpu": {"device=cpu \\"},
    "run-xla": {'export PJRT_DEVICE="${PJRT_DEVICE-TPU}"'},
    "run-xla-beside": {'export PJRT_DEVICE="${PJRT_DEVICE-TPU}"'},
    "run-xla-trainer": {'export PJRT_DEVICE="${PJRT_DEVICE-TPU}"'},
    "setup-cpu-trainer": {f"[ $# -eq 0 ] || {START} engine=torch device=cpu"},
    "setup-cpu-trainer-local": {
        f"[ $# -eq 0 ] || {START} engine=torch device=cpu",
        '[ -n "${ORCH_PYTHON:-}" ] || ORCH_PYTHON=/usr/bin/python3.11',
    },
    "setup-jax": {
        'export PATH="$HOME/.orch/venv/bin:$PATH"',
        "orch_packages=( jax==0.10.2 libtpu==0.0.43.2 requests==2.34.2 )",
    },
    "setup-jax-trainer-cpu": {
        f"[ $# -eq 0 ] || {START} engine=jax device=cpu",
        "orch_packages=( jax==0.10.2 'numpy>=2.0,<3' obstore==0.12.1 tokenizers==0.23.3 )",
    },
    "setup-jax-trainer-cuda": {
        f"[ $# -eq 0 ] || {START} engine=jax device=cuda",
        "orch_packages=( 'jax[cuda12]==0.10.2' 'numpy>=2.0,<3' obstore==0.12.1 tokenizers==0.23.3 )",
    },
    "setup-jax-trainer-neuron": {
        f"[ $# -eq 0 ] || {START} engine=jax device=neuron",
    },
    "setup-neuron-trainer": {f"[ $# -eq 0 ] || {START} engine=torch device=neuron"},
}


def without_digests(text: str) -> str:
    """Return a script without the locked packages, which scripts/refresh_installs.py may change on any day."""
    return "".join(line for line in text.splitlines(keepends=True) if " --hash=sha256:" not in line)


def code_of(text: str) -> set[str]:
    """Return the lines of a script without blanks at their ends, and without comments."""
    return {
        line.strip()
        for line in without_digests(text).splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    }


def _update_golden() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.glob("*.sh"):
        old.unlink()
    for name in REVIEWED:
        (GOLDEN / f"{name}.sh").write_text(without_digests(SCRIPTS[name]))


if UPDATE:
    _update_golden()


@pytest.mark.parametrize("name", REVIEWED)
def test_script_is_the_reviewed_one(name: str) -> None:
    assert without_digests(SCRIPTS[name]) == (GOLDEN / f"{name}.sh").read_text(), (
        "seen and meant? ORCH_UPDATE_GOLDEN=1 pytest …"
    )


def test_there_is_a_file_for_each_reviewed_script_and_no_other() -> None:
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(REVIEWED)


def test_all_other_scripts_are_made_of_reviewed_lines_and_these() -> None:
    reviewed = {line for name in REVIEWED for line in code_of(SCRIPTS[name])}
    own = {name: code_of(text) - reviewed for name, text in SCRIPTS.items()}
    assert {name: lines for name, lines in own.items() if lines} == OWN_LINES


def test_every_template_of_a_backend_is_rendered() -> None:
    for kind in ("setup", "run"):
        for backend in BACKENDS:
            assert (TEMPLATES / kind / f"{backend}.sh.j2").is_file()
            assert f"{kind}-{backend}" in SCRIPTS


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Every script as a file."""
    folder = tmp_path_factory.mktemp("scripts")
    for name, text in SCRIPTS.items():
        (folder / f"{name}.sh").write_text(text)
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed here")
def test_all_scripts_are_clean_by_shellcheck(written: list[str]) -> None:
    found = subprocess.run(["shellcheck", "--shell=bash", *written], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def test_bash_can_read_every_script(written: list[str]) -> None:
    for path in written:
        found = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, ""), path


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_script_has_no_trailing_blanks_and_at_most_one_empty_line(name: str) -> None:
    text = re.sub(
        r"(<<'ORCH_PYTHON'\n).*?(?=\nORCH_PYTHON\n)", r"\1", SCRIPTS[name], flags=re.DOTALL
    )  # formatted by ruff
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
        place = HostEnvironment(
            common=(),
            internal_ips=ips,
            chips_per_host=4,
            accelerator="v5litepod-8",
            port=29500,
            task_id=Text.of("id"),
            for_setup=for_setup,
        )
        exported |= {name for name, _ in place.for_rank(1)}
    missing = {name for name in exported - {"PATH"} if f"`{name}`" not in page}
    assert missing == set()
