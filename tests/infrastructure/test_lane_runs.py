"""`scripts/test --changed` and `--full` in a small checkout: plan, parts, records, limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
SCRIPTS = ("lane.py", "steps.py", "green.py", "watches.py", "proofs.py")
TOOLS = ("ruff", "shellcheck", "lint-imports", "pyright", "mypy")
TABLE = """
everywhere = ["pyproject.toml"]
[groups]
[folders.plan]
part = "pure"
minutes = 1
watches = ["product/plan.py"]
[folders.cli]
part = "commands"
minutes = {minutes}
watches = ["product"]
"""
PROOF = "histories of the plan that were tried"
PROMISES = "## P1: Nothing is lost\n\n- `plan/test_plan.py::test_promise`\n"
TESTS = {
    "plan/test_plan.py": "from support.proof import report\n\n\ndef test_promise():\n"
    f'    assert PLAN.read_text() != "broken"\n    report({PROOF!r}, {{"tried": 3}})\n',
    "plan/test_more.py": "import pytest\n\n\n@pytest.mark.slow\ndef test_slow(): ...\n\n\n"
    "@pytest.mark.full\ndef test_full(): ...\n",
    "cli/test_cli.py": "def test_cli():\n    PLAN.read_text()\n\n\ndef test_other(): ...\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A repository with a package, two folders of tests, and a tree that was green."""
    root = tmp_path / "checkout"
    for name in SCRIPTS:
        copy(ROOT / "scripts" / name, root / "scripts" / name)
    (root / "scripts" / "check_language.py").write_text("")
    for name in ("conftest.py", "support/lanes.py", "support/proof.py", "support/end_leftovers.py"):
        copy(ROOT / "tests" / name, root / "tests" / name)
    copy(ROOT / "tests" / "support" / "opened_files.py", root / "tests" / "support" / "opened_files.py")
    (root / "tests" / "quarantine.toml").write_text("")
    (root / "tests" / "watches.toml").write_text(TABLE.format(minutes=1))
    for name, text in TESTS.items():
        (root / "tests" / name).parent.mkdir(exist_ok=True)
        plan = f"from pathlib import Path\n\nPLAN = Path({str(root / 'product' / 'plan.py')!r})\n\n\n"
        (root / "tests" / name).write_text(plan + text)
    marks = ["slow: s", "full: f", "core: c", "jax: j", "xla: x", "promise(number): p"]
    ini = f'[tool.pytest.ini_options]\npythonpath = ["tests"]\naddopts = "-q"\nmarkers = {json.dumps(marks)}\n'
    for name, text in {
        "pyproject.toml": ini,
        "README.md": "<!-- proofs: made by scripts/proofs.py -->\n<!-- proofs: end -->\n",
        ".gitignore": "__pycache__/\n.pytest_cache/\n.hypothesis/\nbin/\n",
        "docs/promises.md": PROMISES,
        "docs/proofs.json": '{"parts": {}, "proofs": {}}',
        "product/plan.py": "PLAN = 1\n",
        "product/other.py": "",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    for name in TOOLS:
        tool = root / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\necho called {name}\n")
        tool.chmod(0o755)
    (root / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (root / "bin" / "python").chmod(0o755)
    git(root, "init", "-q")
    git(root, "config", "user.name", "Ann")
    git(root, "config", "user.email", "ann@example.org")
    commit(root)
    yield root


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "-q", "--allow-empty", "-m", "a commit")


def lane(root: Path, *words: str, **more: str) -> tuple[int, str]:
    dropped = ("ORCH_LANE", "ORCH_CHANGED_PATHS", "ORCH_RAN_TESTS", "ORCH_PROOF_REPORT", "PYTEST_OPENED_FILES")
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env |= {"PATH": f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}", **more}
    command, out = [sys.executable, "scripts/lane.py", *words], subprocess.PIPE
    done = subprocess.run(
        command, cwd=root, env=env, stdout=out, stderr=subprocess.STDOUT, text=True, timeout=1200, check=False
    )
    return done.returncode, done.stdout


def green(root: Path) -> list[str]:
    file = root / "tests" / "green.toml"
    return [line["set"] for line in tomllib.loads(file.read_text())["green"]] if file.exists() else []


def make_green(root: Path) -> None:
    """Record the tree of HEAD as green, without a run."""
    code = "from green import *; g = Green(ROOT); g.record(g.digest(g.tree()), CHANGED)"
    subprocess.run([sys.executable, "-c", code], cwd=root / "scripts", check=True, timeout=60)
    commit(root)


def ran(output: str) -> list[str]:
    """Return the runs of tests, in order."""
    return [line.split()[2] for line in output.splitlines() if line.startswith("== tests: ")]


def test_the_core_runs_one_checker_and_says_what_a_change_would_run_besides(checkout: Path) -> None:
    make_green(checkout)
    (checkout / "product" / "plan.py").write_text("PLAN = 2\n")
    status, output = lane(checkout)
    assert status == 0, output
    assert "called pyright" in output and "called mypy" not in output
    assert "Not run: 3 tests of scripts/test --changed" in output, output
    assert output.split("Not run:")[1].splitlines()[0].endswith(": cli 2, plan 1"), output
    assert ran(output) == ["core"] and "1 passed" in output, output


def test_a_change_runs_the_core_and_the_folders_that_watch_it_and_is_the_next_base(checkout: Path) -> None:
    make_green(checkout)
    (checkout / "product" / "other.py").write_text("OTHER = 1\n")
    status, output = lane(checkout, "--changed")
    assert (status, ran(output)) == (0, ["core", "cli"]), output
    assert "called pyright" in output and "called mypy" in output
    assert green(checkout) == ["changed", "changed"]
    commit(checkout)
    (checkout / "product" / "plan.py").write_text("broken")
    status, output = lane(checkout, "--changed")
    assert status == 1 and "FAILED: tests: plan" in output and "product/other.py" not in output, output
    assert green(checkout) == ["changed", "changed", "checks", "core", "commands"]


def test_without_a_base_everything_runs(checkout: Path) -> None:
    status, output = lane(checkout, "--changed")
    assert status == 0 and "no base in tests/green.toml" in output, output
    assert ran(output) == ["core", "plan", "cli"] and green(checkout) == ["changed"]


def test_what_the_time_does_not_allow_is_incomplete_until_its_parts_were_green(checkout: Path) -> None:
    (checkout / "tests" / "watches.toml").write_text(TABLE.format(minutes=90))
    commit(checkout)
    status, output = lane(checkout, "--changed")
    assert status == 1 and "FAILED: incomplete: run scripts/test --changed commands" in output, output
    assert ran(output) == ["core", "plan"] and green(checkout) == ["checks", "core", "pure"]
    status, output = lane(checkout, "--changed", "commands")
    assert (status, ran(output)) == (0, ["cli"]), output
    assert green(checkout) == ["changed"]
    status, output = lane(checkout, "--changed")
    assert status == 0 and "cli" not in ran(output), output


def test_a_folder_is_red_whose_row_does_not_cover_what_it_opens(checkout: Path, tmp_path: Path) -> None:
    make_green(checkout)
    (checkout / "tests" / "watches.toml").write_text(
        TABLE.format(minutes=1).replace('watches = ["product"]', 'watches = ["product/other.py"]')
    )
    (checkout / "product" / "other.py").write_text("OTHER = 1\n")
    # The checkout's own copy of the hook, as .venv would import it.
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import os\nif 'PYTEST_OPENED_FILES' in os.environ:\n    import runpy\n"
        f"    runpy.run_path({str(checkout / 'tests' / 'support' / 'opened_files.py')!r})\n"
    )
    status, output = lane(checkout, "--changed", PYTHONPATH=str(hook))
    assert status == 1, output
    assert "add to [folders.cli] what covers\n   product/plan.py" in output
    assert "FAILED: tests/watches.toml: tests/cli does not watch what its processes open" in output


