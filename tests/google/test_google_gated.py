"""The ways to hosts: what is made before a slice, that nothing of it outlives the slice, and how hosts are led to."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from google.auth.credentials import AnonymousCredentials
from google_cases import PROJECT, candidate, keys, spec

from orch_fronts.google.server import TpuServer
from orchestrator.errors import AccessError, CapacityError, ConflictError
from orchestrator.hosts import HostAddress
from orchestrator.providers.google import session
from orchestrator.providers.google.access import SERVICE, Way
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.firewall import Firewall
from orchestrator.providers.google.gated import GATES, Gated, Machines
from orchestrator.providers.google.gates import Gate, Gates
from orchestrator.providers.google.oslogin import LOCAL_ACCOUNT
from orchestrator.providers.google.provider import open_provider
from orchestrator.simulator.access import InMemory
from orchestrator.simulator.clock import ManualClock
from orchestrator.simulator.scenario import Durations, Pool, Scenario, Zone
from orchestrator.slices import Request, SliceSpec, SliceState, SliceView
from orchestrator.values import Text

ZONE = "us-west4-a"
INSTALLATION = "mine"
USER_KEY = "ssh-ed25519 " + b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)).decode() + " me@here"


@dataclass
class World:
    server: TpuServer
    clock: ManualClock
    state: Path

    @property
    def provider(self) -> Gated:
        """As another command would have it."""
        return open_provider(self.state)

    @property
    def rules(self) -> list[str]:
        return [rule.name for rule in self.wall.owned(PROJECT)]

    @property
    def wall(self) -> Firewall:
        return Firewall(session.open_session(), wait_seconds=5.0)

    @property
    def gates(self) -> list[Gate]:
        return Gates(self.state / GATES).all()

    def create(self, of: SliceSpec) -> None:
        self.provider.create(of, replace(keys(of.candidate.hosts), user_public=USER_KEY))

    def disable(self, api: str) -> None:
        grants = self.server.guard.grants
        self.server.guard.grants = replace(grants, apis=grants.apis - {api})

    def gone(self, name: str) -> None:
        self.provider.end(name)
        self.clock.advance(60)
        assert self.provider.finish(name) == SliceView(state=SliceState.ABSENT)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    clock = ManualClock()
    pools = (Pool(zone=ZONE, accelerator="v5e", amount=64, market="on-demand", unit="chips"),)
    scenario = Scenario(zones=(Zone(ZONE, "us-west4"),), durations=Durations(jitter=0.0), pools=pools)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
    with TpuServer(InMemory(scenario, clock), project=PROJECT) as server:
        monkeypatch.setenv(session.ENDPOINT, server.url)
        yield World(server, clock, tmp_path)


def asked(name: str = "demo-1", token: str = "uid-1", **details: str) -> SliceSpec:
    labels = (("orch-installation", Text.of(INSTALLATION)), ("orch-cluster", Text.of("demo")))
    return replace(spec(candidate("v5litepod-8", **details), name=name, token=token), labels=labels)


def paths(world: World, method: str) -> list[str]:
    return [target.partition("?")[0] for verb, target, _ in world.server.requests if verb == method]


def bodies(world: World, what: str) -> list[dict[str, Any]]:
    return [json.loads(body) for verb, path, body in world.server.requests if verb == "POST" and what in path]


def test_a_rule_for_the_caller_alone_is_there_before_the_slice_and_gone_with_it(world: World) -> None:
    world.create(asked())
    posts = [path for path in paths(world, "POST") if "Guest" not in path]
    assert [path.rsplit("/", 1)[1] for path in posts] == ["firewalls", "nodes"]
    (body,) = [
        json.loads(body) for verb, path, body in world.server.requests if verb == "POST" and "/firewalls" in path
    ]
    assert body["sourceRanges"] == ["127.0.0.1/32"]
    (node,) = [json.loads(body) for verb, path, body in world.server.requests if verb == "POST" and "/nodes?" in path]
    assert body["targetTags"] == ["demo-1"] == node["tags"]
    assert world.rules == ["demo-1-ssh"]
    world.gone("demo-1")
    assert (world.rules, world.gates) == ([], [])


def test_on_a_network_of_ones_own_the_hosts_are_let_to_each_other(world: World) -> None:
    world.create(asked(network="own", ssh_cidr="203.0.113.0/24"))
    assert sorted(world.rules) == ["demo-1-peers", "demo-1-ssh"]
    world.gone("demo-1")
    assert world.rules == []


def test_without_a_firewall_compute_engine_is_never_asked(world: World) -> None:
    world.create(asked(firewall="none"))
    world.gone("demo-1")
    assert world.provider.owned(INSTALLATION) == ()
    assert not [target for _, target, _ in world.server.requests if target.startswith("/compute/")]


def test_a_slice_that_is_refused_leaves_no_rule(world: World) -> None:
    world.create(asked("full-1"))
    large = spec(candidate("v5litepod-128"), name="large-1", token="uid-2")
    world.create(large)
    world.clock.advance(60)
    assert world.provider.finish("large-1").state is SliceState.FAILED, "the stock-out is told after the request"
    world.gone("large-1")
    assert world.rules == ["full-1-ssh"]


def test_a_refusal_at_once_takes_the_rule_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    gated = world.provider

    def refused(*_: object) -> None:
        raise CapacityError("none there")

    monkeypatch.setattr(gated._inner, "create", refused)
    with pytest.raises(CapacityError):
        gated.create(asked(), keys(1))
    assert (world.rules, world.gates) == ([], [])


def test_a_refusal_while_the_ways_are_made_takes_back_what_was_made(world: World) -> None:
    world.disable("oslogin.googleapis.com")
    with pytest.raises(AccessError, match="OS Login"):
        world.create(asked(network="own", oslogin="yes"))
    assert len(bodies(world, "/firewalls")) == 2, "the rules were there before the key was refused"
    assert (world.rules, world.gates) == ([], [])
    assert world.provider.owned(INSTALLATION) == ()


def test_a_second_rule_that_is_somebody_elses_stays_and_the_first_goes(world: World) -> None:
    world.create(asked(token="theirs-1", network="own"))
    world.provider._inner.end("demo-1")
    world.clock.advance(60)
    world.wall.remove(
        Request(service=SERVICE, method="DELETE", target=f"projects/{PROJECT}/global/firewalls/demo-1-ssh"), "theirs-1"
    )
    Gates(world.state / GATES).drop("demo-1")  # as another installation's: nothing is known of it here
    with pytest.raises(ConflictError, match="demo-1-peers"):
        world.create(asked(token="ours-1", network="own"))
    assert (world.rules, world.gates) == (["demo-1-peers"], [])


def test_a_refusal_is_over_while_google_still_shows_the_rule(world: World) -> None:
    """As Compute Engine does: a delete is an operation, and until it is done the rule is there."""
    compute, late = world.server.front_of("/compute/v1/"), []

    class Slow:
        def handle(self, method: str, target: str, body: bytes = b"") -> dict[str, Any]:
            if method != "DELETE":
                return compute.handle(method, target, body)
            late.append(target)
            return {"name": "operation-1", "status": "RUNNING"}

    world.server._fronts = {**world.server._fronts, "/compute/v1/": Slow()}
    world.disable("oslogin.googleapis.com")
    with pytest.raises(AccessError, match="OS Login"):
        world.create(asked(oslogin="yes"))
    assert [target.partition("?")[0].rsplit("/", 1)[1] for target in late] == ["demo-1-ssh"]
    assert world.gates == []
    (left,) = world.provider.owned(INSTALLATION)
    assert (left.name, left.intent) == ("demo-1", "uid-1")


class Killed(BaseException):
    """The process ends here."""


def killed(*_: object) -> None:
    raise Killed


def test_a_name_taken_while_a_create_was_cut_off_leaves_no_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TpuApi, "create", killed)
        world.create(asked(firewall="none", oslogin="yes"))
    elsewhere = open_provider(world.state / "another's")
    elsewhere.create(asked(token="theirs-1", firewall="none"), keys(1))
    assert [gate.os_key for gate in world.gates] != [""]
    with pytest.raises(ConflictError):
        world.create(asked(firewall="none", oslogin="yes"))
    assert world.gates == []
    assert [path for path in paths(world, "DELETE") if "oslogin" in path]
    assert elsewhere.finish("demo-1").state is not SliceState.ABSENT


def test_a_conflict_with_our_own_slice_that_is_being_ended_closes_nothing(world: World) -> None:
    world.create(asked())
    world.provider._inner.end("demo-1")
    with pytest.raises(ConflictError, match="being ended"):
        world.create(asked())
    assert (world.rules, len(world.gates)) == (["demo-1-ssh"], 1)
    world.gone("demo-1")
    assert (world.rules, world.gates) == ([], [])


@pytest.mark.parametrize("verb", ["end", "create again"])
def test_what_a_killed_create_left_is_found_again(world: World, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    gated = world.provider
    monkeypatch.setattr(gated._inner, "create", killed)
    with pytest.raises(Killed):
        gated.create(asked(), keys(1))
    assert world.rules == ["demo-1-ssh"]
    world.provider.finish("demo-1")
    assert world.rules == ["demo-1-ssh"], "a look while the create may be under way closes nothing"
    if verb == "create again":
        world.create(asked())
        world.clock.advance(60)
        assert world.provider.finish("demo-1").state in (SliceState.CREATING, SliceState.READY)
        assert world.rules == ["demo-1-ssh"]
    world.gone("demo-1")
    assert (world.rules, world.gates) == ([], [])


def test_a_rule_whose_slice_and_record_are_gone_is_swept(world: World) -> None:
    world.create(asked())
    (gate,) = world.gates
    world.provider._inner.end("demo-1")
    world.clock.advance(60)
    Gates(world.state / GATES).drop(gate.name)
    (left,) = world.provider.owned(INSTALLATION)
    assert (left.name, left.cluster, left.intent) == ("demo-1", "demo", "uid-1")
    assert world.provider.owned("another's") == ()
    world.provider.end("demo-1")
    assert world.rules == []


def test_a_rule_of_somebody_else_stays_and_no_slice_is_made(world: World) -> None:
    world.create(asked(firewall="none"))  # a name that is free; the rule's is not
    theirs = asked("other-1", token="theirs-1")
    world.create(theirs)
    (gate,) = world.gates
    Gates(world.state / GATES).drop(gate.name)  # as another installation's: nothing is known of it here
    world.provider._inner.end("other-1")
    world.clock.advance(60)
    with pytest.raises(ConflictError, match="firewall rule"):
        world.create(asked("other-1", token="ours-1"))
    assert world.rules == ["other-1-ssh"]
    assert world.provider.finish("other-1").state is SliceState.ABSENT


def test_by_os_login_no_key_is_in_the_metadata_and_the_profile_is_left_as_it_was(world: World) -> None:
    world.create(asked("one-1", oslogin="yes"))
    world.create(asked("two-1", token="uid-2", oslogin="yes"))
    assert world.provider.login_role(asked(oslogin="yes").candidate) == "roles/compute.osAdminLogin"
    assert world.provider.login_role(asked().candidate) == ""
    nodes = bodies(world, "/nodes?")
    assert [node["metadata"]["enable-oslogin"] for node in nodes] == ["TRUE", "TRUE"]
    assert not any("ssh-keys" in node["metadata"] for node in nodes)
    profile = f"/oslogin/v1/users/{LOCAL_ACCOUNT}".replace("@", "%40")
    deletes = [path for path in paths(world, "DELETE") if "oslogin" in path]
    assert len({gate.os_key for gate in world.gates}) == 1 and deletes == []
    world.gone("one-1")
    assert not [path for path in paths(world, "DELETE") if "oslogin" in path], "the other slice still needs the key"
    world.gone("two-1")
    (deleted,) = [path for path in paths(world, "DELETE") if "oslogin" in path]
    assert deleted.startswith(profile) or LOCAL_ACCOUNT in deleted


class Standing:
    """Machines of which only their addresses matter."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def observe(self, _: str, token: str = "") -> SliceView:
        return SliceView(state=SliceState.READY, hosts=tuple(host(rank) for rank in range(2)))

    def finish(self, name: str, token: str = "") -> SliceView:
        return self.observe(name, token)

    def instance_names(self, _: str) -> tuple[str, ...]:
        return self.names


