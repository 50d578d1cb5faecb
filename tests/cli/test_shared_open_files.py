"""An engine whose open files do not carry all clusters: the others wait, it says so, and it observes them later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until

from orchestrator.engine.unattended.shared_files import OF_CLUSTER
from orchestrator.open_files import OF_COMMAND, OF_HOST

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

HOSTS = 2
LIMIT = OF_COMMAND + OF_CLUSTER + OF_HOST * HOSTS + 10  # for one cluster
TASK = """\
name: {name}
resources: {{infra: local, accelerators: cpu}}
num_nodes: 2
run: until [ -e {gate} ]; do sleep 0.2; done
"""


@pytest.fixture
def orch(tmp_path: Path) -> Iterator[Orch]:
    orch = Orch(tmp_path, before=("prlimit", f"--nofile={LIMIT}:{LIMIT}", "--"))
    yield orch
    for name in ("first", "second"):
        orch("down", name, "--yes", timeout=170)
    orch.kill_engines()


def test_clusters_that_do_not_fit_are_named_and_observed_later(orch: Orch) -> None:
    gate = orch.folder / "gate"
    for name in ("first", "second"):
        (orch.folder / f"{name}.yaml").write_text(TASK.format(name=name, gate=gate))
        orch.ok("launch", f"{name}.yaml", "--yes", "--detach")
    log = orch.state / "engine.log"
    until(
        "the second is named", lambda: "the cluster is not observed now: its 2 hosts need 24" in log.read_text(), 60.0
    )
    assert "a defect" not in log.read_text()
    gate.touch()
    until("both have ended", lambda: orch.ok("queue", "--all").count("exit 0") == 2, 200.0)
