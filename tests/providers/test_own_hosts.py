"""The user's own machines: written down, reached, never touched."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provider_support import INSTALLATION, LocalWorld, make_keys, make_spec, on_host

from orchestrator.errors import CloudError, UserError
from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.providers.hosts.machines import OwnHost, from_details, parse_address, to_details
from orchestrator.providers.hosts.planner import PLANNER
from orchestrator.providers.hosts.provider import HostsProvider, open_provider
from orchestrator.slices import Candidate, Owned, SliceKeys, SliceSpec, SliceState
from orchestrator.task.model import UserHost


def _spec(*machines: OwnHost) -> SliceSpec:
    return make_spec(
        candidate=Candidate(
            provider="hosts",
            accelerator="cpu",
            hosts=len(machines),
            chips_per_host=0,
            market=Owned(),
            details=to_details(machines),
        )
    )


@pytest.fixture
def keys(tmp_path: Path) -> SliceKeys:
    return make_keys(tmp_path / "keys", 0)


@pytest.fixture
def provider(tmp_path: Path) -> HostsProvider:
    return open_provider(tmp_path / "state")


def _own(host: HostAddress) -> OwnHost:
    return OwnHost(host=host.host, user=host.user, port=host.port, key=str(host.identity_file))


def test_own_machines_are_reached_and_left_as_they_are(world: LocalWorld, provider: HostsProvider) -> None:
    machines = world.up()
    spec = _spec(*map(_own, machines))
    own_keys = replace(make_keys(world.folder / "own", 0), known_hosts=str(world.folder / "own_known_hosts"))
    provider.create(spec, own_keys)
    view = provider.observe(spec.name)
    assert view.state is SliceState.READY
    assert on_host(view.hosts[1], "pwd").stdout.strip() == str(world.host(1).home)
    assert "accept-new" in " ".join(ssh_argv(view.hosts[0]))
    provider.end(spec.name)
    assert provider.observe(spec.name).state is SliceState.ABSENT
    assert on_host(machines[1], "echo still here").stdout == "still here\n"


def test_changed_key_of_an_own_machine_is_refused_after_the_first_contact(
    world: LocalWorld, provider: HostsProvider
) -> None:
    first, second = map(_own, world.up())
    own_keys = replace(make_keys(world.folder / "own", 0), known_hosts=str(world.folder / "own_known_hosts"))
    provider.create(_spec(first), own_keys)
    (host,) = provider.observe("demo-1").hosts
    assert on_host(host, "echo ok").stdout == "ok\n"
    done = on_host(replace(host, host=second.host, port=second.port), "echo reached")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_own_machine_behind_a_jump_host_is_reached(world: LocalWorld, provider: HostsProvider) -> None:
    behind, jump = map(_own, world.up())
    own_keys = replace(make_keys(world.folder / "own", 0), known_hosts=str(world.folder / "own_known_hosts"))
    machine = replace(behind, jump=f"{jump.user}@{jump.host}:{jump.port}")
    provider.create(_spec(machine), own_keys)
    (host,) = provider.observe("demo-1").hosts
    assert host.jump is not None
    assert (host.jump.host, host.jump.port) == (jump.host, jump.port)
    done = on_host(host, "echo $SSH_CONNECTION")
    assert done.returncode == 0, done.stderr
    log = world.host(1).log.read_text()
    assert "Accepted publickey" in log, "the connection did not go through the jump host"


def test_several_hops_are_nested_in_order(provider: HostsProvider, keys: SliceKeys) -> None:
    machine = OwnHost(
        host="inner", user="me", key=keys.identity_file, jump="a@outer,b@middle:2222", internal_ip="10.0.0.7"
    )
    provider.create(_spec(machine), keys)
    (host,) = provider.observe("demo-1").hosts
    assert host.internal_ip == "10.0.0.7"
    middle = host.jump
    assert middle is not None
    assert (middle.user, middle.host, middle.port) == ("b", "middle", 2222)
    assert middle.jump is not None
    assert (middle.jump.user, middle.jump.host, middle.jump.port, middle.jump.jump) == ("a", "outer", 22, None)
    assert len({host.alias, middle.alias, middle.jump.alias}) == 3


def test_key_that_is_not_there_is_named_before_anything_is_recorded(provider: HostsProvider, keys: SliceKeys) -> None:
    with pytest.raises(UserError, match="/nowhere/key of host box"):
        provider.create(_spec(OwnHost(host="box", key="/nowhere/key")), keys)
    assert provider.observe("demo-1").state is SliceState.ABSENT


def test_without_a_key_the_usual_ones_are_tried_and_then_help_is_given(
    provider: HostsProvider, keys: SliceKeys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError, match="no SSH key for host box") as caught:
        provider.create(_spec(OwnHost(host="box")), keys)
    assert f"ssh-copy-id -i {keys.identity_file}.pub box" in caught.value.next_step
    usual = tmp_path / ".ssh" / "id_rsa"
    usual.parent.mkdir()
    usual.write_text("a key")
    usual.chmod(0o644)
    with pytest.raises(UserError, match="can be read by others"):
        provider.create(_spec(OwnHost(host="box")), keys)
    usual.chmod(0o600)
    provider.create(_spec(OwnHost(host="box")), keys)
    assert provider.observe("demo-1").hosts[0].identity_file == usual


def test_number_of_hosts_and_names_must_agree(provider: HostsProvider, keys: SliceKeys) -> None:
    spec = _spec(OwnHost(host="one", key=keys.identity_file))
    with pytest.raises(UserError, match="2 hosts are requested and 1 are named"):
        provider.create(replace(spec, candidate=replace(spec.candidate, hosts=2)), keys)


@pytest.mark.parametrize("jump", ["user@", "a b", "host:0", "host:70000", "-oProxyCommand=x", "u@-x"])
def test_jump_host_that_cannot_be_read_is_told_at_create(provider: HostsProvider, keys: SliceKeys, jump: str) -> None:
    with pytest.raises(UserError, match="is not the address of a host"):
        provider.create(_spec(OwnHost(host="one", key=keys.identity_file, jump=jump)), keys)
    assert provider.observe("demo-1").state is SliceState.ABSENT


def test_unreadable_note_is_unclear_and_never_absent(provider: HostsProvider, keys: SliceKeys, tmp_path: Path) -> None:
    provider.create(_spec(OwnHost(host="one", key=keys.identity_file)), keys)
    note = tmp_path / "state" / "hosts" / "demo-1.json"
    for bad in ("", "[]", '{"name": "demo-1"}'):
        note.write_text(bad)
        assert provider.observe("demo-1").state is SliceState.UNCLEAR
        with pytest.raises(CloudError, match="cannot be read"):
            provider.owned(INSTALLATION)
    provider.end("demo-1")
    assert provider.observe("demo-1").state is SliceState.ABSENT


def test_preview_names_the_machines_and_no_empty_field() -> None:
    request = PLANNER.create_request(_spec(OwnHost(host="one", user="me", port=2200), OwnHost(host="two")))
    assert request.body["hosts"] == [{"host": "one", "user": "me", "port": 2200}, {"host": "two"}]


names = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,20}", fullmatch=True)


@given(names, st.one_of(st.just(""), names), st.integers(1, 65535))
def test_written_address_is_read_back(host: str, user: str, port: int) -> None:
    prefix = f"{user}@" if user else ""
    assert parse_address(f"{prefix}{host}:{port}") == OwnHost(host=host, user=user, port=port)
    assert parse_address(f"{prefix}{host}") == OwnHost(host=host, user=user, port=0)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_user_error(text: str) -> None:
    try:
        found = parse_address(text)
    except UserError:
        return
    assert found.host
    assert not any(character.isspace() for character in found.host + found.user)


def test_ipv6_address_with_port_is_read() -> None:
    assert parse_address("me@[fe80::1]:2200") == OwnHost(host="fe80::1", user="me", port=2200)


@given(
    st.lists(st.builds(OwnHost, host=st.text(), user=st.text(), port=st.integers(1, 65535), jump=st.text()), min_size=1)
)
def test_details_carry_any_machine_unchanged(machines: list[OwnHost]) -> None:
    assert from_details(_spec(*machines).candidate) == tuple(machines)


def test_machines_of_a_task_file_are_understood() -> None:
    written = UserHost(host="box", user="me", port=2200, key="~/.ssh/k", jump="a@b:22", internal_ip="10.0.0.1")
    candidate = _spec(OwnHost(host="any")).candidate
    described = replace(candidate, details=(("hosts", json.dumps([written.model_dump()])),))
    assert from_details(described) == (
        OwnHost(host="box", user="me", port=2200, key="~/.ssh/k", jump="a@b:22", internal_ip="10.0.0.1"),
    )


def test_nothing_heavy_is_loaded_by_the_providers() -> None:
    import sys

    code = (
        "import sys, json\n"
        "from orchestrator.providers.local import provider, planner\n"
        "from orchestrator.providers.hosts import provider, planner\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    heavy = {"paramiko", "fabric", "obstore", "pydantic", "sqlalchemy", "rich", "jinja2", "cryptography", "yaml"}
    assert heavy.isdisjoint(json.loads(done.stdout))