def host(rank: int) -> HostAddress:
    return HostAddress(
        rank=rank,
        alias=f"a-{rank}",
        host=f"203.0.113.{rank}",
        port=22,
        user="orch",
        identity_file=Path("k"),
        known_hosts=Path("h"),
        internal_ip=f"10.0.0.{rank}",
        host_key="ssh-ed25519 A",
    )


def led(tmp_path: Path, way: Way, names: tuple[str, ...] = ("", ""), **more: Any) -> SliceView:
    gate = Gate(
        name="demo-1",
        token="t",
        project="my-project",
        zone=ZONE,
        way=way,
        jump=more.pop("jump", ""),
        rules=(),
        opened=True,
        **more,
    )
    Gates(tmp_path / GATES).put(gate)
    real = session.Session(AnonymousCredentials(), "my-project")  # not the loopback
    return Gated(cast(Machines, Standing(names)), real, tmp_path / GATES).finish("demo-1")


def test_hosts_are_led_to_by_the_way_that_was_chosen(tmp_path: Path) -> None:
    assert [one.host for one in led(tmp_path, Way.EXTERNAL).hosts] == ["203.0.113.0", "203.0.113.1"]
    assert [one.host for one in led(tmp_path, Way.INTERNAL).hosts] == ["10.0.0.0", "10.0.0.1"]
    jumped = led(tmp_path, Way.JUMP, jump="me@bastion.example").hosts
    assert {one.jump.host for one in jumped if one.jump} == {"bastion.example"} and len(jumped) == 2
    iap = led(tmp_path, Way.IAP, ("t1k-w-0", "t1k-w-1")).hosts
    assert ["t1k-w-1" in one.proxy and f"--zone={ZONE}" in one.proxy for one in iap] == [False, True]
    assert {one.user for one in led(tmp_path, Way.INTERNAL, user="me_example_com").hosts} == {"me_example_com"}


