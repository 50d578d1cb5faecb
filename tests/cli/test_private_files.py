"""Files that orch keeps for itself are closed to other users of the computer, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASK = """
name: mine
resources: {infra: "local:2"}
workdir: work
run: echo hello; touch ~/of-the-program
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    """An orch whose shell lets everybody read and write what its programs make."""
    (tmp_path / "work" / "package").mkdir(parents=True)
    (tmp_path / "work" / "package" / "run.sh").write_text("echo packaged\n")
    (tmp_path / "work" / "package" / "run.sh").chmod(0o755)
    (tmp_path / "task.yaml").write_text(TASK)
    before = os.umask(0)
    orch = Orch(tmp_path)
    try:
        yield orch
    finally:
        orch("down", "mine")
        orch("down", "later")
        os.umask(before)


def open_to_others(home: Path) -> list[str]:
    """Return the files and folders below `home` that others could use, without those of programs on local hosts."""
    found: list[str] = []
    for folder, folders, files in os.walk(home):
        if Path(folder).parent.name == "hosts" and "home" in folders:
            found += [f"{folder}/home"] if (Path(folder) / "home").stat().st_mode & 0o077 else []
            folders.remove("home")
        for path in (Path(folder), *(Path(folder) / name for name in files)):
            mode = path.lstat().st_mode
            if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and mode & 0o077:
                found.append(f"{path.relative_to(home)} {stat.S_IMODE(mode):o}")
    return found


def use_every_kind_of_file(orch: Orch, downloads: Path) -> None:
    orch.ok("config", "set", "limits.max_hours", "3")
    orch.ok("launch", "task.yaml")
    orch.ok("launch", "task.yaml", "--cluster", "later", "--detach")
    until("the engine has ended", lambda: '"running"' not in orch.ok("queue", "-o", "json", "--all"))
    orch.ok("logs", "mine", "1")
    orch.ok("exec", "mine", "--", "true")
    orch.ok("cp", "mine:of-the-program", str(downloads / "file"))
    orch.ok("status")
    orch.ok("stop", "mine")


def test_no_file_of_orch_is_open_to_others_whatever_the_umask_is(orch: Orch, tmp_path: Path) -> None:
    use_every_kind_of_file(orch, tmp_path / "downloads")
    home = tmp_path / "orch"
    assert open_to_others(home) == []
    kept = {path.name for path in home.rglob("*")}
    assert {"orch.db", "engine.log", "config.toml", "files", "logs", "keys", "local"} <= kept
    files = [path for path in (tmp_path / "downloads").rglob("*") if path.is_file()]
    assert [path.stat().st_mode & 0o777 for path in files] == [0o644] * 2, "the user's own files are the user's"
    orch.ok("config", "set", "limits.max_hours", "4")
    orch.ok("down", "mine")
    assert open_to_others(home) == []
