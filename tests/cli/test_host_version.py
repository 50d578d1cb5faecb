"""P8: hosts whose folder is of another version of orch refuse every command, and no machine ends because of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support.orch_process import Orch, until
from support.own_ssh import Person
from support.sshd import sshd_farm

from orchestrator.exits import Exit
from orchestrator.remote.host_folder import FORMAT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.promise("P8")]

RUN = 'run: |\n  echo rank $ORCH_RANK\n  echo $$ >"$ORCH_HOST_DIR/program"\n  sleep 300\n'
LOCAL = "name: two\nresources: {infra: 'local:2'}\n" + RUN
OWN = "name: two\nresources: {infra: hosts, accelerators: cpu}\nnum_nodes: 2\nhosts: {addresses: [one, two]}\n" + RUN
OTHER = 7


@dataclass(frozen=True)
class Two:
    """The cluster `two`, whose program runs on both hosts. folders: of its ranks on the hosts."""

    orch: Orch
    folders: tuple[Path, Path]

    def set_version(self, rank: int, version: int | None) -> None:
        """Write the version of the folder of a rank; None: it has none."""
        file = self.folders[rank] / "format"
        if version is None:
            file.unlink()
        else:
            file.write_text(f"{version}\n")

    def programs(self) -> list[str]:
        """Return the programs that run, by rank and process number."""
        found = [folder / "program" for folder in self.folders]
        pids = {file: file.read_text().strip() for file in found if file.exists()}
        return [f"{found.index(file)}: {pid}" for file, pid in pids.items() if Path("/proc", pid).exists()]

    def machines(self) -> list[str]:
        """Return the requests for machines on record, with their states."""
        found = json.loads(self.orch.ok("events", "two", "-o", "json"))["events"]
        return [event["what"] for event in found if event["what"].startswith("two-")]

    def files(self, rank: int) -> set[str]:
        """Return the files of a rank, without one that the job writes now and then while it runs."""
        folder = self.folders[rank]
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != "log-times"}


def find_folders(homes: Path) -> tuple[Path, Path]:
    first, second = sorted(homes.glob("**/.orch/hosts/*/"), key=lambda folder: folder.name)
    return first, second


def launch(orch: Orch, homes: Path, task: str) -> Two:
    (orch.folder / "task.yaml").write_text(task)
    orch.ok("launch", "task.yaml", "--yes", "--detach")
    until("both programs run", lambda: len(list(homes.glob("**/.orch/hosts/*/program"))) == 2)
    return Two(orch, find_folders(homes))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    orch = Orch(tmp_path)
    yield launch(orch, orch.state / "local", LOCAL)
    orch("down", "two", "--yes")


@pytest.fixture
def undriven(two: Two) -> Two:
    """Return the cluster without the engine that drives its job."""
    two.orch.kill_engines()
    return two


def commands(orch: Orch, *lines: str) -> Iterator[tuple[str, CompletedProcess[str]]]:
    for line in lines:
        yield line, orch(*line.split(), timeout=60)


def assert_refused(done: CompletedProcess[str], versions: str) -> None:
    """Check that a command ended with one error of at most five lines that names host, cluster and both versions."""
    assert done.returncode == Exit.CONFLICT, done
    assert done.stderr.count("error[") == 1 and "Traceback" not in done.stderr, done.stderr
    error = done.stderr[done.stderr.index("error[") :].splitlines()
    lines = [error[0], *(line for line in error[1:] if line.startswith("  "))]
    assert lines[0] == f"error[host-version]: host 1 of 'two': orch's folder there {versions}", done.stderr
    assert len(lines) <= 5 and "orch down two" in lines[-1], done.stderr


@pytest.mark.parametrize(
    ("version", "versions"),
    [
        (OTHER, f"has version {OTHER}, and this orch uses version {FORMAT}"),
        (None, f"is of an orch before version 1, and this orch uses version {FORMAT}"),
    ],
    ids=["higher", "none"],
)
def test_every_command_is_refused_while_a_program_runs_and_only_down_ends_the_machines(
    undriven: Two, version: int | None, versions: str
) -> None:
    two = undriven
    assert [(folder / "format").read_text() for folder in two.folders] == [f"{FORMAT}\n"] * 2
    two.set_version(1, version)
    programs, files, machines = two.programs(), two.files(1), two.machines()
    for line, done in commands(
        two.orch,
        *("watch two", "logs two", "logs -f two", "logs two --tail 1", "exec two -- true", "status two --refresh"),
        *("cp task.yaml two:x", "cp two:.bashrc back", "top two --once", "launch task.yaml --yes"),
        "cancel two",
    ):
        assert_refused(done, versions)
        assert "orch-other-version" not in done.stdout, line
    assert two.orch("reap", "--yes").returncode == 0
    assert (two.programs(), two.files(1), two.machines()) == (programs, files, machines) and len(programs) == 2
    assert json.loads(two.orch.ok("queue", "two", "-o", "json"))["jobs"][1:] == []
    two.orch.ok("down", "two", "--yes")
    assert two.programs() == [] and not (two.orch.state / "local").exists()


def test_a_launch_on_hosts_of_another_version_changes_nothing_and_succeeds_with_the_right_one(two: Two) -> None:
    two.orch.ok("cancel", "two")
    two.set_version(1, OTHER)
    (two.orch.folder / "task.yaml").write_text(LOCAL.replace("sleep 300", "sleep 0.1"))
    files, machines = two.files(1), two.machines()
    for _ in range(2):
        assert_refused(two.orch("launch", "task.yaml", "--yes"), f"has version {OTHER}, and this orch uses version 1")
    assert (two.files(1), two.machines()) == (files, machines)
    two.set_version(1, FORMAT)
    assert "rank 1" in two.orch.ok("launch", "task.yaml", "--yes")


def test_an_engine_that_meets_another_version_replaces_and_ends_nothing(two: Two) -> None:
    programs, machines, log = two.programs(), two.machines(), two.orch.state / "engine.log"
    two.set_version(1, OTHER)
    met = f"host 1 of 'two': orch's folder there has version {OTHER}, and this orch uses version {FORMAT}"
    until("the engine meets it", lambda: "tried again later" in log.read_text(), 60)
    assert met in log.read_text() and met in two.orch.ok("events"), log.read_text()
    assert_refused(two.orch("watch", "two"), f"has version {OTHER}, and this orch uses version {FORMAT}")
    assert (two.programs(), two.machines()) == (programs, machines) and len(programs) == 2
    two.orch.kill_engines()
    two.set_version(1, FORMAT)
    assert "rank 1" in two.orch.ok("logs", "two")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Two, Orch]]:
    """Yield the cluster on own machines, and the orch of another person who has the same machines and home folders."""
    with sshd_farm(tmp_path / "farm", 2) as farm:
        orchs: list[Orch] = []
        for name in ("ann", "bob"):
            (tmp_path / name).mkdir()
            person = Person(tmp_path / name, farm)
            person.make_key("id_ed25519")
            named = zip(("one", "two"), farm.hosts, strict=True)
            person.configure("".join(f"Host {n}\n  HostName {host.ip}\n  Port {host.port}\n" for n, host in named))
            orchs.append(Orch(tmp_path / name, {"SSH_AUTH_SOCK": ""}))
        two = launch(orchs[0], tmp_path / "farm", OWN)
        two.orch.kill_engines()
        try:
            yield two, orchs[1]
        finally:
            for orch in orchs:
                orch("down", "two", "--yes", "--abandon")


def test_own_machines_compare_the_version_of_each_persons_folder(own: tuple[Two, Orch]) -> None:
    two, other = own
    two.set_version(1, OTHER)
    programs, files = two.programs(), two.files(1)
    versions = f"has version {OTHER}, and this orch uses version {FORMAT}"
    for _, done in commands(two.orch, "exec two -- true", "logs two", "watch two", "down two --yes"):
        assert_refused(done, versions)
    assert (two.programs(), two.files(1)) == (programs, files) and len(programs) == 2
    assert not (two.folders[0] / "owner").exists(), "own machines have no owner"
    (other.folder / "task.yaml").write_text(OWN.replace("sleep 300", "sleep 0.1"))
    assert "rank 1" in other.ok("launch", "task.yaml", "--yes"), "the folder of another person is another one"
    two.orch.ok("down", "two", "--yes", "--abandon")
    assert two.programs() == [one for one in programs if one.startswith("1: ")], "it is left as it is"
