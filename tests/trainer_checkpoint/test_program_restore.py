"""orch_run.restore: what a bucket's manifest names stays in the folder, and what was saved can be restored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from program_crash import at_once, open_run, save_step, two_ranks

from trainer.checkpoint.manifest import CorruptCheckpoint, Manifest, StepFolder, check_file_path, find_blocked_file
from trainer.errors import ConfigError, StorageError
from trainer.program.files import list_files
from trainer.program.run import Run
from trainer.program.saver import Save

RECORD = ".orch-restored.json"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1, keep=9)


def save(run: Run, step: int, *names: str) -> None:
    folder = run.new_folder()
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name} of step {step}")
    run.save(folder, step)
    run.wait()


def read(folder: Path) -> dict[str, str]:
    found = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if not name.startswith(".orch-restored")}


def format_record(*names: str) -> str:
    return json.dumps({"checkpoint": "file:///elsewhere", "files": names})


def read_manifest(run: Run, step: int) -> tuple[Path, dict[str, list[dict[str, str]]]]:
    path = Path(run.uri.removeprefix("file://")) / StepFolder(step, 1, 1).manifest
    return path, json.loads(path.read_text())


@pytest.mark.parametrize("name", [RECORD, ".ORCH-restored.json", ".orch-restored.parts/0", "a" * 256])
def test_a_checkpoint_has_no_file_of_that_name(name: str) -> None:
    with pytest.raises(CorruptCheckpoint):
        check_file_path(name)
    with pytest.raises(CorruptCheckpoint):
        check_file_path("\ud800")  # no disk has it


def test_a_bucket_cannot_write_the_record_of_what_a_restore_removes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "victim").touch()
    for step in (1, 2):
        save(run, step, "a", "b")
    path, content = read_manifest(run, 2)
    content["parts"][0]["file"] = RECORD
    path.write_text(json.dumps(content))
    assert run.restore(tmp_path / "in") == 1
    assert json.loads((tmp_path / "in" / RECORD).read_text())["files"] == ["a", "b"]


@pytest.mark.parametrize("name", ["../victim", "{}/victim", "a/../../victim"])
def test_a_record_that_leads_out_of_the_folder_removes_nothing(run: Run, tmp_path: Path, name: str) -> None:
    save(run, 1, "a")
    victim = tmp_path / "victim"
    victim.touch()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / RECORD).write_text(format_record(name.format(tmp_path)))
    assert run.restore(tmp_path / "in") == 1 and victim.is_file()


@pytest.mark.parametrize(
    "text",
    ["", '["a', "null", "[1]", "7", "{}", '{"checkpoint": 1, "files": 7}', pytest.param("[" * 100_000, id="deep")],
)
def test_a_torn_record_does_not_prevent_the_restore(run: Run, tmp_path: Path, text: str) -> None:
    save(run, 1, "a")
    assert run.restore(tmp_path / "in") == 1
    (tmp_path / "in" / RECORD).write_text(text)
    assert run.restore(tmp_path / "in") == 1 and read(tmp_path / "in") == {"a": "a of step 1"}


def test_long_names_and_a_file_in_place_of_a_folder_are_restored_into_the_same_folder(run: Run, tmp_path: Path) -> None:
    for step, names in ((1, ("m/w/x", "n" * 255)), (2, ("m", "k")), (3, ("m/w",)), (4, ("m/w/x",))):
        save(run, step, *names)
        assert run.restore(tmp_path / "in") == step
        assert read(tmp_path / "in") == {name: f"{name} of step {step}" for name in names}
    assert {path.name for path in (tmp_path / "in").iterdir()} == {RECORD, ".orch-restored.lock", "m"}


def test_what_a_restore_keeps_in_its_folder_is_not_saved(run: Run, tmp_path: Path) -> None:
    save(run, 1, "a")
    run.restore(tmp_path / "in")
    assert list_files(tmp_path / "in") == ["a"]


def test_a_killed_restore_between_a_file_and_a_folder_of_one_name_is_repeated(run: Run, tmp_path: Path) -> None:
    save(run, 1, "k")
    for present in ("m", "m/w"):
        folder = tmp_path / present.replace("/", "-")
        (folder / present).parent.mkdir(parents=True)
        (folder / present).touch()
        (folder / RECORD).write_text(format_record("m", "m/w"))
        assert run.restore(folder) == 1 and read(folder) == {"k": "k of step 1"}


def test_a_name_of_a_file_and_of_a_folder_is_refused(run: Run) -> None:
    assert find_blocked_file(["a", "m/n/w", "m/n"]) == "m/n"
    assert find_blocked_file(["a", "m/w", "mm", "m/n/w"]) == ""
    save(run, 1, "m", "n")
    path, content = read_manifest(run, 1)
    content["parts"][1]["file"] = "m/w"
    with pytest.raises(CorruptCheckpoint, match="as a file and as a folder"):
        Manifest.from_json(json.dumps(content).encode(), StepFolder(1, 1, 1))
    path.write_text(json.dumps(content))
    assert run.latest() is None


def test_ranks_cannot_publish_a_file_and_a_folder_of_one_name(tmp_path: Path) -> None:
    run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=1)
    assert run.saver is not None
    save(run, 1, "m")
    _, content = read_manifest(run, 1)
    folder = StepFolder(2, 1, 1)
    parts = Manifest.from_json(json.dumps({**content, "step": 2}).encode(), folder).parts
    with pytest.raises(StorageError, match="m is a file of one rank and a folder of another"):
        run.saver._publish(
            folder,
            Save(step=2, place=tmp_path, names=["m"], meta={}, sharded=True),
            (parts[0], replace(parts[0], file="m/w")),
        )


@pytest.mark.parametrize("folder", [".", "/"])
def test_the_program_s_own_folder_is_refused(
    run: Run, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(run, 1, "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="holds files"):
        run.restore(folder)


def test_the_program_s_file_is_in_no_folder_to_restore_to(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(run, 1, "a")
    (tmp_path / "code/deep").mkdir(parents=True)
    (tmp_path / "code/deep/train.py").touch()
    monkeypatch.setattr("sys.argv", [str(tmp_path / "code/deep/train.py")])
    run.save(tmp_path / "code", 2)
    run.wait()
    assert not (tmp_path / "code" / RECORD).exists(), "its code is not the run's to replace"
    with pytest.raises(ConfigError, match="the program works in it"):
        run.restore(tmp_path / "code")


def test_a_folder_that_the_run_saved_is_replaced_by_the_checkpoint(run: Run, tmp_path: Path) -> None:
    """As nanoGPT's out_dir on the host of the last attempt: the bucket's checkpoint counts, not what lies there."""
    out = tmp_path / "out"
    for step, names in ((1, ("ckpt.pt", "1/state")), (2, ("ckpt.pt", "2/state"))):
        for name in names:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(f"{name} of step {step}")
        run.save(out, step)
        run.wait()
    (out / "ckpt.pt").write_text("of step 3, which was not saved")
    (out / "log.txt").write_text("mine")
    damage(run, 2, "part-00000-002.file")  # ckpt.pt
    assert run.restore(out) == 1
    assert read(out) == {"ckpt.pt": "ckpt.pt of step 1", "1/state": "1/state of step 1", "log.txt": "mine"}
    assert not (out / ".orch-restored.kept").exists()


def test_files_of_others_stay_and_those_in_the_way_are_set_aside(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 1, "ckpt.pt", "same", "a/b/state", "c", "linked/x")
    out = tmp_path / "out"
    (out / "c/deep").mkdir(parents=True)
    for name in ("ckpt.pt", "a", "c/deep/file", "notes"):
        (out / name).write_text(f"my {name}")
    (out / "same").write_text("same of step 1")
    (out / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    for _ in range(2):
        assert run.restore(out) == 1
        aside = out / ".orch-restored.kept"
        kept = {path.relative_to(aside).parts[1:]: path for path in aside.rglob("*") if not path.is_symlink()}
        assert {"/".join(parts): path.read_text() for parts, path in kept.items() if path.is_file()} == {
            name: f"my {name}" for name in ("ckpt.pt", "a", "c/deep/file")
        }
    assert read(out) == {
        "notes": "my notes",
        **{name: f"{name} of step 1" for name in ("ckpt.pt", "same", "a/b/state", "c", "linked/x")},
    }
    assert not list((tmp_path / "elsewhere").iterdir()), "nothing is written through a link of others"
    assert capsys.readouterr().err.count("are kept in") == 1
    run.save(out, 2)
    run.wait()
    assert not any(name.startswith(".orch") for name in list_files(out))


def test_an_attempt_that_finds_no_checkpoint_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for attempt, times in ((1, 0), (2, 1)):
        run = open_run(f"file://{tmp_path}/bucket", tmp_path, epoch=attempt)
        assert run.restore(tmp_path / "in") is None and run.restore(tmp_path / "in") is None
        assert capsys.readouterr().err.count("no checkpoint: earlier attempts ended before their first save") == times


def test_an_empty_current_folder_is_restored_to(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(run, 1, "a")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert run.restore(".") == 1 and read(tmp_path / "empty") == {"a": "a of step 1"}


def damage(run: Run, step: int, part: str = "part-00000-000.file") -> None:
    path = Path(run.uri.removeprefix("file://")) / StepFolder(step, 1, 1).name / part
    path.write_bytes(b"\0" * path.stat().st_size)


def test_damaged_steps_are_written_again_by_the_same_attempt(run: Run, tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(run, step, "a", "b")
    damage(run, 3)
    damage(run, 4)
    assert run.restore(tmp_path / "in") == 2
    for step in (3, 4):
        save(run, step, "c")
        assert run.restore(tmp_path / "in") == step and read(tmp_path / "in") == {"c": f"c of step {step}"}
    with pytest.raises(StorageError, match="is there already"):
        save(run, 4, "c")


def test_files_of_a_step_that_was_written_again_replace_those_of_the_damaged_one(run: Run, tmp_path: Path) -> None:
    for step in (1, 2):
        save(run, step, "a", "b")
    assert run.restore(tmp_path / "in") == 2
    damage(run, 2)
    assert run.restore(tmp_path / "other") == 1
    save(run, 2, "c")
    assert run.restore(tmp_path / "in") == 2 and read(tmp_path / "in") == {"c": "c of step 2"}


def test_a_damaged_step_of_several_ranks_is_not_mixed_with_what_they_saved_before(tmp_path: Path) -> None:
    runs = two_ranks(f"file://{tmp_path}/bucket", tmp_path, 1)
    places = [tmp_path / "in0", tmp_path / "in1"]
    for step in (1, 2):
        for run in runs:
            save_step(run, step, sharded=True)
        at_once(*(run.wait for run in runs))
    damage(runs[0], 2, "part-00001-000.file")
    assert at_once(*(lambda at=at: runs[at].restore(places[at]) for at in (0, 1))) == [1, 1]
    folder = tmp_path / "bucket/run/checkpoints" / StepFolder(2, 1, 1).name
    assert (folder / "manifest.json").exists() and not (folder / "shard-00001.json").exists()
    save_step(runs[0], 2, sharded=True)
    newest = runs[1].latest()
    assert newest is not None and newest.step == 1, "rank 1 has not saved again"
    save_step(runs[1], 2, sharded=True)
    at_once(*(run.wait for run in runs))
    assert at_once(*(lambda at=at: runs[at].restore(places[at]) for at in (0, 1))) == [2, 2]
