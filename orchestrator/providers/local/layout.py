"""Names of the files of one slice and of one host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CLEAN_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class HostFolder:
    """Everything of one host. Only `home` is the user's."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "sshd_config"

    @property
    def host_key(self) -> Path:
        return self.path / "host_key"

    @property
    def authorized_keys(self) -> Path:
        return self.path / "authorized_keys"

    @property
    def admit(self) -> Path:
        """The program that writes the keys of members."""
        return self.path / "orch-admit"

    @property
    def admitted(self) -> Path:
        """The folder in which it writes them, a file for each account."""
        return self.path / "admitted"

    @property
    def home(self) -> Path:
        return self.path / "home"

    @property
    def own_keys(self) -> Path:
        return self.home / ".ssh" / "authorized_keys"

    @property
    def log(self) -> Path:
        """What sshd and the guard have to say."""
        return self.path / "sshd.log"

    @property
    def sshd_pid(self) -> Path:
        """Written by sshd itself, once it listens."""
        return self.path / "sshd.pid"

    @property
    def guard(self) -> Path:
        """`pid start` of the process that stands for the host; see guard.py."""
        return self.path / "guard"


@dataclass(frozen=True, slots=True)
class SlicePaths:
    path: Path

    @property
    def state(self) -> Path:
        """The folder of the provider's user, with `local/<slice>` in it."""
        return self.path.parent.parent

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def record(self) -> Path:
        return self.path / "slice.json"

    @property
    def session(self) -> Path:
        """The script through which every session of every host goes."""
        return self.path / "session.sh"

    @property
    def hosts(self) -> Path:
        return self.path / "hosts"

    def host(self, rank: int) -> HostFolder:
        return HostFolder(self.hosts / str(rank))
