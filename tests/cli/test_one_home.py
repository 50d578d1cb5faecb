"""Hosts that have one home folder: each rank runs its own program, with its own log, end and working directory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.own_ssh import Person
from support.shared_home import missing_for_shared_home, shared_home
from support.sshd import Farm

MISSING = missing_for_shared_home()
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"hosts need own namespaces: {MISSING}"),
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

TASK = """\
name: mine
resources: {{infra: hosts, accelerators: cpu}}
num_nodes: {count}
hosts: {{addresses: [{hosts}]}}
workdir: work
setup: |
  echo "setup of rank $ORCH_RANK"
  echo $ORCH_RANK >> ~/setups
run: |
{run}
"""


class Home:
    """Hosts with one home folder, and a person whose SSH configuration names them h0, h1, ..."""

    def __init__(self, folder: Path, farm: Farm) -> None:
        self.farm, self.folder = farm, folder
        person = Person(folder, farm)
        person.make_key("id_ed25519")
        person.configure(
            "".join(f"Host h{n}\n  HostName {host.ip}\n  Port {host.port}\n" for n, host in enumerate(farm.hosts))
        )
        (folder / "work").mkdir()
        (folder / "work" / "file").write_text("sent\n")
        self.orch = Orch(folder, {"SSH_AUTH_SOCK": ""})
        self.home = farm.hosts[0].home

    def write_task(self, *run: str, more: str = "") -> None:
        names = ", ".join(f"h{rank}" for rank in range(len(self.farm.hosts)))
        lines = "\n".join(f"  {line}" for line in run)
        (self.folder / "task.yaml").write_text(TASK.format(count=len(self.farm.hosts), hosts=names, run=lines) + more)

    def log(self, rank: int, *words: str) -> str:
        return self.orch.ok("logs", "mine", *words, "--no-prefix", "--host", str(rank))

    def folders(self) -> list[str]:
        return sorted(path.name for path in (self.home / ".orch" / "hosts").iterdir())


@pytest.fixture(params=[2, 4], ids=["two", "four"])
def several(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    with shared_home(tmp_path / "farm", request.param) as farm:
        home = Home(tmp_path, farm)
        yield home
        home.orch("down", "mine", "--yes", "--abandon")


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Home]:
    with shared_home(tmp_path / "farm", 2) as farm:
        home = Home(tmp_path, farm)
        yield home
        home.orch("down", "mine", "--yes", "--abandon")


def test_each_rank_of_one_home_runs_with_its_own_log_working_directory_and_exit_code(several: Home) -> None:
    count = len(several.farm.hosts)
    several.write_task('echo "rank $ORCH_RANK pid $$ in $PWD of $ORCH_WORKDIR"; cat file', "touch made-$ORCH_RANK")
    done = several.orch("launch", "task.yaml", "--yes")
    assert done.returncode == 0 and f"job 1 on 'mine' succeeded on {count} hosts" in done.stderr, done.stderr
    workdirs: set[str] = set()
    for rank in range(count):
        said = several.log(rank)
        found = re.search(r"rank (\d+) pid \d+ in (\S+) of (\S+)\nsent\n", said)
        assert found is not None and found[1] == str(rank) and found[2] == found[3], said
        workdirs.add(found[2])
        assert (Path(found[2]) / f"made-{rank}").exists()
        cluster_generation_rank_machine = rf"/hosts/mine-[0-9a-f]+-1-{rank}-[0-9a-f]{{8}}/workdir$"
        assert re.search(cluster_generation_rank_machine, found[2])
    assert len(workdirs) == count and len(several.folders()) == count
    assert str((several.home / "orch_workdir").readlink()) in workdirs
    assert sorted((several.home / "setups").read_text().split()) == [str(rank) for rank in range(count)]
    assert "setup of rank 1" in several.orch.ok("logs", "mine", "--setup", "--host", "1")


def test_ranks_of_one_home_have_their_own_exit_codes(several: Home) -> None:
    several.write_task('[ "$ORCH_RANK" = 1 ] || { sleep 3; exit 0; }', "exit 41")
    done = several.orch("launch", "task.yaml", "--yes", "-o", "json")
    assert done.returncode == 41, done.stdout
    hosts = {host["rank"]: host for host in json.loads(done.stdout)["hosts"]}
    assert hosts[1]["exit_code"] == 41 and all(hosts[rank]["exit_code"] != 41 for rank in hosts if rank != 1), hosts


def test_cancel_ends_the_program_of_each_rank_and_resume_starts_each_again(two: Home) -> None:
    two.write_task('echo "try of rank $ORCH_RANK as $ORCH_JOB"', "[ -e ~/second ] || exec sleep 300")
    running = two.orch.start("launch", "task.yaml", "--yes", "--bucket", f"file://{two.folder}/bucket")
    until("both run", lambda: all("try of rank" in _quiet(two, rank) for rank in (0, 1)), 90)
    two.orch.ok("cancel", "mine", "--yes")
    running.communicate(timeout=60)
    for host in two.farm.hosts:
        assert not [pid for pid in host.user_pids() if _words(pid) == "sleep 300"], "its program has ended"
    (two.home / "second").touch()
    two.orch.ok("resume", "mine", "--yes")
    for rank in (0, 1):
        assert f"try of rank {rank}" in two.log(rank)


def test_program_of_a_host_that_died_is_lost_and_that_of_the_other_host_runs(two: Home) -> None:
    two.write_task("echo begun-$ORCH_RANK", "sleep 300", more="recovery: {max_preemptions: 0}\n")
    running = two.orch.start("launch", "task.yaml", "--yes")
    until("both run", lambda: all(f"begun-{rank}" in _quiet(two, rank) for rank in (0, 1)), 90)
    two.farm.hosts[1].kill()
    two.farm.hosts[1].start()  # another boot, in which another process may have the same number
    _, err = running.communicate(timeout=120)
    assert running.returncode not in (0, None) and "rank 1" in err, err
    assert "succeeded" not in err


def _quiet(home: Home, rank: int) -> str:
    return home.orch("logs", "mine", "--no-prefix", "--host", str(rank)).stdout


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""
