"""The folder of one rank on one machine, ~/.orch/hosts/NAME-MACHINE: its jobs, marks, limits, trees and workdir.

The name is the host's alias, which names cluster, generation and rank; the machine is a hash of its id, which the host
itself computes (templates/remote/host.sh). Several hosts may have one home folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

FORMAT = 1
"""Version of what is in the folder; its file `format` has the number (remote/fence.py)."""
HOST_FOLDER = ".orch/host"
"""The folder in paths that are sent to hosts, which put the real one in its place (templates/remote/path.sh)."""
WORKDIR = "orch_workdir"
"""The working directory of a rank in such paths; ~/orch_workdir is a link to the newest."""
JOB_FILES = ".orch/hosts/*/jobs/*"
"""Pattern of the jobs' folders below a home folder that is on this computer."""


def list_host_folders(home: Path) -> Iterator[Path]:
    """Yield the folders of all ranks in a home folder that is on this computer."""
    return (home / ".orch" / "hosts").glob("*/")
