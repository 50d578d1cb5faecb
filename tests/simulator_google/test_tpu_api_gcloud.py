"""The real gcloud against the simulated TPU API, as a process over real sockets. Skipped where it is not installed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tpu_support import OTHER, PARENT, ZONE, Tpu, fault, tpu_api

from orch_fronts.google.server import PROJECT
from orchestrator.simulator.scenario import Durations, FaultKind, Pool
from orchestrator.task.parse import load_task_file

GCLOUD = shutil.which("gcloud")
AT_ONCE = Durations(create=0.0, end=0.0, stop=0.0, start=0.0, queue=0.0, jitter=0.0)
pytestmark = [pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed")]


def gcloud(tpu: Tpu, folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """In a surrounding in which it asks nobody but the server."""
    token = folder / "token"
    token.write_text("any")
    settings = {
        "CONFIG": str(folder / "config"),
        "CORE_PROJECT": PROJECT,
        "AUTH_ACCESS_TOKEN_FILE": str(token),
        "CORE_DISABLE_PROMPTS": "1",
        "CORE_DISABLE_USAGE_REPORTING": "true",
        "CORE_DISABLE_FILE_LOGGING": "true",
        "COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "SURVEY_DISABLE_PROMPTS": "true",
        "CORE_UNIVERSE_DOMAIN": "googleapis.com",
        "API_ENDPOINT_OVERRIDES_TPU": f"{tpu.server.url}/",
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")}
    environment |= {f"CLOUDSDK_{name}": value for name, value in settings.items()}
    argv = [str(GCLOUD), *shlex.split(command)]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=100, check=False)


def answer(tpu: Tpu, folder: Path, command: str) -> Any:
    """What it prints as JSON. The command must succeed."""
    done = gcloud(tpu, folder, f"{command} --format=json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


VM = "compute tpus tpu-vm"
QUEUE = "compute tpus queued-resources"
KIND = "--accelerator-type=v5litepod-16 --version=v2-alpha-tpuv5-lite"


def test_node_lives_its_life_by_gcloud(tmp_path: Path) -> None:
    with tpu_api() as tpu:
        created = gcloud(tpu, tmp_path, f"{VM} create t --zone={ZONE} {KIND} --labels=a=b --spot --async")
        assert created.returncode == 0, created.stderr
        assert [look.market for look in tpu.cloud.live()] == ["spot"]
        tpu.clock.advance(41)
        [listed] = answer(tpu, tmp_path, f"{VM} list --zone={ZONE}")
        node = answer(tpu, tmp_path, f"{VM} describe t --zone={ZONE}")
        assert listed == node
        assert (node["state"], node["labels"], node["name"]) == ("READY", {"a": "b"}, f"{PARENT}/nodes/t")
        assert len(node["networkEndpoints"]) == 4
        assert all(each["accessConfig"]["externalIp"] for each in node["networkEndpoints"]), "gcloud asks for them"
        assert answer(tpu, tmp_path, f"{VM} list --zone={OTHER}") == []
        stopped = gcloud(tpu, tmp_path, f"{VM} stop t --zone={ZONE}")
        assert stopped.returncode == 1
        assert "FAILED_PRECONDITION" in stopped.stderr
        assert gcloud(tpu, tmp_path, f"{VM} delete t --zone={ZONE} --async").returncode == 0
        tpu.clock.advance(21)
        gone = gcloud(tpu, tmp_path, f"{VM} describe t --zone={ZONE}")
        assert gone.returncode == 1
        assert "NOT_FOUND" in gone.stderr


@pytest.mark.slow
def test_gcloud_waits_for_operations_to_their_end(tmp_path: Path) -> None:
    with tpu_api(fault("create", FaultKind.NO_CAPACITY, 2), durations=AT_ONCE) as tpu:
        created = gcloud(
            tpu, tmp_path, f"{VM} create t --zone={ZONE} --version=v2-alpha-tpuv6e --accelerator-type=v6e-8"
        )
        assert created.returncode == 0, created.stderr
        assert tpu.state("t") == "READY"
        for verb, state in (("stop", "STOPPED"), ("start", "READY"), ("delete", "ABSENT")):
            done = gcloud(tpu, tmp_path, f"{VM} {verb} t --zone={ZONE}")
            assert (done.returncode, tpu.state("t")) == (0, state), done.stderr
        none = gcloud(tpu, tmp_path, f"{VM} create u --zone={ZONE} --version=v2-alpha-tpuv6e --accelerator-type=v6e-8")
        assert none.returncode == 1
        assert "no more capacity" in none.stderr


def test_queued_resource_lives_its_life_by_gcloud(tmp_path: Path) -> None:
    kind = "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite"
    with tpu_api() as tpu:
        command = (
            f"{QUEUE} create q --zone={ZONE} {kind} --node-count=2 --node-prefix=ms --spot --valid-until-duration=6h"
        )
        created = gcloud(tpu, tmp_path, f"{command} --async")
        assert created.returncode == 0, created.stderr
        tpu.clock.advance(120)
        [listed] = answer(tpu, tmp_path, f"{QUEUE} list --zone={ZONE}")
        assert listed["state"]["state"] == "ACTIVE"
        assert [spec["nodeId"] for spec in listed["tpu"]["nodeSpec"]] == ["ms-0", "ms-1"]
        refused = gcloud(tpu, tmp_path, f"{QUEUE} delete q --zone={ZONE} --async --quiet")
        assert refused.returncode == 1
        assert "FAILED_PRECONDITION" in refused.stderr
        deleted = gcloud(tpu, tmp_path, f"{QUEUE} delete q --zone={ZONE} --force --async --quiet")
        assert deleted.returncode == 0, deleted.stderr
        tpu.clock.advance(30)
        assert (tpu.queue_state("q"), tpu.cloud.live()) == ("ABSENT", ())


def test_gcloud_says_what_the_api_refuses(tmp_path: Path) -> None:
    with tpu_api(pools=(Pool(zone=ZONE, accelerator="v5e", amount=0),)) as tpu:
        for options, words in (
            (f"--zone={ZONE} --accelerator-type=v5litepod-12 --version=v2-alpha-tpuv5-lite", "INVALID_ARGUMENT"),
            (f"--zone={ZONE} --accelerator-type=v5litepod-8 --version=tpu-vm-v5-lite", "INVALID_ARGUMENT"),
            (f"--zone=us-nowhere1-a {KIND}", "PERMISSION_DENIED"),
        ):
            refused = gcloud(tpu, tmp_path, f"{VM} create t {options} --async")
            assert refused.returncode == 1, options
            assert words in refused.stderr, refused.stderr


def test_gcloud_lists_zones_and_types(tmp_path: Path) -> None:
    with tpu_api() as tpu:
        zones = answer(tpu, tmp_path, "compute tpus locations list")
        assert {each["locationId"] for each in zones} == {ZONE, OTHER}
        types = answer(tpu, tmp_path, f"compute tpus accelerator-types list --zone={ZONE}")
        assert "v5litepod-16" in {each["type"] for each in types}


def test_gcloud_alpha_asks_for_flex_start(tmp_path: Path) -> None:
    kind = "--accelerator-type=v6e-8 --runtime-version=v2-alpha-tpuv6e --node-id=n"
    with tpu_api() as tpu:
        flex = "--provisioning-model=flex-start --max-run-duration=4h --valid-until-duration=10m"
        created = gcloud(tpu, tmp_path, f"alpha {QUEUE} create q --zone={ZONE} {kind} {flex} --async")
        assert created.returncode == 0, created.stderr
        tpu.clock.advance(60)
        assert [look.market for look in tpu.cloud.live()] == ["flex-start"]


def test_the_line_of_the_page_about_own_machines_prints_hosts_that_orch_reads(tmp_path: Path) -> None:
    """The task file of docs/hosts.md with the addresses that its line prints."""
    page = (Path(__file__).parents[2] / "docs" / "hosts.md").read_text()
    (line,) = re.findall(r"^gcloud (.* describe theirs .*)$", page, re.MULTILINE)
    (task,) = re.findall(r"^# theirs.yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    with tpu_api() as tpu:
        network = {"enable_external_ips": True}
        node = tpu.ready("theirs", accelerator_type="v5litepod-16", network_config=network)
        done = gcloud(tpu, tmp_path, line)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "theirs.yaml"
    file.write_text(re.sub(r"(    - \{host: .*\n)+", lambda _: done.stdout, task))
    hosts = load_task_file(str(file), env={}).only.hosts
    expected = [(one.access_config.external_ip, one.ip_address) for one in node.network_endpoints]
    assert [(one.host, one.internal_ip) for one in hosts] == expected and len(expected) == 4
