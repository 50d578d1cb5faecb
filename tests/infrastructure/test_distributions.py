"""orch is installed without the fronts of the simulator, and these are a separate distribution."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRONTS = ROOT / "tests" / "fronts"


def wheel_files(project: Path, folder: Path) -> set[str]:
    """Build the wheel of a project and return the paths in it, without those of its metadata."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def tracked_files(folder: Path, *packages: str) -> set[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *packages]
    listed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()
    return {name for name in listed if (folder / name).is_file()}


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return wheel_files(ROOT, tmp_path_factory.mktemp("product"))


def test_the_wheel_of_orch_has_its_packages_with_all_their_files_and_no_front(product: set[str]) -> None:
    templates = {name for name in product if name.startswith("orchestrator/_templates/")}
    assert product - templates == tracked_files(ROOT, "orchestrator", "trainer")
    assert {name.replace("orchestrator/_templates", "templates") for name in templates} == tracked_files(
        ROOT, "templates"
    )
    for vendor in ("aws", "google"):
        assert not [name for name in product if name.startswith(f"orchestrator/simulator/{vendor}")]
    assert "orchestrator/simulator/scenarios/calm.toml" in product, "the simulated cloud itself stays"


def test_the_wheel_of_the_fronts_has_nothing_else(tmp_path: Path, product: set[str]) -> None:
    fronts = wheel_files(FRONTS, tmp_path)
    assert fronts == tracked_files(FRONTS, "orch_fronts")
    assert {"orch_fronts/aws/server.py", "orch_fronts/google/server.py"} <= fronts
    assert not fronts & product


def test_the_checkout_provides_the_entry_points_that_the_fronts_declare() -> None:
    declared = tomllib.loads((FRONTS / "pyproject.toml").read_text())["project"]["entry-points"]
    found = {one.name: one.value for one in entry_points(group="orch.fronts")}
    assert {"orch.fronts": found} == declared, "run scripts/bootstrap"
    assert all(callable(one.load()) for one in entry_points(group="orch.fronts"))


def test_both_distributions_have_one_version_and_need_each_other_in_it() -> None:
    product, fronts = (tomllib.loads((folder / "pyproject.toml").read_text())["project"] for folder in (ROOT, FRONTS))
    assert product["version"] == fronts["version"]
    assert f"orch[aws,google]=={product['version']}" in fronts["dependencies"]
