"""A limit on the hosts does to simulated machines what it does to real ones: they stop, or are deleted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EC2 = "infra: aws/us-east-1/us-east-1a, instance_type: t3.medium"
VM = "infra: gcp/us-central1/us-central1-a, instance_type: e2-standard-2"
SLICE = "infra: gcp/us-west4/us-west4-a, accelerators: v5litepod-16"
TPU = "infra: gcp/us-west4/us-west4-a, accelerators: v5litepod-4"


@contextmanager
def simulated(folder: Path, cloud: str) -> Iterator[Orch]:
    """Yield an orch whose cloud is the simulated one."""
    base = Orch(folder, {"TMPDIR": str(folder)})
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "simulate", cloud],
        stdout=subprocess.PIPE,
        text=True,
        env=base.env,
        cwd=folder,
    )
    assert process.stdout is not None
    try:
        env: dict[str, str] = {"TMPDIR": str(folder)}
        while "ORCH_HOME" not in env:
            name, _, value = process.stdout.readline().removeprefix("export ").strip().partition("=")
            env[name] = value.strip("'")
        yield Orch(folder, env)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def status(orch: Orch) -> dict[str, Any]:
    (found,) = json.loads(orch.ok("status", "mine", "--refresh", "-o", "json"))["clusters"]
    return dict(found)


@pytest.mark.parametrize(
    ("resources", "more", "ends_as"),
    [
        (f"{EC2}, autostop: 1", "", "stopped"),
        (f"{VM}, autostop: 1", "", "stopped"),
        (f"{TPU}, autostop: 1", "", "stopped"),
        # What is left of a slice, such as its SSH access, is "ending" until `orch down` removes it.
        (f"{SLICE}, autostop: 1", "", "ending"),
        # Terminated instances leave auxiliary resources, so the slice is "failed" until `orch down` ends those too.
        (EC2, "limits: {max_hours: 0.005}", "failed"),
    ],
)
def test_a_limit_on_the_hosts_stops_or_deletes_the_machines(
    tmp_path: Path, resources: str, more: str, ends_as: str
) -> None:
    if float(Path("/proc/uptime").read_text().split()[0]) < 600:
        pytest.skip("a timer ends nothing in the first ten minutes after a boot")
    (tmp_path / "t.yaml").write_text(f"name: mine\nresources: {{{resources}}}\nrun: echo done\n{more}\n")
    with simulated(tmp_path, "aws" if "aws" in resources else "gcp") as orch:
        orch.ok("launch", "t.yaml", "--yes")
        assert status(orch)["state"] == "ready"
        until(f"the machines are {ends_as}", lambda: status(orch)["state"] == ends_as, 200)
        assert ("orch down mine" in orch.ok("status", "mine")) == (ends_as != "stopped")
        if ends_as == "stopped":
            orch.ok("start", "mine", "--yes")
            orch.ok("exec", "mine", "--", "true")
        orch.ok("down", "mine", "--yes")
