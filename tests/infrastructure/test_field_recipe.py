"""The recipe "A new field of a task file" of CONTRIBUTING.md, carried out in a copy of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("orchestrator", "trainer", "templates", "docs", "examples", "scripts", "tests/task", "tests/support")
# A new field with a default in every section that a task's record writes out, and the class that declares it.
FIELDS = {
    "recovery.trial": ("model.py", "Recovery", 'trial: Count = own(7, "rounds of a trial")', "3"),
    "checkpoint.trial": ("model.py", "Checkpoint", 'trial: Count = own(7, "rounds of a trial")', "3"),
    "hosts.addresses[].trial": ("model.py", "UserHost", 'trial: Flag = own(True, "whether a trial is made")', "False"),
    "resources.trial": (
        "resources.py",
        "ResourceFields",
        'trial: Flag = own(True, "whether a trial is made")',
        "False",
    ),
    "resources.autostop.trial": ("resources.py", "AutoStop", 'trial: Flag = own(True, "as a trial")', "False"),
}
COMPARE = """
import sys
sys.path.insert(0, "tests/task")
from test_job_digest import RECORDED, compute_digest
for text, digest in RECORDED:
    assert compute_digest(text) == digest, text
"""


def add_fields(copy: Path) -> None:
    for path, (file, kind, line, sample) in FIELDS.items():
        model = copy / "orchestrator" / "task" / file
        head = re.compile(rf"(^class {kind}\(.*?)(^    \w+: (?!ClassVar))", re.M | re.S)
        text, count = head.subn(rf"\1    {line}\n\2", model.read_text(), count=1)
        assert count == 1, kind
        model.write_text(text)
        samples = copy / "tests" / "task" / "test_export.py"
        samples.write_text(samples.read_text().replace("SERVED = {\n", f'SERVED = {{\n    "{path}": {sample},\n'))


def run(copy: Path, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_recipe_ends_green_and_no_digest_changes(tmp_path: Path) -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    recipe = page.partition("### A new field of a task file\n")[2].partition("\n### ")[0]
    assert "`python -m orchestrator.task.export`" in recipe and "`scripts/test tests/task`" in recipe
    for folder in NEEDED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/conftest.py", "tests/quarantine.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    add_fields(tmp_path)
    run(tmp_path, "-m", "orchestrator.task.export")
    run(tmp_path, "-c", COMPARE)
    run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", "tests/task")
