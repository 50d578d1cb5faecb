"""Hosts with one home folder, as universities have them over NFS: a real sshd each, as the first process of own
namespaces of process ids and mounts, with its own machine id and boot id.

    with shared_home(tmp_path, 4) as farm:
        farm.hosts[2].kill()  # everything in its namespace dies with its first process
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path

from support.host_folders import host_folder
from support.sshd import SSHD, Farm, Sshd, free_subnet, new_identity

_ENTER = """\
mount --make-rprivate / && mount -t proc proc /proc && mount --bind "$1/machine-id" /etc/machine-id \
  && mount --bind "$1/boot-id" /proc/sys/kernel/random/boot_id && exec "$2" -D -f "$1/sshd_config" -E "$1/sshd.log"
"""


def missing_for_shared_home() -> str:
    """Return why this computer cannot give hosts their own namespaces; "" when it can."""
    if sys.platform != "linux":
        return "namespaces of process ids exist on Linux only"
    if os.geteuid() != 0:
        return "namespaces of mounts and process ids need root"
    if shutil.which("unshare") is None:
        return "unshare of util-linux is missing"
    if not Path("/etc/machine-id").exists():
        return "this computer has no /etc/machine-id, over which another one could be mounted"
    mounted = "mount --make-rprivate / && mount -t proc proc /proc"
    tried = subprocess.run(
        ["unshare", "--pid", "--mount", "--fork", "sh", "-c", mounted], capture_output=True, text=True, check=False
    )
    return tried.stderr.strip()


@contextlib.contextmanager
def shared_home(root: Path, count: int, *, one_machine_id: bool = False) -> Generator[Farm]:
    """Yield `count` hosts whose home folder is `root`/home.

    one_machine_id: They have the same machine id, as machines made from one image may have.
    """
    identity, public = new_identity(root)
    (root / "home").mkdir()
    subnet, shared = free_subnet(), uuid.uuid4().hex if one_machine_id else ""
    hosts: list[Sshd] = []
    farm = Farm(root, identity, hosts)
    try:
        for rank in range(count):
            machine_id = shared or uuid.uuid4().hex
            hosts.append(_Namespaced(rank, root, f"{subnet}.{rank + 1}", identity, public, machine_id))
            hosts[-1].start()
        yield farm
    finally:
        farm.close()


class _Namespaced(Sshd):
    """One host; a start after `kill` is a reboot, with another boot id."""

    def __init__(self, rank: int, root: Path, ip: str, identity: Path, public: str, machine_id: str) -> None:
        super().__init__(rank, root / f"host{rank}", ip, identity, public)
        self.home.rmdir()
        self.home = root / "home"
        self.machine_id = machine_id
        (self.folder / "machine-id").write_text(f"{machine_id}\n")

    def folder_of(self, alias: str) -> Path:
        """Return the folder of a rank that is called `alias` on this machine."""
        return host_folder(self.home, alias, machine_id=self.machine_id)

    def start(self, *, wait: bool = True) -> None:
        (self.folder / "boot-id").write_text(f"{uuid.uuid4()}\n")
        (self.folder / "sshd_config").write_text(self._config())
        words = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh"]
        self.process = subprocess.Popen(
            [*words, str(self.folder), SSHD], stdin=subprocess.DEVNULL, start_new_session=True
        )
        if wait:
            self.await_listening()
