"""Mounting a bucket of S3 with Mountpoint: a stand-in notes its words and adds a line to what counts as mounts."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from render_support import RECORDER, hostile, program, recorded, run_script
from support.host_folders import host_folder

from orch_fronts.aws.s3 import s3_server
from orchestrator.render.mounts import MountInputs, render_mount
from orchestrator.render.scripts import RunInputs, render_run

# The last word is the mount point. Blanks are written as the kernel does; the kernel never shows the bucket.
MOUNT_S3 = (
    RECORDER
    + "for target; do :; done\n"
    + "place=$(printf %s \"$target\" | sed 's/ /\\\\040/g')\n"
    + 'printf "mountpoint-s3 %s fuse ro 0 0\\n" "$place" >>"$ORCH_PROC_MOUNTS"\n'
)


class Host:
    """A home folder, programs in front of PATH, and a table of mounts."""

    def __init__(self, folder: Path, *, mount_s3: str = MOUNT_S3) -> None:
        self.folder, self.home = folder, folder / "home"
        self.mounts = folder / "mounts"
        self.mounts.write_text("proc /proc proc rw 0 0\n")
        if mount_s3:
            self.program("mount-s3", mount_s3)

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


def mount(source: str, destination: str, *, scratch: str = "") -> str:
    return render_mount(MountInputs(source, destination), may_install=False, scratch=scratch)


def test_a_folder_is_mounted_to_be_written(tmp_path: Path) -> None:
    host = Host(tmp_path)
    inputs = MountInputs("s3://bucket/runs", "~/runs", writable=True)
    assert host.run(render_mount(inputs, may_install=False)).returncode == 0
    assert {"--allow-delete", "--allow-overwrite"} <= {*host.words} and "--read-only" not in host.words


def test_a_folder_is_mounted_to_be_read(tmp_path: Path) -> None:
    host = Host(tmp_path)
    done = host.run(mount("s3://bucket/books/en/", "~/my data"))
    assert (done.returncode, done.stderr) == (0, "")
    words = host.words
    assert words[-2:] == ["bucket", str(host.home / "my data")]
    assert {"--read-only", "--prefix=books/en/"} <= {*words}
    assert not {"--allow-delete", "--allow-overwrite", "--allow-other"} & {*words}
    cache = Path(words[words.index("--cache") + 1])
    assert cache.is_relative_to(host_folder(host.home) / "cache")
    assert cache.stat().st_mode & 0o777 == 0o700  # what was read lies there as it is
    assert int(words[words.index("--max-cache-size") + 1]) >= 2048
    assert words[words.index("--metadata-ttl") + 1] == "60"


@pytest.mark.parametrize("mounted", [True, False])
def test_what_was_read_is_kept_on_the_fast_disk_if_there_is_one(tmp_path: Path, mounted: bool) -> None:
    host = Host(tmp_path)
    (tmp_path / "fast disk").mkdir()
    host.program("mountpoint", f'#!/bin/sh\n[ "$3" = "{tmp_path}/fast disk" ] && {str(mounted).lower()}\n')
    done = host.run(mount("s3://bucket", "~/data", scratch=f"{tmp_path}/fast disk"))
    assert (done.returncode, done.stderr) == (0, "")
    cache = Path(host.words[host.words.index("--cache") + 1])
    assert cache.is_relative_to(tmp_path / "fast disk") == mounted
    assert not [word for word in host.words if word.startswith("--prefix")]


def test_a_full_disk_gets_no_cache(tmp_path: Path) -> None:
    host = Host(tmp_path)
    host.program("df", "#!/bin/sh\nprintf 'Avail\\n4095\\n'\n")
    assert host.run(mount("s3://bucket", "~/data")).returncode == 0
    assert "--cache" not in host.words


def test_what_is_mounted_already_is_left_alone(tmp_path: Path) -> None:
    host = Host(tmp_path)
    for _ in range(3):
        done = host.run(mount("s3://bucket/a", "~/data"))
        assert (done.returncode, done.stderr) == (0, "")
    assert host.words.count("--read-only") == 1


def test_a_dead_mount_is_taken_away_and_made_again(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.run(mount("s3://bucket/a", "~/data")).returncode == 0
    (tmp_path / "dead").touch()
    host.program("ls", f'#!/bin/sh\n[ ! -e {tmp_path}/dead ] || exit 2\nexec /bin/ls "$@"\n')
    for name in ("fusermount3", "fusermount"):
        host.program(name, f'#!/bin/sh\nrm {tmp_path}/dead\nsed -i /fuse/d "$ORCH_PROC_MOUNTS"\n')
    done = host.run(mount("s3://bucket/a", "~/data"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "mount-s3 has died" in done.stdout
    assert host.words.count("--read-only") == 2


@pytest.mark.parametrize("source", ["s3://bucket/b", "s3://other/a", "s3://bucket"])
def test_another_bucket_at_the_target_is_never_replaced(tmp_path: Path, source: str) -> None:
    host = Host(tmp_path)
    assert host.run(mount("s3://bucket/a", "~/data")).returncode == 0
    done = host.run(mount(source, "~/data"))
    assert done.returncode == 1
    assert "has another mount: mountpoint-s3" in done.stderr
    assert host.words.count("--read-only") == 1


@pytest.mark.parametrize(("what", "dead"), [("rclone", False), ("rclone", True), ("s3fs", True)])
def test_a_mount_of_another_tool_is_left_to_a_person(tmp_path: Path, what: str, dead: bool) -> None:
    host = Host(tmp_path)
    host.mounts.write_text(f"{what} {host.home}/data fuse rw 0 0\n")
    host.program("fusermount3", RECORDER)
    if not dead:
        (host.home / "data").mkdir(parents=True)
    done = host.run(mount("s3://bucket/a", "~/data"))
    assert done.returncode == 1
    assert ("does not answer" if dead else "has another mount: other") in done.stderr
    assert host.words == []


def test_a_bucket_that_refuses_is_reported_with_the_rights(tmp_path: Path) -> None:
    host = Host(tmp_path, mount_s3="#!/bin/sh\necho 'Error: Forbidden' >&2\nexit 1\n")
    done = host.run(mount("s3://bucket/a", "~/data"))
    assert done.returncode == 1
    assert "s3://bucket/a could not be mounted" in done.stderr
    assert "s3:ListBucket and s3:GetObject" in done.stderr
    assert not list((host_folder(host.home) / "mounts").glob("*.sh"))


def test_a_program_finds_the_mount_again_after_a_reboot(tmp_path: Path) -> None:
    host = Host(tmp_path)
    assert host.run(mount("s3://bucket/a", "~/data")).returncode == 0
    host.mounts.write_text("")
    place = {"ORCH_RANK": "0", "ORCH_NUM_HOSTS": "1", "ORCH_COORDINATOR": "127.0.0.1:29500"}
    done = host.run(render_run(RunInputs(backend="cpu", user_run='cat "$ORCH_PROC_MOUNTS"\n')), **place)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"mountpoint-s3 {host.home}/data fuse" in done.stdout


@settings(max_examples=15, deadline=None)
@given(hostile(slash=True).filter(lambda key: key.strip("/") != ""), hostile(), hostile())
def test_hostile_names_arrive_as_they_are(key: str, destination: str, disk: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        host = Host(Path(name), mount_s3=RECORDER + "exit 1\n")
        (Path(name) / disk).mkdir(exist_ok=True)
        host.program("mountpoint", "#!/bin/sh\nexit 0\n")
        host.run(mount(f"s3://bucket/{key}", f"~/{destination}", scratch=f"{name}/{disk}"), CANARY=f"{name}/canary")
        assert not (Path(name) / "canary").exists()
        assert host.words[-2:] == ["bucket", f"{host.home}/{destination}"]
        assert f"--prefix={key.strip('/')}/" in host.words
        assert host.words[host.words.index("--cache") + 1].startswith(f"{name}/{disk}/.orch-mountpoint/")


@pytest.mark.parametrize(("bucket", "region"), [("west", "us-west-2"), ("east", "us-east-1"), ("unknown", "")])
def test_the_region_is_the_buckets_own_and_not_that_of_the_host(tmp_path: Path, bucket: str, region: str) -> None:
    keeps_region = f'printf %s "${{AWS_REGION-unset}}" >{tmp_path}/seen\n'
    host = Host(tmp_path, mount_s3=MOUNT_S3 + keeps_region)
    with s3_server("key") as server:
        server.create_bucket_in("us-west-2", "west")
        server.create_bucket_in("us-east-1", "east")
        env = {"AWS_ENDPOINT_URL_S3": server.url, "AWS_REGION": "eu-west-1"}
        done = host.run(mount(f"s3://{bucket}/books", "~/data"), **env)
    assert (done.returncode, done.stderr) == (0, "")
    assert [word for word in host.words if word.startswith("--region")] == ([f"--region={region}"] if region else [])
    assert (tmp_path / "seen").read_text() == "unset"
