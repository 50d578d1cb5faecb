"""Where orch keeps its files on this computer. ORCH_HOME moves all of them (tests, several identities)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_IN_STATE = "state:"


@dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one installation.

    Attributes:
        state: Store, keys, logs, local hosts.
    """

    state: Path

    @property
    def database(self) -> Path:
        """The SQLite store."""
        return self.state / "orch.db"

    @property
    def ssh_aliases(self) -> Path:
        """What a person's ssh configuration includes (engine/state/ssh_aliases.py)."""
        return self.state / "ssh_config"

    def keys(self, slice_name: str) -> Path:
        """Return the folder with the SSH keys of one slice."""
        return self.state / "keys" / slice_name

    def logs(self, cluster_uid: str, job: int) -> Path:
        """Return the folder with copies of a job's logs; by uid, because cluster names and job numbers are reused."""
        return self.state / "logs" / cluster_uid / str(job)


def load_paths() -> Paths:
    """Return the paths from the environment; read every time, because tests and child processes may change it.

    Every command passes here before it reads or writes the state, which is closed to other users of this computer.
    """
    home = os.environ.get("ORCH_HOME")
    if home:
        return Paths(Path(home).expanduser().absolute() / "state")
    from platformdirs import user_state_path

    return Paths(user_state_path("orch"))


def config_path(env: Mapping[str, str]) -> Path:
    """Return the path of the configuration file.

    It is $ORCH_CONFIG, else $ORCH_HOME/config.toml, else $XDG_CONFIG_HOME/orch/config.toml, else in ~/.config/orch.
    """
    if env.get("ORCH_CONFIG"):
        return Path(env["ORCH_CONFIG"])
    if env.get("ORCH_HOME"):
        return Path(env["ORCH_HOME"]).expanduser() / "config.toml"
    base = env.get("XDG_CONFIG_HOME", "")
    home = Path(base) if base.startswith("/") else Path(env.get("HOME") or Path.home()) / ".config"
    return home / "orch" / "config.toml"


def to_portable(path: str, state: Path) -> str:
    """Return a path as other computers can use it: below the state folder it is relative to that."""
    try:
        return _IN_STATE + Path(path).relative_to(state).as_posix()
    except ValueError:
        return path


def from_portable(path: str, state: Path) -> str:
    """Return the path that `to_portable` wrote, below this computer's state folder."""
    return str(state / path.removeprefix(_IN_STATE)) if path.startswith(_IN_STATE) else path