def test_a_host_that_has_not_said_its_name_is_waited_for(tmp_path: Path) -> None:
    for names in (("t1k-w-0", ""), ("t1k-w-0",)):
        view = led(tmp_path, Way.IAP, names)
        assert view.state is SliceState.CREATING and "IAP" in view.reason


def test_a_file_that_cannot_be_read_is_no_reason_to_forget_the_slice(tmp_path: Path) -> None:
    led(tmp_path, Way.INTERNAL)
    (tmp_path / GATES / "demo-1.json").write_text("{")
    real = session.Session(AnonymousCredentials(), "my-project")
    view = Gated(cast(Machines, Standing(())), real, tmp_path / GATES).finish("demo-1")
    assert view.state is SliceState.UNCLEAR and "demo-1" in view.reason


class Absent:
    """Machines that someone deleted by hand."""

    def observe(self, _: str, token: str = "") -> SliceView:
        return SliceView(state=SliceState.ABSENT)

    def finish(self, name: str, token: str = "") -> SliceView:
        return self.observe(name, token)


def test_observing_removes_no_rule_of_machines_deleted_by_hand(world: World) -> None:
    world.create(asked())
    gated = Gated(cast(Machines, Absent()), session.open_session(), world.state / GATES)
    view = gated.observe("demo-1")
    assert (view.state, view.due) == (SliceState.ENDING, True)
    assert (paths(world, "DELETE"), world.rules) == ([], ["demo-1-ssh"])
    assert gated.finish("demo-1").state is SliceState.ABSENT
    assert (world.rules, world.gates) == ([], [])
