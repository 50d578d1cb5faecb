"""scripts/mutants.py: faults of a fixed sample, put one at a time under the tests of a small checkout."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import mutants  # noqa: E402  # a script, and no part of a package
from mutations import draw_sample  # noqa: E402  # likewise
from watches import Watches  # noqa: E402  # likewise

PROGRAM = """# prints whether a number is below 3
umask 022
if [ "$1" -lt 3 ]; then
    echo below
fi
"""
TABLE = """
everywhere = []
[groups]
[folders.shell]
part = "shell"
minutes = 1
watches = ["below.sh"]
[mutants.shell]
what = "a program"
files = ["*.sh"]
tests = ["shell"]
"""
TEST = """
import subprocess
from pathlib import Path

PROGRAM = str(Path(__file__).parents[2] / "below.sh")


def run(number):
    return subprocess.run(["sh", PROGRAM, number], capture_output=True, text=True).stdout


def test_below():
    assert (run("1"), run("9")) == ("below\\n", "")
"""
MORE = """

def test_more():
    assert run("3") == ""
"""
REASON = 'equivalent = "because the test says so"'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A program with a weak test."""
    probe = ["unshare", "--mount", "true"]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("a mount namespace needs root")
    root = tmp_path / "checkout"
    files = {
        "below.sh": PROGRAM,
        "tests/watches.toml": TABLE,
        "tests/mutants.toml": "",
        "tests/conftest.py": "",
        "tests/shell/test_below.py": TEST,
        "requirements/mutants.lock": "",
        ".venv-mutants/complete": hashlib.sha256(b"").hexdigest(),  # faults of the shell need no tool
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "scripts").mkdir()
    for name in ("mutants.py", "mutations.py", "watches.py"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts")
    return root


def put_faults(root: Path, *words: str, **more: str) -> tuple[int, str]:
    command = [sys.executable, "scripts/mutants.py", "mutants-shell", *words]
    done = subprocess.run(command, cwd=root, env=os.environ | more, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_fault_that_no_test_notices_is_red_until_it_has_a_test_or_a_reason(checkout: Path, tmp_path: Path) -> None:
    status, output = put_faults(checkout)
    unnoticed = re.findall(r'id = "(\w+)"\nfault = "below.sh:\d (.+)"', output)
    assert status == 1 and [fault for _, fault in sorted(unnoticed, key=lambda row: row[1])] == [
        r"comparison: if [ \"$1\" -lt 3 ]; then -> if [ \"$1\" -le 3 ]; then",
        "leave out: umask 022 -> :",
        r"number: if [ \"$1\" -lt 3 ]; then -> if [ \"$1\" -lt 4 ]; then",
    ], output
    assert (checkout / "below.sh").read_text() == PROGRAM

    (checkout / "tests" / "shell" / "test_below.py").write_text(TEST + MORE)
    status, output = put_faults(checkout)
    (rest,) = re.findall(r'id = "(\w+)"', output)
    assert status == 1 and dict(unnoticed)[rest].startswith("leave out"), output

    (checkout / "tests" / "mutants.toml").write_text(f'[[mutant]]\nid = "{rest}"\n{REASON}\n')
    records = tmp_path / "records"
    _, output = put_faults(checkout, ORCH_PROOF_REPORT=str(records))
    record = json.loads(records.read_text())
    assert record["violations"] == 0 and record["counts"] == {"faults": 5, "noticed": 4, "without effect": 1}, output
    assert record["name"] == Watches.load(checkout).mutated["mutants-shell"].proof


@pytest.mark.slow
def test_a_run_continues_where_it_was_stopped_and_names_a_listed_fault_that_is_noticed(checkout: Path) -> None:
    put_faults(checkout, "3")
    record = checkout / ".pytest_cache" / "mutants" / "mutants-shell-shell.jsonl"
    tried = record.read_text().splitlines()
    assert len(tried) == 4 and json.loads(tried[0])["id"] == ""
    noticed = next(result["id"] for result in map(json.loads, tried) if result["noticed"])
    (checkout / "tests" / "mutants.toml").write_text(f'[[mutant]]\nid = "{noticed}"\n{REASON}\n')
    status, output = put_faults(checkout, "3")
    assert record.read_text().splitlines() == tried
    assert status == 1 and f"delete {noticed}, which tests/shell/test_below.py::test_below notices" in output, output


def test_nothing_is_tried_while_the_tests_fail_without_a_fault(checkout: Path) -> None:
    (checkout / "below.sh").write_text("exit 2\n")
    status, output = put_faults(checkout)
    assert status == 1 and "fail without any fault" in output and "noticed" not in output, output


def test_an_edit_elsewhere_changes_no_fault(tmp_path: Path) -> None:
    (tmp_path / "below.sh").write_text(PROGRAM)
    before = {mutant.id: mutant.operator for mutant in draw_sample(tmp_path, ["below.sh"], 200)}
    assert sorted(before.values()) == ["comparison", "leave out", "leave out", "not", "number"]
    (tmp_path / "below.sh").write_text("#!/bin/sh\n# if [ 1 = 1 ] && exit 0\n\n" + PROGRAM + "more=x\n")
    after = {mutant.id: mutant.operator for mutant in draw_sample(tmp_path, ["below.sh"], 200)}
    assert before.items() < after.items() and len(after) == len(before) + 1


def test_each_part_with_faults_names_files_and_folders_that_exist() -> None:
    watches = Watches.load(ROOT)
    assert {"mutants-plan", "mutants-core", "mutants-store", "mutants-storage", "mutants-shell"} <= set(watches.mutated)
    for part in watches.mutated.values():
        assert all(list(ROOT.glob(name)) for name in part.files) and set(part.tests) <= set(watches.folders)


PYTHON = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Thing
Kind = int | str
def keep(items: list[int] | None = None, *, most: int = 3) -> int | None:
    '''Return 1 or 2.'''
    found: dict[int, str | None] = {}
    for item in items or []:
        if item < most and item not in found:
            found.update({item: f"{item + 1}"})
    if len(found) > 4000:
        raise ValueError(f"{most + 1} are too many")
    return len(found) - 1
"""


@pytest.mark.full  # installs cosmic-ray
def test_faults_of_python_are_in_what_runs(tmp_path: Path) -> None:
    mutants.install_tool()
    (tmp_path / "keep.py").write_text(PYTHON)
    sample = draw_sample(tmp_path, ["keep.py"], 200)
    changed = {mutant.after for mutant in sample}
    assert {"return len(found) + 1", "for item in []:", "pass"} <= changed
    assert {mutant.line for mutant in sample} == {6, 9, 10, 11, 12, 13, 14}, changed
    assert not [text for text in changed if re.search(r"most \+ [02]|4001|3999|&|item - 1", text)]
