"""On `local`, programs of the environment that is active where the command runs are found first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.orch_process import Orch

TASK = """\
name: mine
resources: {infra: local}
setup: tool-of-env > said
run: cat said; tool-of-env; command -v python3
"""


def test_setup_and_run_find_the_environment_of_the_shell_that_launched(tmp_path: Path) -> None:
    folder = tmp_path / "environment" / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(sys.executable)
    (folder / "tool-of-env").write_text("#!/bin/sh\necho tool of the environment\n")
    (folder / "tool-of-env").chmod(0o755)
    orch = Orch(tmp_path, more={"PATH": f"{folder}:{os.environ['PATH']}"}, fresh=True)
    (tmp_path / "t.yaml").write_text(TASK)
    try:
        printed = orch.ok("launch", "t.yaml", "--yes")
        assert printed.count("tool of the environment\n") == 2, printed
        assert f"{folder}/python3\n" in printed
        assert "tool of the environment\n" in orch.ok("exec", "mine", "--yes", "--", "tool-of-env")
    finally:
        orch("down", "mine", "--yes")
        orch.kill_engines()
