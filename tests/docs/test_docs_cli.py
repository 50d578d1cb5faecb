"""docs/cli.md against the commands that it describes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "scripts" / "cli_reference.py"


def test_reference_of_commands_equals_what_the_commands_print() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_reference_names_every_command_and_its_options() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for command, option in (("launch", "--dry-run"), ("storage ls", "--output"), ("local preempt", "--dry-run")):
        section = page.partition(f" orch {command}\n")[2].partition("\n##")[0]
        assert f"```text\norch {command}" in section, command
        assert f"`{option}" in section or f", {option}" in section, (command, option)
