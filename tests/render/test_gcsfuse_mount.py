"""Mounting a bucket with gcsfuse: a stand-in notes its words and adds a line to what counts as /proc/self/mounts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from render_support import RECORDER, hostile, program, recorded, run_script
from support.host_folders import host_folder

from orchestrator.errors import UserError
from orchestrator.render.mounts import MountInputs, render_mount
from orchestrator.render.scripts import RunInputs, render_run

# The last word is the mount point, the one before it the bucket. Blanks are written as the kernel does.
GCSFUSE = (
    RECORDER
    + 'for bucket; do [ "$bucket" = "$target" ] || { last=$target; target=$bucket; }; done\n'
    + "place=$(printf %s \"$target\" | sed 's/ /\\\\040/g')\n"
    + 'printf "%s %s fuse.gcsfuse rw 0 0\\n" "$last" "$place" >>"$ORCH_PROC_MOUNTS"\n'
)


class Host:
    """A home folder, programs in front of PATH, and a table of mounts."""

    def __init__(self, folder: Path, *, gcsfuse: str = GCSFUSE) -> None:
        self.folder, self.home = folder, folder / "home"
        self.mounts = folder / "mounts"
        self.mounts.write_text("proc /proc proc rw 0 0\n")
        self.program("gcsfuse", gcsfuse)

    def program(self, name: str, text: str) -> None:
        program(self.folder / "bin" / name, text)

    def run(self, text: str, **env: str) -> subprocess.CompletedProcess[str]:
        more = {"RECORD": str(self.folder / "record"), "ORCH_PROC_MOUNTS": str(self.mounts), **env}
        more.setdefault("ORCH_HOST_DIR", str(host_folder(self.home)))
        return run_script(text, self.home, more, path=str(self.folder / "bin"))

    @property
    def words(self) -> list[str]:
        record = self.folder / "record"
        return recorded(record) if record.exists() else []


def mount(source: str, destination: str) -> str:
    return render_mount(MountInputs(source, destination), may_install=False)


def test_a_folder_is_mounted_with_caches_on_disk(tmp_path: Path) -> None:
    host = Host(tmp_path)
    done = host.run(mount("gs://bucket/books/en/", "~/my data"))
    assert (done.returncode, done.stderr) == (0, "")
    words = host.words
    assert words[-2:] == ["bucket", str(host.home / "my data")]
    assert words[words.index("--only-dir") + 1] == "books/en"
    assert "--implicit-dirs" in words
    assert Path(words[words.index("--cache-dir") + 1]).is_relative_to(host_folder(host.home) / "cache")
    assert int(words[words.index("--file-cache-max-size-mb") + 1]) >= 2048
    assert words[words.index("--metadata-cache-ttl-secs") + 1] == "60"
    assert "-o" not in words  # neither read-only nor for other users


def test_a_full_disk_gets_no_file_cache(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program("df", "#!/bin/sh\nprintf 'Avail\\n4095\\n'\n")
    assert host.run(mount("gs://bucket", "~/data")).returncode == 0
    assert "--cache-dir" not in host.words
    assert "--only-dir" not in host.words


def test_what_is_mounted_already_is_left_alone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for _ in range(3):
        done = host.run(mount("gs://bucket/a", "~/data"))
        assert (done.returncode, done.stderr) == (0, "")
    assert host.words.count("bucket") == 1


def test_a_dead_mount_is_taken_away_and_made_again(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.run(mount("gs://bucket/a", "~/data")).returncode == 0
    (tmp_path / "dead").touch()
    host.program("ls", f'#!/bin/sh\n[ ! -e {tmp_path}/dead ] || exit 2\nexec /bin/ls "$@"\n')
    for name in ("fusermount3", "fusermount"):
        host.program(name, f'#!/bin/sh\nrm {tmp_path}/dead\nsed -i /fuse/d "$ORCH_PROC_MOUNTS"\n')
    done = host.run(mount("gs://bucket/a", "~/data"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "has died" in done.stdout
    assert host.words.count("bucket") == 2


@pytest.mark.parametrize("source", ["gs://bucket/b", "gs://other/a", "gs://bucket"])
def test_another_mount_at_the_target_is_never_replaced(tmp_path: Path, source: str) -> None:
    host = Host(tmp_path)
    assert host.run(mount("gs://bucket/a", "~/data")).returncode == 0
    done = host.run(mount(source, "~/data"))
    assert done.returncode == 1
    assert "has another mount: bucket" in done.stderr
    assert host.words.count("--implicit-dirs") == 1


def test_a_disk_at_the_target_is_never_replaced(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.mounts.write_text(f"/dev/sdb {host.home}/data ext4 rw 0 0\n")
    (host.home / "data").mkdir(parents=True)
    done = host.run(mount("gs://bucket/a", "~/data"))
    assert done.returncode == 1
    assert "has another mount: other" in done.stderr
    assert host.words == []


def test_a_disk_that_does_not_answer_is_left_to_a_person(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.mounts.write_text(f"server:/x {host.home}/data nfs rw 0 0\n")
    host.program("fusermount3", RECORDER)
    done = host.run(mount("gs://bucket/a", "~/data"))
    assert done.returncode == 1
    assert "has a mount that does not answer" in done.stderr
    assert host.words == []


def test_files_are_not_hidden_by_a_mount(tmp_path: Path) -> None:
    host = Host(tmp_path)
    (host.home / "data").mkdir(parents=True)
    (host.home / "data" / "mine").touch()
    done = host.run(mount("gs://bucket/a", "~/data"))
    assert done.returncode == 1
    assert "holds files, which a mount would hide" in done.stderr
    assert host.words == []


def test_a_bucket_that_refuses_is_reported_with_the_role(tmp_path: Path) -> None:
    host = Host(tmp_path, gcsfuse="#!/bin/sh\necho 'googleapi: Error 403' >&2\nexit 1\n")
    done = host.run(mount("gs://bucket/a", "~/data"))
    assert done.returncode == 1
    assert "Error 403" in done.stderr
    assert "gs://bucket/a could not be mounted" in done.stderr
    assert "roles/storage.objectUser" in done.stderr
    assert not list((host_folder(host.home) / "mounts").glob("*.sh"))


def test_a_gcsfuse_that_succeeds_and_mounts_nothing_is_an_error(tmp_path: Path) -> None:
    host = Host(tmp_path, gcsfuse="#!/bin/sh\nexit 0\n")
    done = host.run(mount("gs://bucket/a", "~/data"))
    assert done.returncode == 1
    assert "does not answer" in done.stderr


def test_a_program_finds_the_mount_again_after_a_reboot(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.run(mount("gs://bucket/a", "~/data")).returncode == 0
    host.mounts.write_text("")
    place = {"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "1", "ORCH_COORDINATOR": "127.0.0.1:29500"}
    done = host.run(render_run(RunInputs(backend="cpu", user_run='cat "$ORCH_PROC_MOUNTS"\n')), **place)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"bucket {host.home}/data fuse.gcsfuse" in done.stdout
    host.mounts.write_text("")
    host.program("gcsfuse", "#!/bin/sh\nexit 1\n")
    done = host.run(render_run(RunInputs(backend="cpu", user_run="echo ran\n")), **place)
    assert (done.returncode, done.stdout) == (1, "")
    assert "a bucket is not mounted any more" in done.stderr


@settings(max_examples=15, deadline=None)
@given(hostile(slash=True).filter(lambda key: key.strip("/") != ""), hostile())
def test_hostile_names_arrive_as_they_are(key: str, destination: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        host = Host(Path(name), gcsfuse=RECORDER + "exit 1\n")
        host.run(mount(f"gs://bucket/{key}", f"~/{destination}"), CANARY=f"{name}/canary")
        assert not (Path(name) / "canary").exists()
        assert host.words[-2:] == ["bucket", f"{host.home}/{destination}"]
        assert host.words[host.words.index("--only-dir") + 1] == key.strip("/")


@pytest.mark.parametrize("source", ["file:///data", "gs://", "s3://", "bucket"])
def test_only_buckets_are_mounted(source: str) -> None:
    with pytest.raises(UserError) as caught:
        mount(source, "~/data")
    assert "gs://" in caught.value.why
