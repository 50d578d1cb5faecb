"""A container engine in a separate folder, with one image made of this computer's bash and busybox: real podman.

It needs root, `podman`, `crun` and a static busybox (Debian: podman crun busybox-static); no registry and no daemon.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

IMAGE = "local/orch-test:1"
_LIMITS = '[containers]\ncgroups = "disabled"\ndefault_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]\n'
_ENGINE = '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
# crun refuses cgroups in hybrid mode, so it sees an empty folder in their place.
_DOCKER = """#!/bin/sh
export CONTAINERS_CONF={folder}/containers.conf CONTAINERS_STORAGE_CONF={folder}/storage.conf
exec unshare -m --propagation slave sh -c 'mount -t tmpfs none /sys/fs/cgroup && exec podman "$@"' podman "$@"
"""


def missing_tools() -> list[str]:
    """Return what this computer lacks for an engine."""
    tools = [name for name in ("podman", "crun", "unshare") if shutil.which(name) is None]
    busybox = Path("/bin/busybox")
    return tools + ([] if busybox.exists() else ["busybox"]) + ([] if os.geteuid() == 0 else ["root"])


class ContainerEngine:
    """The command `docker` in `bin`; `docker("ps")` runs it."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        (folder / "containers.conf").write_text(_LIMITS + _ENGINE)
        places = f'graphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
        (folder / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\n{places}')
        command = self.bin / "docker"
        command.write_text(_DOCKER.format(folder=folder))
        command.chmod(0o755)
        tree = folder / "tree"
        _make_tree(tree)
        subprocess.run(["tar", "-C", str(tree), "-cf", str(folder / "image.tar"), "."], check=True)
        self.docker("import", str(folder / "image.tar"), IMAGE)

    def docker(self, *words: str) -> str:
        """Run the command and return its output."""
        done = subprocess.run(
            [str(self.bin / "docker"), *words],
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End all containers."""
        self.docker("rm", "--force", "--all", "--time", "0")


def _make_tree(tree: Path) -> None:
    for name in ("bin", "usr/bin", "tmp", "etc", "proc", "sys", "dev", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin" / "busybox")
    listed = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in set(listed) - {"busybox", "bash"}:
        (tree / "bin" / applet).symlink_to("busybox")
    shutil.copy("/bin/bash", tree / "bin" / "bash")
    linked = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    for library in re.findall(r"(/\S+)", linked):
        target = tree / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc" / "only-in-the-image").write_text("yes\n")
