"""The way to a host: straight, through IAP's tunnel as the real gcloud makes it, and through jump hosts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from access_support import GCLOUD, PROJECT
from iap_service import IapService, iap_service
from support.gcloud import gcloud_settings
from support.sshd import Farm, sshd_farm

from orchestrator.errors import UserError
from orchestrator.hosts import Failure, HostAddress
from orchestrator.providers.google.access import Access, Way
from orchestrator.providers.google.iap import instance_names, proxy_command
from orchestrator.providers.google.reach import reached
from orchestrator.remote.connect import Link, fabric_config
from orchestrator.remote.failures import HostFailure
from orchestrator.remote.fleet import Fleet
from orchestrator.remote.identities import KeyRing

ZONE = "us-west4-a"


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("farm"), 4) as farm:
        yield farm


def on_the_way(host: HostAddress, access: Access, instance: str = "") -> HostAddress:
    return reached(host, access, name="demo-1", instance=instance, project=PROJECT, zone=ZONE)


def test_a_host_is_reached_at_the_address_of_its_way(farm: Farm) -> None:
    host = replace(farm.addresses[0], host="203.0.113.1", internal_ip="10.0.0.1")
    assert on_the_way(host, Access(way=Way.EXTERNAL)) == host
    assert on_the_way(host, Access(way=Way.INTERNAL)) == replace(host, host="10.0.0.1")
    assert on_the_way(host, Access(way=Way.JUMP, jump="b@bastion")).host == "10.0.0.1"
    tunnelled = on_the_way(host, Access(way=Way.IAP), "t1v-n-0123abcd-w-0")
    assert tunnelled.host == "10.0.0.1"
    assert tunnelled.proxy == proxy_command("t1v-n-0123abcd-w-0", PROJECT, ZONE)


def test_two_jump_hosts_lead_to_a_slice(farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They let in the user's own key, not the one of the slice."""
    (tmp_path / ".ssh").mkdir()
    shutil.copy(farm.identity, tmp_path / ".ssh" / "id_ed25519")
    monkeypatch.setenv("HOME", str(tmp_path))
    inner, outer = farm.addresses[2:]
    hops = ",".join(f"{one.user}@{one.host}:{one.port}" for one in (outer, inner))
    known = tmp_path / "known_hosts"
    hosts = [on_the_way(replace(one, known_hosts=known), Access(way=Way.JUMP, jump=hops)) for one in farm.addresses[:2]]
    assert hosts[0].jump == hosts[1].jump
    assert hosts[0].jump is not None
    assert hosts[0].jump.identity_file == tmp_path / ".ssh" / "id_ed25519"
    with Fleet(hosts, deadline=20) as fleet:
        result = fleet.run("echo $ORCH_TEST_HOST", timeout=60)
    assert [host.output.decode().strip() for host in result.hosts] == [one.mark for one in farm.hosts[:2]]
    assert len(known.read_text().splitlines()) == 2  # of the two jump hosts, accepted once
    with pytest.raises(UserError, match="not the address of a host"):
        on_the_way(farm.addresses[0], Access(way=Way.JUMP, jump="me@@bastion"))


@dataclass
class Item:
    key: str
    value: str


@dataclass
class Values:
    items: list[Item]


@dataclass
class Worker:
    query_value: Values


def test_a_workers_instance_name_is_what_it_says_itself() -> None:
    workers = [
        Worker(Values([Item("ssh-ed25519", "AAAA"), Item("hostname", "t1v-n-0-w-0")])),
        Worker(Values([])),
        Worker(Values([Item("hostname", "t1v-n-0-w-2.us-west4-a.c.p.internal")])),
    ]
    assert instance_names(workers) == ("t1v-n-0-w-0", "", "t1v-n-0-w-2.us-west4-a.c.p.internal")


@pytest.mark.parametrize("name", ["", "-v", "a b", "a;b", "%h", "--zone=x", "A", "a\n", "$(id)"])
def test_a_name_that_is_none_never_gets_onto_a_command_line(name: str) -> None:
    with pytest.raises(ValueError, match="does not accept the name"):
        proxy_command(name, PROJECT, ZONE)


@pytest.fixture
def iap(farm: Farm, tmp_path: Path) -> Iterator[IapService]:
    workers = {f"t1v-n-0-w-{one.rank}": (one.host, one.port) for one in farm.addresses}
    with iap_service(workers, tmp_path) as service:
        yield service


@pytest.mark.skipif(GCLOUD is None, reason="gcloud is not installed")
class TestGcloud:
    """The real gcloud between the fleet and a stand-in for IAP that speaks its protocol."""

    @pytest.fixture(autouse=True)
    def surrounding(self, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in gcloud_settings(tmp_path_factory.mktemp("gcloud"), "http://127.0.0.1:1").items():
            monkeypatch.setenv(name, value)

    def hosts(self, farm: Farm, iap: IapService, names: list[str]) -> list[HostAddress]:
        """As for Google, but for the flags that lead gcloud to this computer."""
        flags = (f"--iap-tunnel-url-override={iap.url}", "--iap-tunnel-insecure-disable-websocket-cert-check")
        found = [on_the_way(one, Access(way=Way.IAP), name) for one, name in zip(farm.addresses, names, strict=False)]
        return [replace(one, proxy=(*one.proxy, *flags)) for one in found]

    def test_two_hosts_are_reached_through_the_tunnel(self, farm: Farm, iap: IapService) -> None:
        hosts = self.hosts(farm, iap, ["t1v-n-0-w-0", "t1v-n-0-w-1"])
        with Fleet(hosts, deadline=30) as fleet:
            result = fleet.run("echo $ORCH_TEST_HOST; cat", stdin=b"y" * 200_000, keep=1 << 20, timeout=60)
            assert result.ok, result.failed
        assert [one.output.split(b"\n")[0].decode() for one in result.hosts] == [one.mark for one in farm.hosts[:2]]
        assert all(one.output.endswith(b"y" * 200_000) for one in result.hosts)
        asked = sorted((one["instance"], one["port"], one["project"], one["zone"]) for one in iap.asked)
        assert asked == [(f"t1v-n-0-w-{one.rank}", str(one.port), PROJECT, ZONE) for one in hosts]

    def test_a_refusal_of_the_tunnel_is_told(self, farm: Farm, iap: IapService) -> None:
        (host,) = self.hosts(farm, iap, ["t1v-n-9-w-9"])
        with pytest.raises(HostFailure) as told:
            Link(host, KeyRing().identities(host), fabric_config()).transport(20)
        assert told.value.failure is Failure.UNREACHABLE
        assert told.value.detail.startswith("gcloud ended with status ")
        assert "4003: 'failed to connect to backend'" in told.value.detail
