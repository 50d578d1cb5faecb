"""What `orch init` writes is launched: on each simulated cloud, for a model and for an own program."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.orch_process import Orch

MACHINES = {
    ("gcp", "model"): ("--accelerators", "v5litepod-4"),
    ("gcp", "program"): ("--instance-type", "e2-standard-2"),
    ("aws", "model"): ("--accelerators", "H100:8"),
    ("aws", "program"): ("--instance-type", "t3.medium"),
}
WORK = {
    "model": ("--model", "tiny", "--tokens", "1M"),
    "program": ("--program", "python3 train.py --note \"a: b # 'c'\"", "--workdir", "work"),
}
SCHEMES = {"gcp": "gs", "aws": "s3"}

pytestmark = pytest.mark.slow


@pytest.fixture
def person(tmp_path: Path) -> Orch:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("import sys; print('it ran with', sys.argv[2])\n")
    return Orch(tmp_path, {"TMPDIR": str(tmp_path)})


def write(cloud: str, kind: str, *more: str) -> str:
    """Return the command that writes a task file."""
    return shlex.join(["orch", "init", "--yes", "--infra", cloud, *WORK[kind], *MACHINES[cloud, kind], *more])


def simulate(person: Orch, cloud: str, *lines: str) -> str:
    """Run lines in the shell of a simulated cloud, each only after the one before succeeded."""
    return person.ok("simulate", cloud, "--", "bash", "-c", "\n".join(("set -e", *lines)), timeout=170)


@pytest.mark.parametrize("cloud", ["gcp", "aws"])
def test_both_kinds_pass_the_dry_run(person: Orch, cloud: str) -> None:
    """With the bucket, for which AWS machines need the profile that --fix makes."""
    bucket = ("--bucket", f"{SCHEMES[cloud]}://mine-runs/a")
    lines = [
        line
        for kind in WORK
        for line in (write(cloud, kind, *bucket, "--fix", "-o", f"{kind}.yaml"), f"orch launch {kind}.yaml --dry-run")
    ]
    shown = simulate(person, cloud, *lines)
    assert shown.count("Plan to run cluster") == 4, "each once by init, and once by the launch"
    for kind in WORK:
        assert (person.folder / f"{kind}.yaml").exists()


def test_the_fix_of_a_problem_is_shown_and_sent_and_the_plan_is_not_refused(person: Orch) -> None:
    bucket = ("--bucket", "s3://mine-runs/a")
    shown = simulate(person, "aws", write("aws", "program", *bucket, "--fix"))
    assert "to be sent, in this order:" in shown and "aws iam create-instance-profile" in shown
    assert "Plan to run cluster 'train'" in shown


@pytest.mark.parametrize("cloud", ["gcp", "aws"])
def test_an_own_program_really_runs(person: Orch, cloud: str) -> None:
    words = ("--bucket", "none", "--no-check", "-o", "mine.yaml")
    shown = simulate(person, cloud, write(cloud, "program", *words), "orch launch mine.yaml --yes --down")
    assert "it ran with a: b # 'c'" in shown


def test_a_model_really_trains_here(person: Orch) -> None:
    bucket = f"file://{person.folder}/runs"
    words = ("--infra", "local:1", "--model", "tiny", "--tokens", "5000", "--bucket", bucket, "-o", "mine.yaml")
    person.ok("init", "--yes", *words)
    person.ok("launch", "mine.yaml", "--yes", "--down", timeout=170)
    assert list((person.folder / "runs").glob("*/checkpoints/step-00000002*"))
