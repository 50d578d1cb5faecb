"""Real sshd hosts behind the nodes: reached at the endpoints that the API tells, with the keys of the metadata."""

from __future__ import annotations

import base64
import getpass
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from google.cloud import tpu_v2
from tpu_support import PARENT, Tpu, make_node, tpu_api

from orch_fronts.google.booting import BootingBodies
from orch_fronts.google.keys import with_keys
from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.providers.google.startup import render_startup
from orchestrator.providers.local import processes
from orchestrator.remote.keys import make_host_key, write_known_hosts
from orchestrator.simulator.bodies import LocalBodies
from orchestrator.simulator.scenario import Boot

BEGIN, END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"


def living(folder: Path) -> list[int]:
    """Processes with this folder on their command line."""
    found: list[int] = []
    for pid, process in processes.snapshot().items():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{folder}/" in command and not process.zombie and pid != os.getpid():
                found.append(pid)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for pid in living(tmp_path / "sim"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def packed(private: list[str]) -> str:
    """As the provider's start-up script reads it."""
    inner = ["".join(key.replace(BEGIN, "").replace(END, "").split()) for key in private]
    return ",".join(f"{rank}:{line}" for rank, line in enumerate(inner))


def on_host(host: HostAddress, command: str) -> subprocess.CompletedProcess[str]:
    argv = ssh_argv(host, command)
    argv[1:1] = ["-F", "none", "-o", "BatchMode=yes"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def addresses(folder: Path, node: tpu_v2.Node, public: list[str]) -> list[HostAddress]:
    """What a client makes of the endpoints; its keys are pinned, in worker order."""
    found = [
        HostAddress(
            rank=rank,
            alias=f"{node.name.rpartition('/')[2]}-{rank}",
            host=endpoint.access_config.external_ip or endpoint.ip_address,
            port=endpoint.port,
            user=getpass.getuser(),
            identity_file=folder / "id",
            known_hosts=folder / "known_hosts",
            internal_ip=endpoint.ip_address,
            host_key=public[rank],
        )
        for rank, endpoint in enumerate(node.network_endpoints)
    ]
    write_known_hosts(folder / "known_hosts", found)
    return found


def user_key(folder: Path) -> str:
    private, public = make_host_key()
    (folder / "id").touch(mode=0o600)
    (folder / "id").write_text(private)
    return f"{getpass.getuser()}:{public} somebody"


def two_hosts(folder: Path, tpu: Tpu, *, external: bool) -> tuple[list[str], tpu_v2.Node]:
    """A READY v4-16, which has two workers, and the public halves of the keys that were sent for them."""
    pairs = [make_host_key() for _ in range(2)]
    metadata = {"ssh-keys": user_key(folder), "orch-host-keys-0": packed([private for private, _ in pairs])}
    node = tpu.ready(
        accelerator_type="v4-16",
        runtime_version="tpu-ubuntu2204-base",
        metadata=metadata,
        network_config={"enable_external_ips": external},
    )
    return [public for _, public in pairs], node


@pytest.mark.parametrize("external", [False, True])
def test_two_workers_are_reached_at_the_endpoints_given_and_die_when_preempted(folder: Path, external: bool) -> None:
    with tpu_api(bodies=LocalBodies(folder / "sim")) as tpu:
        public, node = two_hosts(folder, tpu, external=external)
        assert [bool(each.access_config.external_ip) for each in node.network_endpoints] == [external] * 2
        hosts = addresses(folder, node, public)
        homes = [on_host(host, "pwd").stdout.strip() for host in hosts]
        assert [Path(home).parent.name for home in homes] == ["0", "1"], "worker order"
        asked = {"name": node.name, "query_path": "hostkeys/", "worker_ids": [""]}
        told = tpu.client.get_guest_attributes(asked).guest_attributes
        assert [each.query_value.items[0].value for each in told] == [key.split()[1] for key in public]
        tpu.cloud.preempt("demo-1", 1)
        assert tpu.state() == "PREEMPTED"
        assert eventually(lambda: not living(folder / "sim"))
        assert on_host(hosts[0], "true").returncode == 255
        tpu.client.delete_node(name=node.name)
        tpu.clock.advance(21)
        assert tpu.state() == "ABSENT"
        assert not list((folder / "sim").rglob("*home*"))


def test_hosts_boot_with_the_key_of_their_image_until_the_start_up_script_has_run(folder: Path) -> None:
    """The second worker is later; what runs is the script that orch sends."""
    pairs = [make_host_key() for _ in range(2)]
    public = [one for _, one in pairs]
    metadata = {
        "ssh-keys": user_key(folder),
        "orch-host-keys-0": packed([private for private, _ in pairs]),
        "startup-script": render_startup(2, 2),
    }
    bodies = BootingBodies(folder / "sim", Boot(delay=2.0, stagger=3.0))
    with tpu_api(bodies=bodies) as tpu:
        node = tpu.ready(
            accelerator_type="v4-16", runtime_version="tpu-ubuntu2204-base", metadata=metadata,
            network_config={"enable_external_ips": True},
        )  # fmt: skip
        hosts = addresses(folder, node, public)
        assert "Host key verification failed" in on_host(hosts[0], "true").stderr
        assert told_keys(tpu, node) == [[], []]
        assert eventually(lambda: told_keys(tpu, node)[0] == [public[0].split()[1]])
        assert told_keys(tpu, node)[1] == [], "the second worker boots later"
        assert eventually(lambda: on_host(hosts[0], "true").returncode == 0)
        assert eventually(lambda: told_keys(tpu, node)[1] == [public[1].split()[1]])
        assert eventually(lambda: on_host(hosts[1], "true").returncode == 0)
        logs = [path.read_text() for path in (folder / "sim").rglob("console.log")]
        assert len(logs) == 2 and all("startup-script exit status 0" in text for text in logs)
        tpu.client.delete_node(name=node.name)
        assert eventually(lambda: not living(folder / "sim"))


def told_keys(tpu: Tpu, node: tpu_v2.Node) -> list[list[str]]:
    asked = {"name": node.name, "query_path": "hostkeys/", "worker_ids": [""]}
    told = tpu.client.get_guest_attributes(asked).guest_attributes
    return [[item.value for item in each.query_value.items] for each in told]


def test_wrong_host_key_is_noticed_by_the_client(folder: Path) -> None:
    with tpu_api(bodies=LocalBodies(folder / "sim")) as tpu:
        public, node = two_hosts(folder, tpu, external=True)
        crossed = addresses(folder, node, public[::-1])
        assert "Host key verification failed" in on_host(crossed[0], "true").stderr
        tpu.client.delete_node(name=node.name)
        assert eventually(lambda: not living(folder / "sim"))


def test_hosts_die_at_their_time_though_nobody_asks(folder: Path) -> None:
    with tpu_api(bodies=LocalBodies(folder / "sim")) as tpu:
        _, node = two_hosts(folder, tpu, external=False)
        tpu.cloud.preempt("demo-1", notice=30)
        assert living(folder / "sim")
        tpu.clock.advance(31)
        assert eventually(lambda: not living(folder / "sim"))
        tpu.client.delete_node(name=node.name)


def test_host_that_dies_by_itself_makes_its_node_useless(folder: Path) -> None:
    with tpu_api(bodies=LocalBodies(folder / "sim")) as tpu:
        _, node = two_hosts(folder, tpu, external=False)
        for pid in living(folder / "sim"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: tpu.state() == "PREEMPTED")
        assert not tpu.node().network_endpoints
        tpu.client.delete_node(name=node.name)


def test_each_slice_of_a_multislice_takes_its_share_of_the_keys(folder: Path) -> None:
    pairs = [make_host_key() for _ in range(2)]
    metadata = {"ssh-keys": user_key(folder), "orch-host-keys-0": packed([private for private, _ in pairs])}
    node = make_node(accelerator_type="v5litepod-8", metadata=metadata)
    with tpu_api(bodies=LocalBodies(folder / "sim")) as tpu:
        tpu.active(count=2, node=node)
        for index in range(2):
            shown = tpu.node(f"q-1-{index}")
            [host] = addresses(folder, shown, [pairs[index][1]])
            assert on_host(host, "echo in").stdout == "in\n"
        tpu.unqueue(force=True)
        assert eventually(lambda: not living(folder / "sim"))


def test_keys_are_found_however_they_are_sent() -> None:
    pairs = [make_host_key() for _ in range(4)]
    ways = [
        {"orch-host-keys-0": packed([private for private, _ in pairs])},
        {
            "orch-host-keys-0": ",".join(packed([private for private, _ in pairs]).split(",")[:2]),
            "orch-host-keys-1": ",".join(packed([private for private, _ in pairs]).split(",")[2:]),
        },
        {"startup-script": "#!/bin/sh\n" + "".join(f"cat <<E\n{private}E\n" for private, _ in pairs)},
    ]
    with tpu_api() as tpu:
        for number, metadata in enumerate(ways):
            tpu.ready(f"n{number}", metadata=metadata)
            asked = {"name": f"{PARENT}/nodes/n{number}"}
            told = tpu.client.get_guest_attributes(asked).guest_attributes
            blobs = [each.query_value.items[0].value for each in told]
            assert blobs == [public.split()[1] for _, public in pairs], metadata.keys()


def test_keys_that_do_not_fit_are_not_used() -> None:
    private, public = make_host_key()
    junk = base64.b64encode(b"no key at all").decode()
    with tpu_api() as tpu:
        for number, sent in enumerate((packed([private]), f"0:{junk},1:{junk},2:{junk},3:{junk}", "nothing")):
            tpu.ready(f"n{number}", metadata={"orch-host-keys-0": sent})
            keys = with_keys(tpu.cloud.live()[-1]).extra["keys"]["host_public"]
            assert len(keys) == 4
            assert public not in keys


def test_new_ssh_keys_let_in_at_once(folder: Path) -> None:
    with tpu_api(bodies=LocalBodies(folder / "sim")) as tpu:
        public, node = two_hosts(folder, tpu, external=False)
        host = addresses(folder, node, public)[0]
        metadata = {**node.metadata, "ssh-keys": user_key(folder)}  # another pair, in place of the first
        assert on_host(host, "true").returncode == 255
        tpu.client.update_node(node={"name": node.name, "metadata": metadata}, update_mask={"paths": ["metadata"]})
        assert eventually(lambda: on_host(host, "true").returncode == 0)
        tpu.client.delete_node(name=node.name)
        assert eventually(lambda: not living(folder / "sim"))
