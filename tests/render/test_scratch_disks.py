"""Local disks of an EC2 instance become one folder. The tools are stand-ins with a table of disks; bash is real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest
from render_support import HOST, program, run_script
from support.host_folders import host_folder

from orchestrator.render.mounts import render_scratch
from orchestrator.render.scripts import RunInputs, SetupInputs, render_run, render_setup

NVME = "Amazon EC2 NVMe Instance Storage"
EBS = "Amazon Elastic Block Store"

# One program under the names of all tools. The disks are in $DISKS, JSON; what changes something is written to $CALLS.
TOOLS = """#!{python}
import json, os, pathlib, sys
tool, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
file = pathlib.Path(os.environ["DISKS"])
disks = json.loads(file.read_text())
where = os.environ["PLACE"]

def reported():
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(" ".join([tool, *words]) + chr(10))
    if tool == os.environ.get("BROKEN"):
        sys.exit(1)

def labelled():
    return [name for name, disk in disks.items() if disk["signature"] == "ext4 orch-scratch"]

if tool == "lsblk" and "--nodeps" in words:
    for name, disk in disks.items():
        print(name, disk["model"])
elif tool == "lsblk":
    disk = disks[words[-1]]
    print(words[-1][5:], disk["cached"], "", disk["mounted"])
    for part in disk["children"]:
        print(part, "", "", "")
elif tool == "wipefs":
    assert words[:2] == ["--no-act", "--"], words
    print(disks[words[-1]]["signature"], end="")
elif tool == "blkid":
    found = labelled()
    print(*found)
    sys.exit(not found)
elif tool == "mountpoint":
    sys.exit(not any(disk["mounted"] == where for disk in disks.values()))
elif tool == "mkfs.ext4":
    reported()
    array = {"model": "", "children": [], "cached": "", "mounted": ""}
    disks.setdefault(words[-1], array)["signature"] = "ext4 orch-scratch"
elif tool == "mdadm" and "--create" in words:
    reported()
    for name in words[-int(next(w for w in words if "--raid-devices=" in w).partition("=")[2]):]:
        disks[name]["signature"] = "linux_raid_member"
elif tool == "mount":
    reported()
    disks[words[-2]]["mounted"] = words[-1]
    pathlib.Path(words[-1]).mkdir(exist_ok=True)
elif tool == "systemctl" and words[0] == "start":
    reported()
    for disk in disks.values():
        if disk["model"] == "LVM":
            disk["mounted"] = where
elif tool == "systemctl":
    sys.exit(not any(disk["model"] == "LVM" for disk in disks.values()))
