"""The output of jobs on both transports: the same bytes, words and exit statuses, line by line as it comes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.service_site import log_in, serve

from orchestrator.engine.loop.follow import LogFiles
from orchestrator.store.read import Reader

pytestmark = pytest.mark.slow  # processes of orch, 0.8 CPU s each
HERE = ("--infra", "local:1", "--no-prefix")
HOSTILE = rb"red \x1b[31m title \x1b]0;x\x07 \xff\xfe\x00 100%%\r200%% no end"
MANY_BYTES = 100 << 20


@dataclass(frozen=True)
class Roads:
    """A computer with its own store, and one that works through a service with an engine."""

    local: Orch
    service: Orch
    served: Orch

    def list_both(self) -> tuple[Orch, Orch]:
        return self.local, self.served


@pytest.fixture(scope="module")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roads]:
    folder = tmp_path_factory.mktemp("roads")
    for name in ("service", "local"):
        (folder / name).mkdir()
    service = Orch(folder / "service")
    with serve(service, "--allow", "infra:local", page_only=False) as site:
        yield Roads(Orch(folder / "local"), service, log_in(site, folder / "ada", site.port))


def run_raw(orch: Orch, *words: str) -> tuple[int, bytes]:
    """Run a command, and return its status and the bytes that it printed."""
    done = subprocess.run(orch.command(*words), env=orch.env, cwd=orch.folder, capture_output=True, check=False)
    return done.returncode, re.sub(rb'"run_id": "evil-[^"]*"', b"", done.stdout)


def test_an_attached_launch_shows_each_line_as_it_comes(roads: Roads) -> None:
    for orch in roads.list_both():
        gate = orch.folder / "gate"
        program = f"echo one; until [ -e {gate} ]; do sleep 0.1; done; echo two; exit 5"
        watching = orch.start("launch", *HERE, program, "-c", "lines", "--yes")
        assert watching.stdout is not None
        assert watching.stdout.readline() == "one\n", "while the program waits"
        gate.touch()
        out, err = watching.communicate(timeout=120)
        assert (watching.returncode, out) == (5, "two\n"), err
        assert "job 1 failed on head (rank 0): exit 5" in err


def test_an_interrupted_launch_through_a_service_ends_watching_alone(roads: Roads) -> None:
    watching = roads.served.start("launch", *HERE, "echo begin; sleep 300", "-c", "left", "--yes")
    assert watching.stdout is not None and watching.stdout.readline() == "begin\n"
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=60)
    assert watching.returncode == 130 and "stopped watching; the run continues at the service" in err
    assert '"running"' in roads.served.ok("queue", "left", "-o", "json")
    roads.served.ok("down", "left", "--yes")


def test_hostile_output_has_the_same_bytes_on_both_roads(roads: Roads) -> None:
    words = ("launch", *HERE, f"printf '{HOSTILE.decode('ascii')}'; exit 3", "-c", "evil", "--yes")
    (first, local), (again, served) = (run_raw(orch, *words) for orch in roads.list_both())
    assert (again, served) == (first, local) and first == 3 and local.startswith(b"red ")
    for more in (("--raw",), ("-o", "json"), ("--tail", "1", "-o", "jsonl"), ("-f",), ("--grep", "end")):
        (first, local), (again, served) = (
            run_raw(orch, "logs", "evil", "--no-prefix", *more) for orch in roads.list_both()
        )
        assert (again, served) == (first, local) and local, more
    exact = run_raw(roads.served, "logs", "evil", "--no-prefix", "--raw")[1]
    assert exact == b"red \x1b[31m title \x1b]0;x\x07 \xff\xfe\x00 100%\r200% no end\n"


SETUP = """
name: ready
resources: {infra: "local:1"}
setup: |
  echo preparing; until [ -e GATE ]; do sleep 0.1; done; echo prepared
run: |
  echo the program; exit 6
"""


def test_following_continues_from_the_setup_to_the_program(roads: Roads) -> None:
    for orch in roads.list_both():
        (orch.folder / "task.yaml").write_text(SETUP.replace("GATE", str(orch.folder / "prepared")))
        launch = orch.start("launch", "task.yaml", "--no-prefix", "--yes")
        until("the setup runs", lambda orch=orch: "preparing" in orch("logs", "ready").stdout)
        process = orch.start("logs", "ready", "-f", "--no-prefix")
        assert process.stdout is not None and process.stdout.readline() == "preparing\n"
        (orch.folder / "prepared").touch()
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (6, "prepared\nthe program\n"), err
        out, err = launch.communicate(timeout=120)
        assert (launch.returncode, out) == (6, "the program\n") and "prepared" in err, "setups are on standard error"


def keep_output(orch: Orch, cluster: str, content: bytes, times: int) -> Path:
    """Replace what is kept of the output of job 1 of a cluster that does not exist any more."""
    with Reader(orch.state / "orch.db") as reader:
        record = reader.deleted_cluster(cluster)
        assert record is not None
    files = LogFiles(orch.state / "logs" / record.uid / "1" / "attempt-0001")
    files.path(0).unlink(missing_ok=True)
    for _ in range(times):
        files.write(0, content)
    files.close()
    return files.path(0)


@pytest.fixture(scope="module")
def deleted(roads: Roads) -> Roads:
    for orch in roads.list_both():
        orch.ok("launch", *HERE, "echo small", "-c", "away", "--yes")
        orch.ok("down", "away", "--yes")
    return roads


def measure(orch: Orch, out: Path, *words: str) -> int:
    """Return the most memory, in bytes, that `orch logs` took."""
    with out.open("wb") as file:
        process = subprocess.Popen(orch.command("logs", *words), env=orch.env, stdout=file)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


def test_100_mb_through_a_service_take_little_memory(deleted: Roads, tmp_path: Path) -> None:
    start = measure(deleted.served, tmp_path / "small", "away", "--no-prefix")
    block = os.urandom((1 << 20) - 1) + b"\n"
    log = keep_output(deleted.service, "away", block, MANY_BYTES >> 20)
    most = measure(deleted.served, tmp_path / "large", "away", "--no-prefix", "--raw")
    assert (tmp_path / "large").read_bytes() == log.read_bytes(), "its bytes are those that were kept"
    assert most - start < 80 << 20, f"{(most - start) >> 20} MiB above its start"


def test_a_hole_of_a_kept_file_is_the_same_line_on_both_roads(deleted: Roads) -> None:
    for orch in deleted.list_both():
        log = keep_output(deleted.service if orch is deleted.served else orch, "away", b"a line of many\n" * 4096, 100)
        log.with_suffix(".cut").write_text(f"{1 << 20} {3 << 20}\n")
    local, served = (run_raw(orch, "logs", "away", "--no-prefix") for orch in deleted.list_both())
    assert served == local and served[1].count(b"[orch: 2.1 MB of this output are not kept here") == 1


def test_following_waits_for_no_timer(roads: Roads) -> None:
    """The time from a line at the program to the line at the command is below a second, without load."""
    served, stamps = roads.served, roads.served.folder / "stamps"
    program = f"for i in $(seq 8); do date +%s.%N | tee -a {stamps}; sleep 2.7; done"
    served.ok("launch", *HERE, program, "-c", "timed", "--yes", "--detach")
    process = served.start("logs", "timed", "-f", "--no-prefix")
    assert process.stdout is not None
    delays = [time.time() - float(line) for line in process.stdout]
    process.communicate(timeout=60)
    assert process.returncode == 0 and len(delays) == 8
    assert min(delays[2:]) < 1.0, delays
    until("the run has ended", lambda: '"running"' not in served.ok("queue", "timed", "-o", "json"))
