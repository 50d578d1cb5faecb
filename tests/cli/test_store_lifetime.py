"""P9: through the command line, a store that was copied, lost, restored; nothing is lost, nothing is doubled."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    own = Orch(tmp_path)
    (tmp_path / "task.yaml").write_text("resources: {infra: 'local:1'}\nrun: echo done\n")
    yield own
    own("down", "one", "two", "--yes")


def names(orch: Orch) -> list[str]:
    return [line.split()[0] for line in orch.ok("status").splitlines()[1:]]


@pytest.mark.promise("P9")
@pytest.mark.timeout(400)
def test_a_lost_store_is_restored_from_its_bucket_and_continues(orch: Orch, tmp_path: Path) -> None:
    bucket = (tmp_path / "backups").as_uri()
    orch.ok("config", "set", "store.backup", bucket)
    orch.ok("config", "set", "store.backup_minutes", "600")
    orch.ok("launch", "task.yaml", "-c", "one", "--yes")
    assert f"in {bucket}" in orch.ok("store"), "the command has copied it by itself"
    orch.ok("launch", "task.yaml", "-c", "two", "--yes")  # within ten hours: not in the backup
    for file in orch.state.glob("orch.db*"):
        file.unlink()
    (orch.state / "orch.db").write_text("destroyed" * 1000)
    assert orch("status").returncode == 1
    orch.ok("store", "restore", bucket, "--replace", "--yes")
    assert names(orch) == ["one"]
    found = orch("recover")
    assert "two " in found.stdout and "orch recover two --end" in found.stderr
    orch.ok("recover", "two", "--end", "--yes")
    orch.ok("exec", "one", "--", "true")
    orch.ok("down", "one", "--yes")
    assert names(orch) == []
    assert "0 slices" in orch("recover").stderr
    orch.ok("events", "--verify")


@pytest.mark.promise("P9")
@pytest.mark.timeout(400)
def test_a_copied_home_is_only_read_until_a_person_says_what_it_is(orch: Orch, tmp_path: Path) -> None:
    orch.ok("launch", "task.yaml", "-c", "one", "--yes")
    copy = Orch(tmp_path / "copy")
    shutil.copytree(orch.state, copy.state, ignore=shutil.ignore_patterns("hosts"))
    assert names(copy) == ["one"]
    refused = copy("launch", str(orch.folder / "task.yaml"), "-c", "new", "--yes")
    assert refused.returncode == 1
    assert "orch store moved" in refused.stderr and "orch store copied" in refused.stderr
    assert "only read" in copy("status").stderr
    shown = copy("store")
    assert shown.returncode == 0 and "only read" in shown.stdout, shown.stdout
    assert "orch store moved" in shown.stderr and "orch store restored" in shown.stderr, shown.stderr
    unasked = copy("store", "copied")
    assert unasked.returncode == 2 and "--yes" in unasked.stderr
    assert "one" in copy.ok("store", "copied", "--dry-run")
    copy.ok("store", "copied", "--yes")
    assert "only read" not in copy.ok("store")
    assert "only read" not in copy("status").stderr
    assert names(copy) == []
    assert names(orch) == ["one"]
    orch.ok("exec", "one", "--", "true")
