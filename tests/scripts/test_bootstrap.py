"""scripts/bootstrap prefers the CPU build of torch, announces a large download, and installs both distributions."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """#!/usr/bin/env bash
# Records calls of pip; the CPU build of torch is available only from $SOURCE.
case "$*" in
    *sysconfig*) echo "$SITE"; exit 0 ;;
    -c*) exit 1 ;;
    *torch-cpu.lock*)
        case "$*" in
            *--no-index*) found=find-links ;;
            *--index-url*) found=variable ;;
            *) found=configured ;;
        esac
        echo "cpu from $found" >>"$CALLS"
        [ "$found" = "$SOURCE" ] ;;
    *torch-index.lock*) echo "index build" >>"$CALLS" ;;
    *) echo packages >>"$CALLS" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the script needs, with a recorder in place of Python."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "bootstrap", tmp_path / "scripts")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests" / "fronts").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "fronts" / "pyproject.toml", tmp_path / "tests" / "fronts")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def bootstrap(checkout: Path, source: str, index: str = "") -> tuple[int, list[str], str]:
    """Run the script; return its status, the calls of pip, and its messages."""
    calls = checkout / "calls"
    environ = {**os.environ, "CALLS": str(calls), "SOURCE": source, "SITE": str(checkout), "ORCH_SSHD": "/bin/true"}
    environ["ORCH_TORCH_INDEX"] = index
    done = subprocess.run(
        [str(checkout / "scripts" / "bootstrap")], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, calls.read_text().splitlines(), done.stderr


def test_a_folder_of_wheels_comes_first(checkout: Path) -> None:
    assert bootstrap(checkout, "find-links", index="https://index.test/cpu")[:2] == (
        0,
        ["packages", "cpu from find-links"],
    )


def test_the_index_of_the_variable_is_used_without_a_question(checkout: Path) -> None:
    status, calls, messages = bootstrap(checkout, "variable", index="https://index.test/cpu")
    assert (status, calls) == (0, ["packages", "cpu from find-links", "cpu from variable"])
    assert "about 190 MB" in messages


def test_a_wrong_index_in_the_variable_never_leads_to_the_large_build(checkout: Path) -> None:
    status, calls, messages = bootstrap(checkout, "configured", index="https://index.test/wrong")
    assert (status, calls) == (1, ["packages", "cpu from find-links", "cpu from variable"])
    assert "ORCH_TORCH_INDEX has no torch 2.13.0+cpu" in messages


def test_configured_indexes_are_tried_before_the_large_build(checkout: Path) -> None:
    status, calls, messages = bootstrap(checkout, "configured")
    assert (status, calls) == (0, ["packages", "cpu from find-links", "cpu from configured"])
    assert "2.5 GB" not in messages


def test_the_size_of_the_large_build_is_announced_first(checkout: Path) -> None:
    status, calls, messages = bootstrap(checkout, "nowhere")
    assert (status, calls[-1]) == (0, "index build")
    assert "roughly 2.5 GB" in messages and "ORCH_TORCH_INDEX" in messages


def test_the_checkout_is_installed_with_the_fronts_of_the_simulator(checkout: Path) -> None:
    stale = checkout / "orch_fronts-0.0.1.dist-info"
    stale.mkdir()
    for _ in range(2):
        assert bootstrap(checkout, "find-links")[0] == 0
    *places, hook = (checkout / "orch-checkout.pth").read_text().splitlines()
    assert hook.startswith("import os; ") and "PYTEST_OPENED_FILES" in hook
    assert places == [
        str(checkout),
        str(checkout / "tests" / "fronts"),
        str(checkout / "trainer" / "library"),
    ]
    (installed,) = distributions(name="orch-fronts", path=[str(checkout)])
    project = tomllib.loads((ROOT / "tests" / "fronts" / "pyproject.toml").read_text())["project"]
    assert installed.version == project["version"]
    found = {one.name: one.value for one in installed.entry_points.select(group="orch.fronts")}
    assert found == project["entry-points"]["orch.fronts"]
