"""A person's own ssh, forwarded ports, notebooks and the live table, on real hosts of this computer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from support.orch_process import Orch

pytestmark = [pytest.mark.slow, pytest.mark.rotating]
TASK = """
name: mine
resources: {infra: "local:2"}
run: echo "hello from $ORCH_RANK"
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orch]:
    """Cluster 'mine' on two local hosts, in its own orch."""
    orch = Orch(tmp_path_factory.mktemp("access"))
    (orch.folder / "task.yaml").write_text(TASK)
    (orch.folder / ".ssh").mkdir(mode=0o700)
    try:
        orch.ok("launch", "task.yaml")
        yield orch
    finally:
        orch("down", "mine")
        orch.kill_engines()


def plain(orch: Orch, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of OpenSSH with the person's configuration; ssh itself does not look at HOME."""
    tool, *rest = words
    command = [tool, "-F", str(orch.folder / ".ssh" / "config"), *rest]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


def test_ssh_scp_and_rsync_reach_hosts_by_their_aliases(mine: Orch) -> None:
    mine.ok("ssh-config", "--write", "--yes")
    for alias, rank in (("mine", 0), ("mine-0", 0), ("mine-1", 1)):
        done = plain(mine, "ssh", alias, "pwd; cd; basename $(dirname $PWD)")
        home, _ = done.stdout.splitlines()
        assert done.returncode == 0 and mine.ok("ssh", "mine", str(rank), "--", "pwd").strip() == home
    (mine.folder / "sent").write_text("content")
    assert plain(mine, "scp", "-q", str(mine.folder / "sent"), "mine-1:by-scp").returncode == 0
    assert plain(mine, "ssh", "mine-1", "cat by-scp").stdout == "content"
    if shutil.which("rsync"):
        shell = f"ssh -F {mine.folder / '.ssh' / 'config'}"
        subprocess.run(["rsync", "-e", shell, str(mine.folder / "sent"), "mine:by-rsync"], check=True, timeout=60)
        assert plain(mine, "ssh", "mine", "cat by-rsync").stdout == "content"


def test_the_written_aliases_follow_the_hosts(mine: Orch) -> None:
    mine.ok("ssh-config", "--write", "--yes")
    aliases = mine.state / "ssh_config"
    before = aliases.read_text()
    (mine.folder / "other.yaml").write_text("name: other\nresources: {infra: local}\nrun: 'true'\n")
    mine.ok("launch", "other.yaml")
    assert plain(mine, "ssh", "other", "true").returncode == 0
    mine.ok("down", "other", "--yes")
    assert aliases.read_text() == before
