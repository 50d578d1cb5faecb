"""A host as an image of Ubuntu 22.04 or 24.04 boots it: a separate root file system, this computer's by overlay.

    with image_root(tmp_path, UBUNTU_22) as image:
        image.ssh("bash -s", script)

What differs from this computer: /etc/os-release, the only Python (3.10 on 22.04, 3.12 on 24.04) without the module
venv, an unprivileged user with sudo, apt with the sources of the test alone and the dpkg state of this computer, one
sshd, and a systemctl that makes it read its keys again. All is mounted in a namespace and ends with its last process.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

USER = "ubuntu"
_NEEDS = ("unshare", "nsenter", "chroot", "setpriv", "apt-get", "dpkg-deb", "ssh", "ssh-keygen", "curl")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SSHD = Path("/usr/sbin/sshd")
# Where other versions of Python lie beside this one, as pyenv keeps them.
_PYTHONS = (Path(sys.base_prefix).parent, Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of Ubuntu: its name in /etc/os-release, and the version of its python3."""

    version: str
    codename: str
    python: str


UBUNTU_22 = Release(version="22.04", codename="jammy", python="3.10")
UBUNTU_24 = Release(version="24.04", codename="noble", python="3.12")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A booted image.

    Attributes:
        root: Its root file system, as it is seen inside the namespace.
        process: Number of the process that holds the namespace.
    """

    root: Path
    process: int
    port: int
    key: Path

    def inside(self, *command: str) -> list[str]:
        """Return a command line that runs as root in the image."""
        enter = ["nsenter", f"--mount=/proc/{self.process}/ns/mnt", "env", "-i", f"PATH={_PATH}", "LANG=C.UTF-8"]
        return [*enter, "chroot", str(self.root), *command]

    def run(self, command: str, timeout: float = 60) -> str:
        """Run a shell command as root in the image and return its output."""
        done = subprocess.run(
            self.inside("/bin/bash", "-c", command), capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def ssh(
        self, command: str, text: str = "", *, env: Mapping[str, str] | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user, over SSH."""
        names = "".join(f"export {name}={shlex.quote(value)}; " for name, value in (env or {}).items())
        options = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
        return subprocess.run(
            ["ssh", "-F", "/dev/null", "-i", str(self.key), *options, "-p", str(self.port), f"{USER}@127.0.0.1",
             names + command],
            input=text, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip


def missing_for_images(release: Release) -> str:
    """Return why this computer cannot boot such an image; "" when it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a root file system of one's own needs Linux and the rights of root"
    missing = [name for name in _NEEDS if shutil.which(name) is None]
    if missing or not _SSHD.exists():
        return f"missing: {', '.join(missing) or _SSHD}"
    if find_python(release.python) is None:
        return f"no Python {release.python} is below {' or '.join(map(str, _PYTHONS))}"
    overlay = "mount -t overlay none -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/u"
    probe = f"mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w && {overlay}"
    made = subprocess.run(["unshare", "--mount", "sh", "-c", probe], capture_output=True, text=True, check=False)
    return made.stderr.strip()


def find_python(version: str) -> Path | None:
    """Return the folder of an interpreter of this version, such as 3.10."""
    found = [one for folder in _PYTHONS if folder.is_dir() for one in sorted(folder.glob(f"{version}.*"))]
    return found[-1] if found else None


@contextmanager
def image_root(folder: Path, release: Release, sources: Sequence[str] = ()) -> Iterator[Image]:
    """Yield a booted image. sources: lines of apt's sources.list."""
    python = find_python(release.python)
    assert python is not None
    key, port = folder / "key", _free_port()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    root = folder / "image"
    root.mkdir()
    script = _boot_script(root, release, python, sources, key.with_suffix(".pub").read_text(), port)
    (folder / "boot.log").touch()
    with (folder / "boot.log").open("w") as log:
        process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", script],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        _wait_for(port, process, folder / "boot.log")
        yield Image(root=root / "r", process=process.pid, port=port, key=key)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _boot_script(root: Path, release: Release, python: Path, sources: Sequence[str], public: str, port: int) -> str:
    """Mount, change what an image has otherwise, and become its sshd."""
    version = release.python
    return f"""set -e
mount -t tmpfs none {root}
mkdir {root}/u {root}/w {root}/r {root}/pu {root}/pw
mount -t overlay none -o lowerdir=/,upperdir={root}/u,workdir={root}/w {root}/r
R={root}/r
mount --rbind /proc $R/proc; mount --rbind /dev $R/dev; mount -t tmpfs none $R/tmp; chmod 1777 $R/tmp
mount -t tmpfs none $R/run; mkdir -p $R/run/sshd $R/run/lock
rm -f $R/usr/bin/python3* $R/usr/local/bin/python3* $R/usr/local/bin/uv
mkdir -p $R/opt/python
mount -t overlay none -o lowerdir={python},upperdir={root}/pu,workdir={root}/pw $R/opt/python
rm -rf $R/opt/python/lib/python{version}/venv $R/opt/python/lib/python{version}/ensurepip
mkdir $R/opt/lib; cp {sys.base_prefix}/lib/libpython*.so.* $R/opt/lib/ 2>/dev/null || true
printf '%s\n' /opt/python/lib /opt/lib >$R/etc/ld.so.conf.d/python.conf; chroot $R ldconfig
printf '%s\n' '#!/bin/sh' "kill -HUP $$" >$R/usr/bin/systemctl; chmod 755 $R/usr/bin/systemctl
ln -s /opt/python/bin/python{version} $R/usr/bin/python{version}; ln -s python{version} $R/usr/bin/python3
cat >$R/etc/os-release <<END
NAME="Ubuntu"
VERSION_ID="{release.version}"
VERSION_CODENAME={release.codename}
ID=ubuntu
ID_LIKE=debian
END
rm -rf $R/etc/apt/sources.list.d/* $R/etc/apt/apt.conf.d/* $R/var/lib/apt/lists/* $R/etc/profile.d/*
printf '%s\\n' {" ".join(shlex.quote(line) for line in sources)} >$R/etc/apt/sources.list
chroot $R userdel -rf {USER} 2>/dev/null || true
chroot $R useradd -m -s /bin/bash -p '*' {USER}
mkdir -m 700 $R/home/{USER}/.ssh
printf '%s' {shlex.quote(public)} >$R/home/{USER}/.ssh/authorized_keys
chroot $R chown -R {USER}: /home/{USER}/.ssh
cp $R/usr/bin/setpriv $R/usr/lib/as-root; chroot $R chgrp {USER} /usr/lib/as-root; chmod 4750 $R/usr/lib/as-root
rm -f $R/usr/bin/sudo
printf '%s\\n' '#!/bin/sh' '[ "$1" != -n ] || shift' \\
  'exec /usr/lib/as-root --reuid 0 --regid 0 --clear-groups -- "$@"' >$R/usr/bin/sudo
chmod 755 $R/usr/bin/sudo
rm -f $R/etc/ssh/ssh_host_*; chroot $R ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
exec chroot $R {_SSHD} -D -e -f /dev/null -p {port} -o ListenAddress=127.0.0.1 -o PasswordAuthentication=no \\
  -o HostKey=/etc/ssh/ssh_host_ed25519_key -o UsePAM=no -o PidFile=none
"""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"the image did not boot: {log.read_text()}")
