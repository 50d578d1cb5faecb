"""orch is installed without the fronts of the simulator, and these are a separate distribution."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from orchestrator.distribution import DISTRIBUTION, install_command

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
    library = {name for name in product if name.startswith("orch_run/")}
    assert product - templates - library == tracked_files(ROOT, "orchestrator", "trainer")
    assert {f"trainer/library/{name}" for name in library} == tracked_files(ROOT, "trainer/library/orch_run")
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
    assert f"{DISTRIBUTION}[aws,google]=={product['version']}" in fronts["dependencies"]


def test_every_message_and_page_names_the_distribution_and_not_the_other_project() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION
    wrong = re.compile(r"pip3? install[^`\n]*?[ '\"]orch(?:\[|['\"`\s]|$)")
    places = ("orchestrator", "trainer", "templates", "docs", "examples", "scripts", "tests", "README.md")
    found = [
        f"{name}: {line.strip()}"
        for name in sorted(tracked_files(ROOT, *places) - {"tests/infrastructure/test_distributions.py"})
        for line in (ROOT / name).read_text(errors="replace").splitlines()
        if wrong.search(line)
    ]
    assert not found
    assert wrong.search("run `pip install 'orch[google]'`") and wrong.search("pip install --upgrade orch")
    assert not wrong.search(install_command("aws").split("   ")[0]) and not wrong.search(
        "pip install --no-deps ./tests/fronts"
    )


def test_no_page_or_message_installs_orch_by_its_name_from_an_index() -> None:
    by_name = re.compile(rf"(?<![#/\w-]){DISTRIBUTION}(?![\w-])")
    places = ("orchestrator", "trainer", "templates", "docs", "examples", "scripts", "README.md")
    found = [
        f"{name}: {line.strip()}"
        for name in sorted(tracked_files(ROOT, *places) - {"orchestrator/distribution.py"})
        for line in (ROOT / name).read_text(errors="replace").splitlines()
        if by_name.search(line)
    ]
    assert not found, "install the checkout, or a wheel made from it"
    assert by_name.search(f"sudo pip install '{DISTRIBUTION}[server]'") and by_name.search(f"install `{DISTRIBUTION}`")
    assert not by_name.search(f"[`train`](#{DISTRIBUTION})") and not by_name.search(f"~/.cache/{DISTRIBUTION}er")


def test_pages_install_extras_as_messages_do() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pages = [(ROOT / name).read_text() for name in tracked_files(ROOT, "docs", "README.md") if name.endswith(".md")]
    found = {written for page in pages for written in re.findall(r"pip install '[^'\n]*\[[a-z]+\]'", page)}
    assert {install_command(extra).split("   ")[0] for extra in ("aws", "google", "server")} == found
    assert all(written.split("[")[1].rstrip("]'") in extras for written in found)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_installed_wheel_trains_without_the_checkout(tmp_path: Path) -> None:
    wheel_files(ROOT, tmp_path / "wheel")
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    assert wheel.name.startswith(DISTRIBUTION.replace("-", "_"))
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    scripts = tmp_path / "venv" / "bin"
    pip = [str(scripts / "pip"), "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(pip, check=True, timeout=600)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ORCH_", "PYTHON", "VIRTUAL_"))}
    clean |= {"HOME": str(tmp_path), "ORCH_HOME": str(tmp_path / "orch"), "PATH": f"{scripts}:{os.environ['PATH']}"}

    def orch(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(scripts / "orch"), *words]
        return subprocess.run(
            command, env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )

    small = ("steps=3", "model.dim=64", "model.layers=1", "model.heads=2", "model.kv_heads=1", "batch=4")
    refused = orch("train", "local:2", "--yes", "--", *small)
    assert refused.returncode == 2 and install_command("trainer") in refused.stderr, refused.stderr
    # torch comes from here, as not every index has its small build; this folder's .pth files have no effect there.
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "torch.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    where = subprocess.run(
        [str(scripts / "python"), "-c", "import orchestrator, trainer; print(orchestrator.__file__, trainer.__file__)"],
        env=clean, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert where.stdout.count(str(site)) == 2
    trained = orch("train", "local:2", "--yes", "--", *small)
    assert trained.returncode == 0, trained.stderr
    assert orch("down", "train", "--yes").returncode == 0