file.write_text(json.dumps(disks))
"""
NAMES = ("lsblk", "wipefs", "blkid", "mountpoint", "mkfs.ext4", "mdadm", "mount", "systemctl")
Disk: TypeAlias = dict[str, object]


def disk(model: str = NVME, **more: object) -> Disk:
    return {"model": model, "children": [], "cached": "", "signature": "", "mounted": "", **more}


ROOT = disk(EBS, children=["nvme0n1p1"], mounted="/")


class Host:
    def __init__(self, folder: Path, disks: dict[str, Disk], *, without: str = "") -> None:
        self.folder, self.place = folder, folder / "fast disks"
        self.disks = folder / "disks"
        self.disks.write_text(json.dumps(disks))
        for name in NAMES:
            if name != without:
                program(folder / "bin" / name, TOOLS.replace("{python}", sys.executable))

    def run(self, text: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        more = {"DISKS": str(self.disks), "CALLS": str(self.folder / "calls"), "PLACE": str(self.place), **HOST, **env}
        more.setdefault("ORCH_HOST_DIR", str(host_folder(self.folder / "home")))
        text = text or render_scratch(str(self.place))
        return run_script(text, self.folder / "home", more, path=str(self.folder / "bin"))

    @property
    def calls(self) -> list[str]:
        record = self.folder / "calls"
        return record.read_text().splitlines() if record.exists() else []

    def unmounted(self) -> None:
        """A reboot."""
        disks = json.loads(self.disks.read_text())
        self.disks.write_text(json.dumps({name: {**one, "mounted": ""} for name, one in disks.items()}))


def test_several_disks_become_one(tmp_path: Path) -> None:
    disks = {"/dev/nvme0n1": ROOT, **{f"/dev/nvme{at}n1": disk() for at in (1, 2, 3)}}
    host = Host(tmp_path, disks)
    done = host.run()
    assert (done.returncode, done.stderr) == (0, "")
    create, make, mount = host.calls
    assert create.startswith("mdadm --create /dev/md/orch-scratch ")
    assert create.endswith(" --level=0 --raid-devices=3 /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1")
    assert make.endswith("-L orch-scratch /dev/md/orch-scratch")
    assert mount == f"mount -o noatime -- /dev/md/orch-scratch {host.place}"
    assert host.place.stat().st_mode & 0o7777 == 0o1777


def test_one_disk_needs_no_array(tmp_path: Path) -> None:
    host = Host(tmp_path, {"/dev/nvme0n1": ROOT, "/dev/nvme1n1": disk()})
    assert host.run().returncode == 0
    assert [call.split()[0] for call in host.calls] == ["mkfs.ext4", "mount"]
    assert host.calls[1] == f"mount -o noatime -- /dev/nvme1n1 {host.place}"


def test_without_mdadm_one_disk_is_used_and_reported(tmp_path: Path) -> None:
    host = Host(tmp_path, {"/dev/nvme1n1": disk(), "/dev/nvme2n1": disk()}, without="mdadm")
    done = host.run()
    assert done.returncode == 0
    assert "without mdadm only one of 2 disks is used" in done.stdout
    assert host.calls[0].endswith(" /dev/nvme1n1")


@pytest.mark.parametrize(
    "one",
    [
        disk(children=["nvme1n1p1"]),
        disk(children=["vg.01-lv_ephemeral"], cached="LVM2_member", signature="LVM2_member"),
        disk(mounted="/data"),
        disk(mounted="/"),
        disk(cached="ext4", signature="ext4"),
        disk(signature="xfs"),  # which udev has not noticed
        disk(cached="swap", mounted="[SWAP]"),
        disk(EBS),
        disk("Some SSD Instance"),
        disk(""),
    ],
)
def test_a_disk_that_may_hold_something_is_never_touched(tmp_path: Path, one: Disk) -> None:
    host = Host(tmp_path, {"/dev/nvme0n1": ROOT, "/dev/nvme1n1": one})
    done = host.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert "no empty local disk here" in done.stdout
    assert host.calls == []
    with_others = Host(tmp_path, {"/dev/nvme1n1": one, "/dev/nvme2n1": disk()})
    assert with_others.run().returncode == 0
    assert not [call for call in with_others.calls if "/dev/nvme1n1" in call]


@pytest.mark.parametrize("tool", ["lsblk", "wipefs"])
def test_a_disk_that_cannot_be_examined_is_never_touched(tmp_path: Path, tool: str) -> None:
    host = Host(tmp_path, {"/dev/nvme1n1": disk()})
    look = f'#!/bin/sh\ncase "$*" in *--nodeps*) echo "/dev/nvme1n1 {NVME}" ;; *) exit 1 ;; esac\n'
    program(tmp_path / "bin" / tool, look)
    assert host.run().returncode == 0
    assert host.calls == []


def test_again_and_after_a_reboot_nothing_is_made_again(tmp_path: Path) -> None:
    host = Host(tmp_path, {"/dev/nvme1n1": disk()})
    for _ in range(2):
        assert host.run().returncode == 0
    assert len(host.calls) == 2
    host.unmounted()
    done = host.run(render_run(RunInputs(backend="cpu", user_run='echo "$ORCH_SCRATCH"', scratch=str(host.place))))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{host.place}\n", "")
    assert [call.split()[0] for call in host.calls] == ["mkfs.ext4", "mount", "mount"]


def test_a_folder_that_the_image_makes_is_waited_for(tmp_path: Path) -> None:
    host = Host(tmp_path, {"/dev/nvme1n1": disk(signature="LVM2_member"), "/dev/mapper/vg": disk("LVM")})
    host.place.mkdir()
    done = host.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert host.calls == ["systemctl start dlami-nvme.service"]


@pytest.mark.parametrize("tool", ["mdadm", "mkfs.ext4", "mount"])
def test_a_step_that_fails_is_reported_with_its_command(tmp_path: Path, tool: str) -> None:
    host = Host(tmp_path, {"/dev/nvme1n1": disk(), "/dev/nvme2n1": disk()})
    done = host.run(BROKEN=tool)
    assert done.returncode == 1
    assert f"scratch: this failed: {tool}" in done.stderr
    assert f"next: on the host: sudo {tool}" in done.stderr
    assert not list((tmp_path / "home").glob(".orch/hosts/*/scratch.sh"))


def test_programs_get_the_folder_only_when_it_exists(tmp_path: Path) -> None:
    host = Host(tmp_path, {"/dev/nvme0n1": ROOT})
    show = 'echo "${ORCH_SCRATCH-none}"'
    run = render_run(RunInputs(backend="cuda", user_run=show, scratch=str(host.place)))
    setup = render_setup(SetupInputs(backend="cuda", user_setup=show, scratch=str(host.place))) or ""
    host.place.mkdir()  # where nothing is mounted, it is the root disk
    assert [host.run(text).stdout for text in (run, setup)] == ["none\n"] * 2
    host.disks.write_text(json.dumps({"/dev/nvme1n1": disk(mounted=str(host.place))}))
    assert [host.run(text).stdout for text in (run, setup)] == [f"{host.place}\n"] * 2
    assert host.run(run, ORCH_SCRATCH="/theirs").stdout == "/theirs\n"


def test_a_relative_folder_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="absolute"):
        render_scratch("scratch")
