"""Copying a bucket path to a host: what arrives, and what is said when it cannot."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from render_support import PROGRAMS_OF_COPY, RECORDER, program, recorded, run_script
from support.s3 import s3_server

from orchestrator.errors import UserError
from orchestrator.render.mounts import MountInputs, render_copy_mount, render_link_mount

AWS = shutil.which("aws")


def copy(source: str, destination: str) -> str:
    return render_copy_mount(MountInputs(source, destination))


def test_folder_of_a_file_bucket_arrives_complete_and_again(tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / ".hidden").write_text("one")
    for content in ("one", "two"):
        (source / "sub" / ".hidden").write_text(content)
        done = run_script(copy(f"file://{source}", "~/in put"), tmp_path / "home")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "home/in put/sub/.hidden").read_text() == content


def test_hosts_of_one_computer_copy_to_one_folder(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "shared"
    source.mkdir()
    for number in range(800):
        (source / str(number)).write_text(str(number))
    for round_ in range(2):
        text = copy(f"file://{source}", f"{target}{round_}")
        with ThreadPoolExecutor() as pool:
            done = list(pool.map(partial(run_script, text), [tmp_path / f"home{rank}" for rank in range(4)]))
        assert [one.stderr for one in done] == [""] * 4
        assert len(list(Path(f"{target}{round_}").iterdir())) == 800


def test_one_file_goes_to_the_very_name(tmp_path: Path) -> None:
    (tmp_path / "vocab").write_text("x")
    done = run_script(copy(f"file://{tmp_path}/vocab", "~/deep/er/vocab.txt"), tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "home/deep/er/vocab.txt").read_text() == "x"


def test_a_folder_that_stands_for_a_mounted_bucket_is_linked_and_hides_no_files(tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "home" / "out").mkdir(parents=True)
    text = render_link_mount(MountInputs(f"file://{tmp_path}/bucket", "~/out"))
    for _ in range(2):
        done = run_script(text, tmp_path / "home")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "home/out").readlink() == tmp_path / "bucket"
    (tmp_path / "home/out").unlink()
    (tmp_path / "home/out").mkdir()
    (tmp_path / "home/out/mine").touch()
    done = run_script(text, tmp_path / "home")
    assert done.returncode == 1 and "holds files, which a mount would hide" in done.stderr


def test_absolute_destination_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "vocab").write_text("x")
    done = run_script(copy(f"file://{tmp_path}/vocab", f"{tmp_path}/elsewhere/v"), tmp_path / "home")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "elsewhere/v").read_text() == "x"


def test_missing_source_is_reported(tmp_path: Path) -> None:
    done = run_script(copy(f"file://{tmp_path}/nowhere", "~/data"), tmp_path / "home")
    assert done.returncode == 1
    assert f"copy: there is nothing at file://{tmp_path}/nowhere" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a folder that is not ours")
def test_a_folder_of_another_owner_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "vocab").write_text("x")
    program(tmp_path / "bin" / "mkdir", "#!/bin/sh\nexit 1\n")
    program(tmp_path / "bin" / "sudo", RECORDER + "exit 1\n")
    text = copy(f"file://{tmp_path}/vocab", f"{tmp_path}/theirs/v")
    done = run_script(text, tmp_path / "home", {"RECORD": str(tmp_path / "record")}, path=str(tmp_path / "bin"))
    assert done.returncode == 1
    assert f"cannot make the folder {tmp_path}/theirs" in done.stderr
    assert "chown" not in recorded(tmp_path / "record")


@pytest.mark.parametrize(
    ("source", "tools"), [("s3://bucket/data", "no aws command"), ("gs://bucket/data", "neither gcloud nor gsutil")]
)
def test_missing_tool_is_named_with_the_way_to_get_it(tmp_path: Path, source: str, tools: str) -> None:
    for name in PROGRAMS_OF_COPY:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    done = run_script(copy(source, "~/data"), tmp_path / "home", {"PATH": str(tmp_path / "bin")})
    assert done.returncode == 1
    assert tools in done.stderr
    assert "next: " in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(AWS is None, reason="the aws command is not installed here")
def test_s3_folder_and_object_arrive_from_a_real_server(tmp_path: Path) -> None:
    assert AWS is not None
    names = ["data/a b.txt", "data/deep/$(x)", "database", "data2/other"]
    with s3_server() as server:
        server.create_bucket("bucket")
        for name in names:
            server.client.put_object(Bucket="bucket", Key=name, Body=name.encode())
        env = {**server.environment, "AWS_DEFAULT_REGION": "us-east-1", "HOME": os.environ["HOME"]}

        def fetch(source: str, folder: str) -> tuple[int, str]:
            text = copy(source, f"{tmp_path}/{folder}")
            done = run_script(text, tmp_path / "home", env, path=str(Path(AWS or "").parent))
            return done.returncode, done.stderr

        assert fetch("s3://bucket/data", "folder") == (0, "")
        arrived = {str(p.relative_to(tmp_path / "folder")) for p in (tmp_path / "folder").rglob("*") if p.is_file()}
        assert arrived == {"a b.txt", "deep/$(x)"}
        assert fetch("s3://bucket/data/deep/$(x)", "one/file") == (0, "")
        assert (tmp_path / "one/file").read_text() == "data/deep/$(x)"
        assert fetch("s3://bucket", "all") == (0, "")
        assert (tmp_path / "all/data2/other").read_text() == "data2/other"

        status, err = fetch("s3://bucket/dat", "nothing")
        assert status == 1
        assert "there is nothing at s3://bucket/dat\n" in err
        status, err = fetch("s3://absent/data", "nothing2")
        assert status == 1
        assert "NoSuchBucket" in err
        assert "s3://absent/data could not be copied" in err


@pytest.mark.parametrize(
    ("is_object", "words"),
    [(False, ["storage", "rsync", "--recursive"]), (True, ["storage", "cp"])],
)
def test_google_object_is_copied_and_a_folder_is_synced(tmp_path: Path, is_object: bool, words: list[str]) -> None:
    describe = f'case "$*" in *describe*) exit {int(not is_object)} ;; esac\ntouch "$HOME/data/x"\n'
    program(tmp_path / "bin" / "gcloud", RECORDER + describe)
    (tmp_path / "home/data").mkdir(parents=True)
    env = {"RECORD": str(tmp_path / "record")}
    done = run_script(copy("gs://bucket/data", "~/data"), tmp_path / "home", env, path=str(tmp_path / "bin"))
    assert done.returncode == 0, done.stderr
    got = recorded(tmp_path / "record")
    assert got[:4] == ["storage", "objects", "describe", "gs://bucket/data"]
    assert got[4:] == [*words, "gs://bucket/data", str(tmp_path / "home/data")]


def test_google_source_that_refuses_is_reported(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "gcloud", "#!/bin/sh\necho 'ERROR: 403 no access' >&2\nexit 1\n")
    done = run_script(copy("gs://bucket/data", "~/data"), tmp_path / "home", path=str(tmp_path / "bin"))
    assert done.returncode == 1
    assert "403 no access" in done.stderr
    assert "gs://bucket/data could not be copied" in done.stderr


@pytest.mark.parametrize(
    ("source", "destination", "message"),
    [
        ("/data", "~/data", "a bucket begins with"),
        ("https://x/y", "~/data", "a bucket begins with"),
        ("file://data", "~/data", "absolute path"),
        ("s3:///data", "~/data", "name is missing"),
        ("gs://bucket/a*", "~/data", "pattern"),
        ("s3://bucket/a", "/", "entire disk"),
        ("s3://bucket/a", "~", "entire disk or home"),
        ("s3://bucket/a", "~/", "entire disk or home"),
        ("s3://bucket/a", "~bob/data", "home"),
    ],
)
def test_what_cannot_be_copied_is_refused_before_a_host_is_contacted(
    source: str, destination: str, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        copy(source, destination)
    assert message in caught.value.why
    assert caught.value.next_step
