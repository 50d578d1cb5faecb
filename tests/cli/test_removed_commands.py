"""A command that was removed says what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.orch_process import Orch


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("adopt mine", "infra: hosts"),
        ("release mine", "infra: hosts"),
        ("team", "orch token create"),
        ("store grant ann", "docs/team.md"),
        ("store serve-only", "docs/team.md"),
        ("store password", "docs/team.md"),
        ("store import folder", "orch store restore"),
    ],
)
def test_a_removed_command_names_the_next_step(tmp_path: Path, line: str, step: str) -> None:
    done = Orch(tmp_path)(*line.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "was removed" in done.stderr and step in done.stderr and "did you mean" not in done.stderr
