"""Clusters of one and of two hosts of this computer, on which a launcher is started as people write it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.orch_process import Orch

# Each process adds up a one over its group: a world that does not really meet does not end.
SHOW = """
import os
import torch, torch.distributed as dist

if "RANK" in os.environ:
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    world = int(total)
else:
    world = 1
seen = f"seen {os.environ.get('RANK', '0')} of {world} on {os.environ['ORCH_RANK']}\\n"
os.write(1, seen.encode())  # in one piece: print writes the end of a line by itself
# On a loaded machine the threads of gloo abort an orderly end now and then (torch 2.13).
if os.environ.get("FAILS_ON") == os.environ["ORCH_RANK"]:
    os._exit(3)
if "FAILS_ON" in os.environ and "RANK" in os.environ:
    dist.barrier()
os._exit(0)
"""


@dataclass(frozen=True)
class LauncherCluster:
    """A cluster that stays up, and the folder in which its programs are.

    Attributes:
        python: The interpreter whose folder comes first on PATH, with the launchers beside it.
    """

    folder: Path
    hosts: int
    more: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def orch(self) -> Orch:
        bin_folder = str(Path(sys.executable).parent)
        return Orch(self.folder, {"PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin", **self.more})

    def run(self, script: str, *words: str, timeout: float = 150.0) -> subprocess.CompletedProcess[str]:
        """Run a script on all hosts of the cluster, as an own job."""
        lines = "".join(f"  {line}\n" for line in script.strip().splitlines())
        task = f"name: mine\nworkdir: program\nresources: {{infra: 'local:{self.hosts}'}}\nrun: |\n{lines}"
        (self.folder / "t.yaml").write_text(task)
        return self.orch("launch", "t.yaml", "--yes", "--env", "OMP_NUM_THREADS=1", *words, timeout=timeout)

    def seen(self, script: str) -> list[str]:
        """Return what the processes of a script that succeeds saw, in order."""
        done = self.run(script)
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted(re.findall(r"seen .*", done.stdout))

    def check_failure(self, script: str) -> None:
        """Let the program of the last host fail: the job ends, with the status of that program."""
        done = self.run(script, "--env", f"FAILS_ON={self.hosts - 1}")
        assert done.returncode == 3 or "status 3" in done.stderr, done.stdout + done.stderr


def install_or_skip(folder: Path, *words: str) -> None:
    """Run an installer in a folder; where it fails, as without a network, the tests that need it are skipped."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        pytest.skip(f"not installed here: {done.stderr[-300:]}")


def together(hosts: int, each: int = 1) -> list[str]:
    """Return what processes see that form one world over all hosts."""
    return sorted(f"seen {rank} of {hosts * each} on {rank // each}" for rank in range(hosts * each))


def apart(hosts: int, each: int = 1) -> list[str]:
    """Return what processes see where each host is an own world."""
    return sorted(f"seen {rank} of {each} on {host}" for host in range(hosts) for rank in range(each))


@contextmanager
def launcher_cluster(folder: Path, hosts: int, **programs: str) -> Generator[LauncherCluster]:
    """Make the folder of a cluster; the first job creates it, and it is deleted at the end."""
    (folder / "program").mkdir()
    for name, text in {"show_py": SHOW, **programs}.items():
        (folder / "program" / name.replace("_", ".")).write_text(text)
    cluster = LauncherCluster(folder, hosts)
    try:
        yield cluster
    finally:
        cluster.orch("down", "mine", "--yes")
        cluster.orch.kill_engines()
