"""scripts/new-provider: the driver that it writes passes the contract suite and the checks from its first minute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAME = "acme"
COPIED = ("orchestrator", "trainer", "templates", "scripts", "pyproject.toml")
TESTS = ("conftest.py", "quarantine.toml", "support", "fronts", "providers")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout in which the driver was made."""
    folder = tmp_path_factory.mktemp("new") / "orch"
    (folder / "tests").mkdir(parents=True)
    skip = shutil.ignore_patterns("__pycache__")
    for name in (*COPIED, *(f"tests/{one}" for one in TESTS)):
        there = ROOT / name
        if there.is_dir():
            shutil.copytree(there, folder / name, ignore=skip)
        else:
            shutil.copy(there, folder / name)
    made = run(folder, sys.executable, "scripts/new_provider.py", NAME)
    assert made.returncode == 0, made.stderr
    assert "orchestrator/drivers.py: 1 line" in made.stdout
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    bin_folder = Path(sys.executable).parent
    variables = {
        **os.environ,
        "PYTHONPATH": f"{folder}:{folder / 'tests/fronts'}",
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "",
        "ORCH_HOME": str(folder / "home"),
    }
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False)


def test_it_passes_the_contract_suite_on_the_neutral_simulator(checkout: Path) -> None:
    suite = "tests/providers/test_provider_contract.py"
    done = run(checkout, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", "-k", NAME, suite)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout


@pytest.mark.full
def test_it_passes_the_checks(checkout: Path) -> None:
    folder = f"orchestrator/providers/{NAME}"
    for words in (
        ("ruff", "check", folder),
        ("ruff", "format", "--check", folder),
        ("mypy", folder),
        ("lint-imports",),
    ):
        done = run(checkout, *words)
        assert done.returncode == 0, (words, done.stdout + done.stderr)


def test_its_machines_are_planned_by_their_name(checkout: Path) -> None:
    task = checkout / "task.yaml"
    task.write_text(f"name: first\nresources: {{infra: {NAME}, instance_type: {NAME}-small}}\nrun: hostname\n")
    done = run(checkout, sys.executable, "-m", "orchestrator", "launch", str(task), "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NAME}1-a" in done.stdout


def test_a_call_that_is_not_written_yet_says_where_to_write_it(checkout: Path) -> None:
    task = checkout / "task.yaml"
    task.write_text(f"name: first\nresources: {{infra: {NAME}, instance_type: {NAME}-small}}\nrun: hostname\n")
    done = run(checkout, sys.executable, "-m", "orchestrator", "launch", str(task), "--yes")
    assert done.returncode != 0
    assert f"orchestrator/providers/{NAME}/service.py" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["class", "", "Big", "1st", "aws"])
def test_a_name_that_cannot_be_is_refused(checkout: Path, name: str) -> None:
    done = run(checkout, sys.executable, "scripts/new_provider.py", name)
    assert done.returncode == 2
    assert done.stderr
