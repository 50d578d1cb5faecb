"""`orch storage` as a person or a script uses it: data on stdout, talk on stderr, nothing lost without a yes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from storage_places import Place

from orchestrator.cli.commands.settings.storage import storage
from orchestrator.errors import NotFoundError, OrchError, UserError
from orchestrator.exits import Exit


def test_ls_shows_folders_and_objects_with_sizes_people_read(place: Place) -> None:
    place.bucket.put("top", b"x" * 1536)
    place.bucket.put("dir/inner", b"")
    lines = _ok("ls", place.uri).stdout.splitlines()
    assert lines[0].split() == ["folder", "dir/"]
    assert lines[1].startswith("   1.5 KiB  20")
    assert lines[1].endswith("Z  top")
    assert [line.split()[-1] for line in _ok("ls", "-r", place.uri).stdout.splitlines()] == ["dir/inner", "top"]


def test_ls_as_json_is_one_document_with_a_version(place: Place) -> None:
    place.bucket.put("a/ü 1", b"xyz")
    place.bucket.put("a/b/c", b"")
    found = json.loads(_ok("ls", f"{place.uri}/a", "-o", "json").stdout)
    assert (found["version"], found["uri"], found["folders"]) == (1, f"{place.uri}/a", ["b"])
    assert [(entry["path"], entry["size"]) for entry in found["objects"]] == [("ü 1", 3)]
    assert found["objects"][0]["modified"].endswith("+00:00")
    deep = json.loads(_ok("ls", "-r", f"{place.uri}/a", "-o", "json").stdout)
    assert [entry["path"] for entry in deep["objects"]] == ["b/c", "ü 1"]


def test_ls_of_one_object_shows_it_and_of_nothing_fails(place: Place) -> None:
    place.bucket.put("a/one", b"x")
    for flags in ((), ("-r",)):
        assert _ok("ls", *flags, f"{place.uri}/a/one").stdout.split()[-1] == "one"
        assert isinstance(_fails("ls", *flags, f"{place.uri}/a/two"), NotFoundError)
    place.bucket.delete("a/one")
    assert _ok("ls", place.uri).stdout == ""


def test_a_folder_in_place_of_an_object_names_the_command_that_takes_it(place: Place, tmp_path: Path) -> None:
    place.bucket.put("a/b/one", b"x")
    folder = f"{place.uri}/a/b"
    for argv, right in (
        (("rm", folder), f"orch storage rm -r {folder}"),
        (("cp", folder, str(tmp_path)), f"orch storage cp -r {folder} {tmp_path}"),
    ):
        error = _fails(*argv)
        assert isinstance(error, UserError)
        assert (error.what, error.next_step) == (f"{folder} is a folder", f"add -r: {right}")


def test_a_folder_that_does_not_exist_is_looked_for_where_something_exists(tmp_path: Path) -> None:
    error = _fails("ls", f"file://{tmp_path}/no/such")
    assert isinstance(error, NotFoundError)
    assert error.next_step == f"look above it: ls {tmp_path}   or make it: mkdir -p {tmp_path}/no/such"


def test_cp_goes_up_and_down_and_prints(place: Place, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"content")
    result = _ok("cp", str(tmp_path / "f.txt"), f"{place.uri}/x/")
    assert result.stdout == ""
    assert "7 B" in result.stderr
    _ok("cp", str(tmp_path / "f.txt"), f"{place.uri}/other-name")
    assert [info.path for info in place.bucket.list()] == ["other-name", "x/f.txt"]
    _ok("cp", f"{place.uri}/x/f.txt", str(tmp_path / "new"))
    (tmp_path / "dir").mkdir()
    _ok("cp", f"{place.uri}/other-name", str(tmp_path / "dir"))
    assert (tmp_path / "new").read_bytes() == (tmp_path / "dir/other-name").read_bytes() == b"content"
    printed = _ok("cp", f"{place.uri}/other-name", "-")
    assert (printed.stdout, printed.stderr) == ("content", "")


def test_cp_r_and_sync_move_trees(place: Place, tmp_path: Path) -> None:
    (tmp_path / "src/sub").mkdir(parents=True)
    (tmp_path / "src/sub/a").write_bytes(b"1")
    (tmp_path / "src/b").write_bytes(b"2")
    _ok("cp", "-r", str(tmp_path / "src"), f"{place.uri}/t")
    _ok("sync", f"{place.uri}/t", str(tmp_path / "dst"))
    assert (tmp_path / "dst/sub/a").read_bytes() == b"1"
    (tmp_path / "src/b").unlink()
    result = _ok("sync", str(tmp_path / "src"), f"{place.uri}/t", "--delete")
    assert "delete 1, 1 unchanged" in result.stderr
    assert [info.path for info in place.bucket.list()] == ["t/sub/a"]
    assert isinstance(_fails("sync", f"{place.uri}/typo", str(tmp_path / "dst")), NotFoundError)


def test_dry_run_prints_what_the_real_run_does_and_changes_nothing(place: Place, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/new").write_bytes(b"1")
    place.bucket.put("t/old", b"x")
    source, target = str(tmp_path / "src"), f"{place.uri}/t"
    shown = _ok("sync", source, target, "--delete", "--dry-run")
    assert shown.stdout.splitlines() == [f"copy {source}/new -> {target}/new  (1 B, new)", f"delete {target}/old"]
    assert "nothing was changed" in shown.stderr
    assert _ok("cp", f"{source}/new", target, "--dry-run").stdout == f"copy {source}/new -> {target}  (1 B)\n"
    assert _ok("cp", f"{target}/old", source, "--dry-run").stdout == f"copy {target}/old -> {source}/old  (1 B)\n"
    assert _ok("rm", "-r", target, "--dry-run").stdout == f"delete {target}/old\n"
    assert [info.path for info in place.bucket.list()] == ["t/old"]
    assert [path.name for path in (tmp_path / "src").iterdir()] == ["new"]


def test_rm_without_a_terminal_needs_yes(place: Place) -> None:
    place.bucket.put("a/1", b"x")
    place.bucket.put("a/2", b"x")
    error = _fails("rm", "-r", f"{place.uri}/a")
    assert isinstance(error, UserError)
    assert error.next_step == "add --yes"
    assert len(list(place.bucket.list())) == 2
    _ok("rm", f"{place.uri}/a/1", "--yes")
    assert [info.path for info in place.bucket.list()] == ["a/2"]
    _ok("rm", "-r", f"{place.uri}/a", "-y")
    assert list(place.bucket.list()) == []
    for argv in (("rm", f"{place.uri}/a/1", "-y"), ("rm", "-r", f"{place.uri}/a", "-y")):
        assert isinstance(_fails(*argv), NotFoundError)


def test_rm_does_not_take_a_folder_without_r(place: Place) -> None:
    place.bucket.put("a/1", b"x")
    assert isinstance(_fails("rm", f"{place.uri}/a", "-y"), UserError)
    assert place.bucket.exists("a/1")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("cp", "here", "there"), "one side must be a bucket"),
        (("cp", "gs://a1/x", "s3://b1/x"), "both are buckets"),
        (("cp", ".", "gs://a1/x"), "add -r"),
        (("sync", "here", "there"), "both are on this computer"),
        (("ls", "bucket"), "gs://, s3:// or file://"),
        (("ls", "https://x/y"), "not a bucket URI"),
    ],
)
def test_wrong_arguments_are_usage_errors_with_the_right_ones(argv: tuple[str, ...], words: str) -> None:
    error = _fails(*argv)
    assert error.exit_status == Exit.USAGE
    assert words in " ".join(error.lines())


def test_help_begins_with_examples_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; from orchestrator.cli.commands.settings.storage import storage\n"
        "for name in [None, *storage.list_commands(None)]:\n"
        "    try: storage([*([name] if name else []), '--help'])\n"
        "    except SystemExit: pass\n"
        "print('HEAVY', [m for m in ('obstore', 'pydantic', 'rich', 'boto3', 'paramiko') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "HEAVY []"
    assert result.stdout.count("Usage: ") == result.stdout.count("Examples:") == 5
    for page in result.stdout.split("Examples:\n")[1:]:
        assert page.splitlines()[0].strip().startswith("orch storage ") and "Usage: " in page


def test_a_file_bucket_needs_no_cloud_library(tmp_path: Path) -> None:
    code = (
        "import sys; from orchestrator.storage.bucket import Bucket; b = Bucket.open(sys.argv[1])\n"
        "b.put('k', b'x'); list(b.list()); b.replace_if('k', b'y', b.head('k').version)\n"
        "print([m for m in ('obstore', 'pydantic') if m in sys.modules])"
    )
    argv = [sys.executable, "-c", code, f"file://{tmp_path}/b"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "[]\n"


def _ok(*argv: str) -> Result:
    result = CliRunner().invoke(storage, argv, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def _fails(*argv: str) -> OrchError:
    result = CliRunner().invoke(storage, argv)
    assert isinstance(result.exception, OrchError), (result.output, result.exception)
    assert result.stdout == ""
    return result.exception
