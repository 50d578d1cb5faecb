"""Setup and program of a task with `image_id: docker:…` run in a container, as they would run on the host."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.container_engine import IMAGE, ContainerEngine, missing_tools
from support.orch_process import Orch, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing_tools()), reason=f"no {', '.join(missing_tools())} here"),
]

TASK = """
name: mine
resources: {{infra: local, image_id: 'docker:{image}'}}
workdir: work
envs: {{NAME: "two\\nlines", PATH: "{path}"}}
file_mounts: {{~/data: ./data}}
setup: |
  cat /etc/only-in-the-image >~/prepared
run: |
{run}
"""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ContainerEngine]:
    made = ContainerEngine(tmp_path / "engine")
    yield made
    made.close()


@pytest.fixture
def orch(tmp_path: Path, engine: ContainerEngine) -> Orch:
    for name in ("work", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"of {name}\n")
    return Orch(tmp_path, {"PATH": f"{engine.bin}:{os.environ['PATH']}"})


def write_task(orch: Orch, *lines: str) -> None:
    text = TASK.format(image=IMAGE, path=orch.more["PATH"], run="".join(f"  {line}\n" for line in lines))
    (orch.folder / "task.yaml").write_text(text)


def test_setup_and_program_run_in_one_container_and_the_status_comes_out(orch: Orch, engine: ContainerEngine) -> None:
    write_task(
        orch,
        "cat ~/prepared /etc/only-in-the-image file ~/data/file ~/sky_workdir/file",
        'echo "user $(id -u) rank $ORCH_RANK of $SKYPILOT_NUM_NODES: $NAME"',
        "kill -SEGV $BASHPID",
    )
    done = orch("launch", "task.yaml", "--yes")
    for text in ("yes\nyes\nof work\nof data\nof work\n", "user 0 rank 0 of 1: two\n", "lines\n"):
        plain = "\n".join(line.partition(") ")[2] for line in done.stdout.splitlines()) + "\n"
        assert text in plain, done.stdout + done.stderr
    assert done.returncode == 139, done.stderr
    assert engine.docker("ps", "--quiet").count("\n") == 1, "it stays for the next job"
    write_task(orch, "exit 7")
    assert orch("launch", "task.yaml", "--yes").returncode == 7
    orch.ok("down", "mine", "--yes")


def test_cancel_ends_what_runs_in_the_container_after_it_could_save(orch: Orch) -> None:
    write_task(orch, "trap 'echo saved >~/saved; exit 0' TERM", "echo $$ >~/started", "while :; do sleep 0.2; done")
    orch.ok("launch", "task.yaml", "--yes", "-d")
    (home,) = (orch.state / "local").glob("*/hosts/0/home")
    until("the program runs", (home / "started").exists)
    orch.ok("cancel", "mine", "--yes")
    assert (home / "saved").read_text() == "saved\n"
    (job,) = json.loads(orch.ok("status", "mine", "-o", "json"))["clusters"][0]["jobs"]
    assert job["state"] == "ended"
    time.sleep(1)
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if b"program.sh" in _command(pid)]
    orch.ok("down", "mine", "--yes")


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
