"""Where orch keeps what it owns on this computer. ORCH_HOME moves all of it (tests, several identities)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """state: store, keys, logs, local hosts. config: config.toml."""

    state: Path
    config: Path

    @property
    def database(self) -> Path:
        return self.state / "orch.db"

    @property
    def config_file(self) -> Path:
        override = os.environ.get("ORCH_CONFIG")
        return Path(override) if override else self.config / "config.toml"

    def keys(self, slice_name: str) -> Path:
        """Folder with the SSH material of one slice."""
        return self.state / "keys" / slice_name

    def logs(self, cluster: str, job: int) -> Path:
        return self.state / "logs" / cluster / str(job)


def paths() -> Paths:
    """From the environment, each time: tests and child processes may move it."""
    home = os.environ.get("ORCH_HOME")
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(root / "state", root / "config")
    from platformdirs import user_config_path, user_state_path

    return Paths(user_state_path("orch"), user_config_path("orch"))
