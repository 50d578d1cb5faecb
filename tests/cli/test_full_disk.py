"""A full or read-only disk of this computer: machines that cost money are shown, and ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.orch_process import Orch, until

from orch_fronts.aws.cloud import SimulatedAws
from orch_fronts.google.cloud import SimulatedGoogle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCENARIO = "[durations]\ncreate = 0.2\nend = 0.2\ndetect = 0.2\ncontact = 0\n"
TASKS = {
    "aws": 'name: paid\nresources: {accelerators: "H100:1", infra: aws/us-east-1}\nrun: echo done\n',
    "gcp": "name: paid\nresources: {accelerators: tpu-v5e-4, infra: gcp/us-west4/us-west4-a}\nrun: echo done\n",
}


def mount(*words: str) -> None:
    if subprocess.run(["mount", *words], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to mount a small file system")


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    """The folder of orch, which is a small disk."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "orch"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=4m", "none", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return


def living(cloud: SimulatedAws | SimulatedGoogle) -> list[str]:
    with cloud.cloud.open() as inside:
        return [look.name for look in inside.live()]


@pytest.mark.parametrize("disk", ["full", "read-only"])
@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_down_ends_the_machines_although_nothing_can_be_recorded(
    tmp_path: Path, state: Path, name: str, disk: str
) -> None:
    place = tmp_path / "cloud"
    place.mkdir()
    (place / "scenario.toml").write_text(SCENARIO)
    (tmp_path / "paid.yaml").write_text(TASKS[name])
    with SimulatedAws(place) if name == "aws" else SimulatedGoogle(place) as cloud:
        orch = Orch(tmp_path, {**cloud.env, "ORCH_PROJECT": "vision"})
        if name == "aws":
            orch.ok("config", "set", "aws.instance_profile", "orch-host")
        orch.ok("launch", "paid.yaml", "--yes")
        assert len(living(cloud)) == 1
        if disk == "full":
            fill(state)
        else:
            mount("-o", "remount,ro", str(state))
        assert "paid" in orch.ok("status")
        assert "done" in orch.ok("logs", "paid")
        done = orch("down", "paid", *(("-o", "json") if disk == "read-only" else ()))
        assert living(cloud) == [], done.stderr
        assert done.returncode == 1, "the record is open"
        assert "are deleted, and that could not be recorded" in done.stderr
        assert "any command records it" in done.stderr and "Traceback" not in done.stderr
        if disk == "full":
            (state / "ballast").unlink()
        else:
            mount("-o", "remount,rw", str(state))
        blind = replace(
            orch,
            more={**orch.more, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "ORCH_GCP_ENDPOINT": "http://127.0.0.1:9"},
        )
        replace(blind, more={**blind.more, "ORCH_PROJECT": "default"})("reap", "--dry-run")
        assert "paid" not in blind.ok("status"), "recorded by the first command that can write, and no cloud is asked"
        assert "while the store could not be written" in blind.ok("events", "paid")


def test_down_of_a_killed_pipeline_ends_its_machines_on_a_full_disk(tmp_path: Path, state: Path) -> None:
    place = tmp_path / "cloud"
    place.mkdir()
    (place / "scenario.toml").write_text(SCENARIO)
    stages = [TASKS["gcp"].replace("paid", "first"), TASKS["gcp"].replace("echo done", "sleep 300")]
    (tmp_path / "pipe.yaml").write_text("---\n".join(["name: pipe\n", *stages]))
    with SimulatedGoogle(place) as cloud:
        orch = Orch(tmp_path, {**cloud.env})
        process = orch.start("launch", "pipe.yaml", "--yes")
        until("the second stage runs", lambda: "pipe-2" in (shown := orch.ok("status")) and "running" in shown)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        fill(state)
        done = orch("down", "pipe", "--yes")
        assert living(cloud) == [], done.stderr
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        (state / "ballast").unlink()
        orch.ok("down", "pipe", "--yes")
        assert json.loads(orch.ok("queue", "-o", "json"))["pipelines"] == []
        assert json.loads(orch.ok("status", "-o", "json"))["clusters"] == []
