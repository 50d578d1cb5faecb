"""A computer of the team is lost with all its files: an engine on another one does what was handed over."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.postgres import postgres_server
from support.servers import make_servers_key, name_server

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.simulator.scenario import Deed
from orchestrator.simulator.state import Phase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\nstop = 0.2\nstart = 0.2\ndetect = 0.2\ncontact = 0\n"
TASK = """
name: mine
resources: {{accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}}
{files}
run: |
  cp -rL . "$MARKS/{name}-$ORCH_ATTEMPT"
  until [ -e "$MARKS/{name}-may-end" ]; do sleep 0.2; done
"""


@pytest.mark.promise("P1")
def test_the_queue_of_a_lost_computer_runs_on_another_with_the_same_files(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    for name in ("ann", "bob", "cloud"):
        (tmp_path / name).mkdir()
    (tmp_path / "cloud/scenario.toml").write_text(SCENARIO)
    content = os.urandom(100_000)
    (tmp_path / "ann/work/deep").mkdir(parents=True)
    (tmp_path / "ann/work/deep/file").write_bytes(content)
    for name, files in (("one", ""), ("two", "workdir: work")):
        (tmp_path / f"ann/{name}.yaml").write_text(TASK.format(name=name, files=files))
    with ExitStack() as stack:
        store = stack.enter_context(postgres_server()).new_store()
        google = stack.enter_context(SimulatedGoogle(tmp_path / "cloud"))
        more = {**google.env, **name_server(store, make_servers_key(tmp_path), "ann"), "MARKS": str(marks)}
        ann, bob = (Orch(tmp_path / name, more) for name in ("ann", "bob"))
        stack.callback(bob, "down", "mine")
        for name in ("one", "two"):
            ann.ok("launch", f"{name}.yaml", "--detach", "--yes", "--env", "MARKS")
        bob.ok("exec", "mine", "--", "true")  # a computer of the team: it has been let in
        _lose(ann)
        engine = bob.start("serve", "--engine-only", "--until-idle")
        try:
            (marks / "one-may-end").touch()
            until("the queued job runs", (marks / "two-1").exists)
            with google.cloud.open() as cloud:
                (name,) = [look.name for look in cloud.live() if look.phase is Phase.READY]
                cloud.do(name, Deed.PREEMPT)
            until("its second attempt runs", (marks / "two-2/deep/file").exists)
            (marks / "two-may-end").touch()
            until("it succeeds", lambda: _status(bob, 2) == 0)
            engine.wait(60)
        finally:
            engine.kill()
            engine.communicate()
    assert [(marks / f"two-{attempt}/deep/file").read_bytes() for attempt in (1, 2)] == [content, content]


def _lose(orch: Orch) -> None:
    """Kill the computer's engine and move its state folder away."""
    orch.kill_engines()
    shutil.move(orch.folder / "orch", orch.folder / "lost")
    shutil.rmtree(orch.folder / "work")


def _status(orch: Orch, number: int) -> int | None:
    jobs = json.loads(orch.ok("queue", "--all", "-o", "json"))["jobs"]
    (found,) = (job["status"] for job in jobs if job["id"] == number)
    return found if found is None else int(found)
