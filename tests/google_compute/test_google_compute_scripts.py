"""The scripts of the instances, checked by shellcheck and run for real, with a metadata server beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from compute_bench import KEYS
from test_google_startup import Metadata, metadata_server

from orchestrator.providers.google.startup import KEYS_PER_ENTRY, entries, pack_keys
from orchestrator.render.templates import render_template

END = "#!/usr/bin/env bash\n" + render_template("google/end-instance.sh.j2")


def startup(hosts: int) -> str:
    return render_template("google/startup-instance.sh.j2", hosts=hosts, keys_per_entry=KEYS_PER_ENTRY)


@dataclass(slots=True)
class Host:
    folder: Path
    data: Metadata

    @property
    def key(self) -> Path:
        return self.folder / "ssh" / "ssh_host_ed25519_key"

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "ORCH_METADATA_URL": f"{self.data.url}/computeMetadata/v1",
            "ORCH_SSH_FOLDER": str(self.folder / "ssh"),
            "ORCH_COMPUTE_API": f"{self.data.url}/compute/v1",
        }
        return subprocess.run(
            ["bash", "-s"], input=script, env=environment, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "ssh").mkdir()
    fake = tmp_path / "bin" / "systemctl"
    fake.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/systemctl.log\n')
    fake.chmod(0o700)
    with metadata_server() as data:
        for name, value in zip(entries(8), pack_keys(KEYS.host_private), strict=True):
            data.values[f"attributes/{name}"] = value
        data.values["name"] = "demo-1-w-003"
        data.values["attributes/agent-worker-number"] = "0"
        yield Host(tmp_path, data)


@pytest.mark.parametrize("script", [startup(1), startup(8), END])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not here")
    done = subprocess.run(["shellcheck", "-"], input=script, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_member_takes_the_key_of_its_name_and_tells_its_worker_number(host: Host) -> None:
    done = host.run(startup(8))
    assert done.returncode == 0, done.stderr
    assert host.key.read_text() == KEYS.host_private[2]
    assert host.key.stat().st_mode & 0o777 == 0o600
    assert host.data.put == {
        "guest-attributes/orch/worker-id": "0",
        "guest-attributes/hostkeys/ssh-ed25519": KEYS.host_public[2].split()[1],
    }
    assert (host.folder / "systemctl.log").read_text() == "restart ssh\n"
    assert "PRIVATE" not in done.stdout + done.stderr


def test_single_instance_takes_the_only_key_whatever_its_name(host: Host) -> None:
    host.data.values["name"] = "demo-17"
    assert host.run(startup(1)).returncode == 0
    assert host.key.read_text() == KEYS.host_private[0]


@pytest.mark.parametrize(
    ("tpu_env", "told"),
    [("WORKER_ID: '5'\n", "5"), ("TPU_WORKER_ID: '6'\nTOPOLOGY: '4x4'\n", "6"), ("TOPOLOGY: '4x4'\n", "2"), ("", "2")],
)
def test_worker_number_comes_from_the_tpus_environment_else_from_the_name(tpu_env: str, told: str, host: Host) -> None:
    del host.data.values["attributes/agent-worker-number"]
    host.data.values["attributes/tpu-env"] = tpu_env
    assert host.run(startup(8)).returncode == 0
    assert host.data.put["guest-attributes/orch/worker-id"] == told


@pytest.mark.parametrize(
    "change",
    [
        {"name": "demo-1-w-009"},
        {"name": "demo-1-w-000"},
        {"name": "demo"},
        {"attributes/orch-host-keys-0": "2:AAAA"},
        {"attributes/orch-host-keys-0": "0:AAAA"},
    ],
)
def test_what_is_wrong_fails_and_leaves_the_old_key(change: dict[str, str], host: Host) -> None:
    host.key.write_text("the old key")
    host.data.values |= change
    done = host.run(startup(8))
    assert done.returncode != 0
    assert host.key.read_text() == "the old key"
    assert "guest-attributes/hostkeys/ssh-ed25519" not in host.data.put


def test_host_ends_every_part_of_its_slice(host: Host) -> None:
    paths = [f"projects/p/zones/z/instanceGroupManagers/demo-1-s{index}" for index in (0, 1)]
    host.data.values["attributes/orch-resource"] = " ".join(paths)
    host.data.values["service-accounts/default/token"] = '{"access_token":"secret-1","expires_in":3599}'
    done = host.run(END)
    assert done.returncode == 0, done.stderr
    assert host.data.deleted == [(f"/compute/v1/{path}", "Bearer secret-1") for path in paths]
    del host.data.values["attributes/orch-resource"]
    assert host.run(END).returncode != 0
