"""A command of a session that no record has: it ends on all hosts where one of them cannot start it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.driving import Listener, fulfil, local_task

from orchestrator.engine.operations.session_command import run_in_session
from orchestrator.engine.preparation import commands
from orchestrator.engine.state.fences import fence_recorded_hosts
from orchestrator.engine.state.recorded import open_reader
from orchestrator.errors import HostError, OrchError
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.remote.host_folder import FORMAT
from orchestrator.remote.host_operations import SshHostOperations


def test_a_command_that_one_host_cannot_start_ends_on_the_others(home: Path, tmp_path: Path) -> None:
    alive, blocked = tmp_path / "alive", tmp_path / "blocked"
    # The host of rank 1 has a file where jobs have their folders.
    prepare = f'[ "$ORCH_RANK" = 0 ] || echo "${{ORCH_JOB_DIR%/*}}" > {blocked}'
    fulfil(commands.prepare_launch(local_task(2, run=prepare), cluster="c", after=TeardownPolicy.KEEP))
    program = f"while sleep 0.1; do echo $ORCH_RANK >> {alive}; done"
    ready = commands.prepare_exec("c", program, hosts=None, workdir=None)
    jobs = Path(blocked.read_text().strip())
    jobs.rename(jobs.with_name("former"))
    jobs.write_text("")
    with open_reader() as reader:
        record = reader.cluster("c")
        installation = reader.installation() or ""
    assert record is not None
    operations = SshHostOperations(record.hosts)
    try:
        with pytest.raises(HostError):
            run_in_session(ready, record.uid, installation, operations, Listener())
    finally:
        operations.close()
        jobs.unlink()
        jobs.with_name("former").rename(jobs)
    alive.write_text("")
    time.sleep(1)
    assert alive.read_text() == ""


def test_a_command_on_hosts_of_another_version_names_both(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    fulfil(
        commands.prepare_launch(
            local_task(1, run=f'echo "$ORCH_HOST_DIR" > {place}'), cluster="c", after=TeardownPolicy.KEEP
        )
    )
    (Path(place.read_text().strip()) / "format").write_text(f"{FORMAT + 1}\n")
    ready = commands.prepare_exec("c", f"touch {tmp_path}/ran", hosts=None, workdir=None)
    with open_reader() as reader:
        record = reader.cluster("c")
        assert record is not None
        operations, installation = SshHostOperations(fence_recorded_hosts(reader, record)), reader.installation()
    try:
        with pytest.raises(OrchError, match=f"version {FORMAT + 1}, and this orch uses version {FORMAT}") as refused:
            run_in_session(ready, record.uid, installation or "", operations, Listener())
    finally:
        operations.close()
    assert refused.value.code == "host-version" and not (tmp_path / "ran").exists()
