"""orch_run: every process has its own folder for files that wait, whatever else is started on the computer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainer.errors import ConfigError, StorageError, TakenOver
from trainer.program import init
from trainer.program.staging import Staging, find_staging_root

LAPTOP = {"PATH": os.environ["PATH"]}


def test_two_programs_of_one_computer_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    root = find_staging_root("s3://bucket/a", LAPTOP)
    assert root == find_staging_root("gs://other/b", LAPTOP)
    first = Staging(root, "local-r0", print)
    (first.path / "state").touch()
    second = Staging(root, "local-r0", print)
    assert first.path != second.path and (first.path / "state").is_file()


def test_the_folder_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    killed = Staging(tmp_path, "local-r0", print)
    (killed.path / "000001").mkdir()
    killed._held.close()  # as the system does
    later = Staging(tmp_path, "local-r0", print)
    assert not killed.path.exists() and later.path.is_dir()
    later.remove()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_folder_in_tmp_that_is_not_ours_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "theirs").mkdir()
    (tmp_path / f"orch-run-{os.getuid()}").symlink_to("theirs")
    with pytest.raises(StorageError, match="another user's"):
        find_staging_root("s3://bucket/a", LAPTOP)


def test_a_second_start_takes_the_run_over_and_the_first_one_hears_of_it(tmp_path: Path) -> None:
    first = init(f"file://{tmp_path}/place", environ=LAPTOP)
    folder = first.new_folder()
    (folder / "state").touch()
    second = init(f"file://{tmp_path}/place", environ=LAPTOP)
    first.save(folder, 1)
    with pytest.raises(TakenOver):
        first.wait()
    with pytest.raises(TakenOver):
        first.new_folder()
    (second.new_folder() / "state").touch()
    for run in (first, second):
        run.close()


def test_a_closed_run_and_a_lost_disk_have_their_own_errors(tmp_path: Path) -> None:
    run = init(f"file://{tmp_path}/place", environ=LAPTOP)
    folder = run.new_folder()
    (folder / "state").touch()
    run._staging.remove()
    with pytest.raises(StorageError, match="local disk"):
        run.new_folder()
    run.close()
    with pytest.raises(ConfigError, match="closed"):
        run.new_folder()
    with pytest.raises(ConfigError, match="closed"):
        run.save(folder, 1)