def test_each_part_of_the_full_lane_is_recorded_and_only_what_is_due_runs_again(checkout: Path) -> None:
    status, output = lane(checkout, "--full", "pure")
    assert (status, ran(output)) == (0, ["plan"]) and "4 passed" not in output, output
    record = json.loads((checkout / "docs" / "proofs.json").read_text())
    assert set(record["parts"]) == {"pure"}
    assert record["parts"]["pure"]["commit"] == git(checkout, "rev-parse", "HEAD")
    assert record["proofs"][PROOF]["counts"] == {"tried": 3}
    status, output = lane(checkout, "--full")
    assert (status, ran(output)) == (0, ["cli"]) and "called mypy" in output, output
    assert set(json.loads((checkout / "docs" / "proofs.json").read_text())["parts"]) == {"pure", "checks", "commands"}
    status, output = lane(checkout, "--full")
    assert (status, ran(output)) == (0, []), output


FAULTS = """
import json, os, sys
with open(os.environ["ORCH_PROOF_REPORT"], "a") as file:
    file.write(json.dumps({"name": "faults", "counts": {"faults": 7}, "violations": 0}) + "\\n")
sys.exit(sys.argv[1:] != ["mutants-plan"])
"""


def test_a_part_with_faults_is_a_part_of_the_full_lane_alone(checkout: Path) -> None:
    row = '[mutants.plan]\nwhat = "the plan"\nfiles = ["product/plan.py"]\ntests = ["plan"]\n'
    (checkout / "tests" / "watches.toml").write_text(TABLE.format(minutes=1) + row)
    (checkout / "scripts" / "mutants.py").write_text(FAULTS)
    commit(checkout)
    status, output = lane(checkout, "--full", "mutants-plan")
    assert (status, ran(output)) == (0, []) and "== faults: mutants-plan" in output, output
    record = json.loads((checkout / "docs" / "proofs.json").read_text())
    assert set(record["parts"]) == {"mutants-plan"} and record["proofs"]["faults"]["counts"] == {"faults": 7}
    assert lane(checkout, "--changed", "mutants-plan")[0] == 2


def test_a_part_that_fails_is_not_recorded(checkout: Path) -> None:
    (checkout / "product" / "plan.py").write_text("broken")
    commit(checkout)
    status, output = lane(checkout, "--full", "pure")
    assert status == 1 and "pure is not recorded" in output, output
    assert json.loads((checkout / "docs" / "proofs.json").read_text())["parts"] == {}


def test_an_unknown_part_is_named_with_those_that_exist(checkout: Path) -> None:
    status, output = lane(checkout, "--changed", "clli")
    assert status == 2 and "unknown: clli" in output and "commands" in output
