"""Where orch keeps what it owns on this computer. ORCH_HOME moves all of it (tests, several identities)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Paths:
    """state: store, keys, logs, local hosts."""

    state: Path

    @property
    def database(self) -> Path:
        return self.state / "orch.db"

    def keys(self, slice_name: str) -> Path:
        """Folder with the SSH material of one slice."""
        return self.state / "keys" / slice_name

    def logs(self, cluster_uid: str, job: int) -> Path:
        """Copies of a job's logs. By uid: a later cluster of the same name has jobs of the same numbers."""
        return self.state / "logs" / cluster_uid / str(job)


def paths() -> Paths:
    """From the environment, each time: tests and child processes may move it."""
    home = os.environ.get("ORCH_HOME")
    if home:
        root = Path(home).expanduser().absolute()
        return Paths(root / "state")
    from platformdirs import user_state_path

    return Paths(user_state_path("orch"))
