"""A person's own machines are reached as their own `ssh` does it: configuration, agent, certificates, known_hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.own_ssh import SECRET, Person, run_program, ssh_agent
from support.sshd import Farm, sshd_farm

from orchestrator.errors import UserError
from orchestrator.hosts import Failure, ssh_argv
from orchestrator.providers.hosts.machines import OwnHost, parse_address
from orchestrator.providers.ssh_config import config_stamp
from orchestrator.remote.fleet import FleetResult
from orchestrator.remote.identities import public_blob


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    folder = tmp_path_factory.mktemp("own")
    run_program("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "authority"))
    with sshd_farm(folder / "farm", 3, extra=f"TrustedUserCAKeys {folder}/authority.pub\nMaxAuthTries 4") as farm:
        yield farm


@pytest.fixture
def person(tmp_path: Path, farm: Farm, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    for host in farm.hosts:
        (host.folder / "authorized_keys").write_text("")
    return Person(tmp_path / "home", farm)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Return what adds a key file to the agent of the environment."""
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    with ssh_agent(tmp_path) as add:
        yield add


def _home_of(farm: Farm, rank: int) -> str:
    return str(farm.hosts[rank].home)


def _outputs(result: FleetResult) -> list[str]:
    assert result.ok, [outcome.detail for outcome in result.failed]
    return [host.output.decode().strip() for host in result.hosts]


def test_name_of_the_ssh_configuration_is_reached_as_ssh_reaches_it(person: Person, farm: Farm) -> None:
    key = person.make_key("cluster")
    second = farm.hosts[1]
    person.configure(f"Host node*\n  HostName {second.ip}\n  Port {second.port}\n  IdentityFile ~/.ssh/cluster\n")
    assert _outputs(person.run(parse_address("node7"))) == [_home_of(farm, 1)]
    found = person.address(parse_address("node7"))
    assert (found.host, found.port, found.internal_ip) == (second.ip, second.port, second.ip)
    assert found.own is not None
    assert found.own.keys == (key,)


def test_task_wins_over_the_ssh_configuration(person: Person, farm: Farm) -> None:
    person.make_key("cluster")
    person.configure("Host *\n  Port 1\n  User other\n  IdentityFile ~/.ssh/none\n")
    me = farm.hosts[0].address.user
    written = person.host(0, user=me, key="~/.ssh/cluster")
    assert _outputs(person.run(written)) == [_home_of(farm, 0)]


def test_agent_alone_logs_in(person: Person, farm: Farm, agent: Callable[[Path], None]) -> None:
    key = person.make_key("work")
    agent(key)
    key.unlink()
    key.with_name("work.pub").unlink()
    everyone = [person.host(rank) for rank in range(3)]
    assert _outputs(person.run(*everyone)) == [_home_of(farm, rank) for rank in range(3)]


def test_public_key_names_the_one_of_the_agent(person: Person, farm: Farm, agent: Callable[[Path], None]) -> None:
    for number in range(5):  # more than the host allows to try
        agent(person.make_key(f"other{number}", authorized=False))
    key = person.make_key("work")
    agent(key)
    key.unlink()
    refused = person.run(person.host(0)).hosts[0].outcome
    assert refused.failure is Failure.AUTH
    assert "Too many authentication failures" in refused.detail
    assert "other0@laptop by the agent" in refused.detail
    assert _outputs(person.run(person.host(0, key="~/.ssh/work.pub"))) == [_home_of(farm, 0)]
    person.configure("Host *\n  IdentityFile ~/.ssh/work.pub\n  IdentitiesOnly yes\n")
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]


def test_identity_agent_of_the_configuration_signs(
    person: Person, farm: Farm, agent: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = person.make_key("work")
    agent(key)
    key.unlink()
    person.configure(f"Host *\n  IdentityAgent {os.environ['SSH_AUTH_SOCK']}\n")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]


def test_agent_that_ends_its_login_is_no_answer(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nowhere")
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.AUTH
    assert "there is no SSH key for" in outcome.detail
    assert "ssh-copy-id" in outcome.detail


def test_agent_that_does_not_answer_is_left_after_seconds(
    person: Person, farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.make_key("id_ed25519")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "deaf"))
    began = time.monotonic()
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / "deaf"))
        deaf.listen()
        assert _outputs(person.run(*(person.host(rank) for rank in range(3))))[0] == _home_of(farm, 0)
    assert time.monotonic() - began < 12, "it is asked once, for all hosts"


def test_passphrase_is_typed_once_for_all_hosts(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519", SECRET)
    person.answers = ["wrong", SECRET]
    ring, everyone = person.ring(), [person.host(rank) for rank in range(3)]
    assert _outputs(person.run(*everyone, ring=ring)) == [_home_of(farm, rank) for rank in range(3)]
    assert _outputs(person.run(*everyone, ring=ring)) == [_home_of(farm, rank) for rank in range(3)]
    assert len(person.questions) == 2, person.questions
    assert "id_ed25519 (wrong, again)" in person.questions[1]


@pytest.mark.parametrize("form", ["openssh", "PEM"])
def test_passphrase_that_no_one_gives_is_an_error_with_a_next_step(person: Person, form: str) -> None:
    key = person.ssh / "id_rsa"
    run_program(
        "ssh-keygen",
        "-q",
        "-t",
        "rsa",
        "-b",
        "2048",
        "-N",
        SECRET,
        *(["-m", form] if form == "PEM" else []),
        "-f",
        str(key),
    )
    outcome = person.run(*(person.host(rank) for rank in range(3))).hosts[0].outcome
    assert outcome.failure is Failure.AUTH
    assert f"the SSH key {key} has a passphrase" in outcome.detail
    assert f"ssh-add {key}" in outcome.detail
    assert len(person.questions) == 1, "asked for each host"


def test_agent_has_the_key_with_a_passphrase(person: Person, farm: Farm, agent: Callable[[Path], None]) -> None:
    agent(person.make_key("cluster", SECRET))
    person.configure("Host *\n  IdentityFile ~/.ssh/cluster\n")
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]
    assert not person.questions


def test_usual_key_with_a_passphrase_is_left_alone_while_another_is_there(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519", SECRET, authorized=False)
    run_program("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(person.ssh / "id_ecdsa"))
    (farm.hosts[0].folder / "authorized_keys").write_text((person.ssh / "id_ecdsa.pub").read_text())
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]
    assert not person.questions


def test_keys_are_tried_in_order_until_one_is_accepted(person: Person, farm: Farm) -> None:
    person.make_key("first", authorized=False)
    person.make_key("second")
    person.configure("Host *\n  IdentityFile ~/.ssh/first\n  IdentityFile ~/.ssh/second\n  IdentityFile ~/.ssh/gone\n")
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]


def test_refusal_names_the_keys_that_were_tried(person: Person) -> None:
    person.make_key("first", authorized=False)
    person.make_key("second", authorized=False)
    person.configure("Host *\n  IdentityFile ~/.ssh/first\n  IdentityFile ~/.ssh/second\n")
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.AUTH
    assert "it allows publickey; tried: " in outcome.detail
    assert ".ssh/first, " in outcome.detail
    assert ".ssh/second" in outcome.detail


@pytest.mark.parametrize("by_agent", [False, True])
def test_certificate_logs_in_where_the_key_itself_is_unknown(
    person: Person, farm: Farm, agent: Callable[[Path], None], by_agent: bool
) -> None:
    key = person.make_key("work", authorized=False)
    authority, user = farm.root.parent / "authority", farm.hosts[0].address.user
    run_program("ssh-keygen", "-q", "-s", str(authority), "-I", "me", "-n", user, str(key.with_name("work.pub")))
    if by_agent:
        agent(key)
        key.unlink()
        person.configure("Host *\n  IdentityFile ~/.ssh/work\n")
    else:
        certificate = key.with_name("work-cert.pub").rename(person.ssh / "elsewhere.pub")
        person.configure(f"Host *\n  IdentityFile ~/.ssh/work\n  CertificateFile {certificate}\n")
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]


def test_jump_host_of_the_configuration_leads_there(person: Person, farm: Farm) -> None:
    person.make_key("outer")
    person.make_key("inner")
    first, second = farm.hosts[:2]
    (first.folder / "authorized_keys").write_text((person.ssh / "outer.pub").read_text())
    (second.folder / "authorized_keys").write_text((person.ssh / "inner.pub").read_text())
    person.configure(
        f"Host gate\n  HostName {first.ip}\n  Port {first.port}\n  IdentityFile ~/.ssh/outer\n"
        f"Host inside\n  HostName {second.ip}\n  Port {second.port}\n  IdentityFile ~/.ssh/inner\n  ProxyJump gate\n"
    )
    output = _outputs(person.run(parse_address("inside"), command="echo $HOME $SSH_CONNECTION"))[0]
    assert output.startswith(f"{second.home} ")
    found = person.address(parse_address("inside"))
    assert found.jump is not None
    assert (found.jump.host, found.jump.port) == (first.ip, first.port)


def test_proxy_command_of_the_configuration_leads_there(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    first, second = farm.hosts[:2]
    person.configure(
        f"Host inside\n  HostName {second.ip}\n  Port {second.port}\n"
        f"  ProxyCommand ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i %d/.ssh/id_ed25519"
        f" -p {first.port} -W %h:%p {first.ip}\n"
    )
    assert _outputs(person.run(parse_address("inside"))) == [_home_of(farm, 1)]


def test_circle_of_jump_hosts_is_an_error(person: Person) -> None:
    person.configure("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(UserError, match="more than 8 jump hosts"):
        person.address(parse_address("a"))


@pytest.mark.parametrize("name", ["$(touch x)", "a;b", "`id`", "a b", "-oProxyCommand=x", "a\nb", "a'b"])
def test_name_that_a_shell_could_run_never_reaches_ssh(person: Person, name: str) -> None:
    person.configure(f'Match exec "touch {person.home}/ran-%n"\n  Port 1\nHost *\n  ProxyCommand touch %n\n')
    with pytest.raises(UserError, match="is not the address of a host"):
        person.address(OwnHost(host=name))
    with pytest.raises(UserError, match="is not the address of a host"):
        person.address(OwnHost(host="box", user=name))
    assert not list(person.home.glob("ran*"))


def test_broken_configuration_is_an_error_that_ssh_explains(person: Person) -> None:
    person.configure("Hots a\n")
    with pytest.raises(UserError, match="ssh cannot read its configuration for box") as caught:
        person.address(OwnHost(host="box"))
    assert "Bad configuration option: hots" in caught.value.why


# ---- known_hosts


def _key_of(farm: Farm, rank: int) -> str:
    key = farm.hosts[rank].address.host_key
    assert key is not None
    return " ".join(key.split()[:2])


def _know(person: Person, text: str) -> None:
    (person.ssh / "known_hosts").write_text(text)


@pytest.mark.parametrize("form", ["plain", "hashed", "pattern"])
def test_known_hosts_comes_first(person: Person, farm: Farm, form: str) -> None:
    person.make_key("id_ed25519")
    host = farm.hosts[0]
    name = f"[{host.ip}]:{host.port}" if form != "pattern" else f"other,[127.*]:{host.port},!other"
    _know(person, f"# mine\n{name} {_key_of(farm, 1)}\n")
    if form == "hashed":
        run_program("ssh-keygen", "-q", "-H", "-f", str(person.ssh / "known_hosts"))
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.IDENTITY
    assert "your known_hosts has SHA256:" in outcome.detail
    _know(person, f"a broken line\n{name} {_key_of(farm, 0)}\n")
    assert _outputs(person.run(person.host(0))) == [str(host.home)]
    assert f"mine-1-0 {_key_of(farm, 0)}\n" == person.pins.read_text()


def test_known_hosts_corrects_a_key_that_was_accepted_before(person: Person, farm: Farm) -> None:
    """A machine that was installed again: `ssh-keygen -R` and `ssh` are what people do."""
    person.make_key("id_ed25519")
    host = farm.hosts[0]
    person.pins.write_text(f"mine-1-0 {_key_of(farm, 1)}\n")
    assert person.run(person.host(0)).hosts[0].outcome.failure is Failure.IDENTITY
    _know(person, f"[{host.ip}]:{host.port} {_key_of(farm, 0)}\n")
    assert _outputs(person.run(person.host(0))) == [str(host.home)]
    assert f"mine-1-0 {_key_of(farm, 0)}\n" == person.pins.read_text()


def test_host_with_another_kind_of_key_than_the_known_one_is_refused(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    run_program("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(person.home / "other"))
    host, known = farm.hosts[0], (person.home / "other.pub").read_text()
    _know(person, f"[{host.ip}]:{host.port} {known}\r\n")
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.IDENTITY, outcome
    assert not person.pins.exists() or "mine-1-0" not in person.pins.read_text()


def test_jump_host_that_leads_to_another_machine_is_found_out(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    gate, meant, other = farm.hosts
    _know(person, f"[{meant.ip}]:{meant.port} {_key_of(farm, 1)}\n")
    person.configure(
        f"Host inside\n  HostName {meant.ip}\n  Port {meant.port}\n"
        f"  ProxyCommand ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i %d/.ssh/id_ed25519"
        f" -p {gate.port} -W {other.ip}:{other.port} {gate.ip}\n"
    )
    assert person.run(parse_address("inside")).hosts[0].outcome.failure is Failure.IDENTITY


def test_revoked_key_is_refused(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    _know(person, f"@revoked * {_key_of(farm, 0)}\n")
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.IDENTITY
    assert "marks as revoked" in outcome.detail


@pytest.mark.parametrize("marker", ["", "@revoked "])
def test_names_in_known_hosts_are_compared_without_their_case(person: Person, farm: Farm, marker: str) -> None:
    person.make_key("id_ed25519")
    host = farm.hosts[0]
    person.configure(f"Host box\n  HostName {host.ip}\n  Port {host.port}\n  HostKeyAlias GPU1.example\n")
    _know(person, f"{marker}GPU1.Example {_key_of(farm, 0 if marker else 1)}\n")
    assert person.run(parse_address("box")).hosts[0].outcome.failure is Failure.IDENTITY


def test_strict_configuration_refuses_an_unknown_host(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    person.configure("Host *\n  StrictHostKeyChecking yes\n")
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.IDENTITY
    assert "StrictHostKeyChecking yes" in outcome.detail
    _know(person, f"[{farm.hosts[0].ip}]:{farm.hosts[0].port} {_key_of(farm, 0)}\n")
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]


# ---- nothing is forwarded


def test_nothing_is_forwarded_whatever_the_configuration_says(
    person: Person, farm: Farm, agent: Callable[[Path], None]
) -> None:
    agent(person.make_key("id_ed25519"))
    person.configure("Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  RemoteForward 0 localhost:1\n  SendEnv HOME\n")
    ask = "echo ${SSH_AUTH_SOCK-none} ${DISPLAY-none}"
    assert _outputs(person.run(person.host(0), command=ask)) == ["none none"]
    done = subprocess.run(
        ssh_argv(person.address(person.host(0)), ask), capture_output=True, text=True, check=False, timeout=30
    )
    assert done.stdout.strip() == "none none", done.stderr


@pytest.mark.parametrize("passphrase", ["", SECRET])
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_public_half_of_a_key_file_is_read_without_its_passphrase(tmp_path: Path, kind: str, passphrase: str) -> None:
    path = tmp_path / "key"
    run_program("ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path))
    public = path.with_name("key.pub")
    expected = public_blob(public)
    public.unlink()
    assert expected is not None
    assert public_blob(path) == expected


# ---- files that are no keys, names that are no names


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o777])
def test_key_that_others_can_read_is_refused_as_ssh_refuses_it(person: Person, mode: int) -> None:
    key = person.make_key("id_ed25519")
    key.chmod(mode)
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.AUTH
    assert f"the SSH key {key} can be read by others" in outcome.detail
    assert f"chmod 600 {key}" in outcome.detail
    with pytest.raises(UserError, match="can be read by others"):
        person.ring().has_identity(person.address(person.host(0)))


def test_key_that_others_can_read_does_not_keep_the_next_one_from_use(person: Person, farm: Farm) -> None:
    person.make_key("open").chmod(0o644)
    person.make_key("closed")
    person.configure("Host *\n  IdentityFile ~/.ssh/open\n  IdentityFile ~/.ssh/closed\n")
    assert person.ring().has_identity(person.address(person.host(0)))
    assert _outputs(person.run(person.host(0))) == [_home_of(farm, 0)]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large file"])
@pytest.mark.parametrize("setting", ["IdentityFile", "CertificateFile", "RevokedHostKeys", "UserKnownHostsFile"])
def test_file_that_has_no_end_is_not_waited_for(person: Person, farm: Farm, kind: str, setting: str) -> None:
    person.make_key("id_ed25519")
    path = person.ssh / "odd"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "folder":
            path.mkdir()
        case _:
            path.write_bytes(b"A" * 3_000_000)
    person.configure(f"Host *\n  IdentityFile ~/.ssh/id_ed25519\n  {setting} {path}\n")
    began = time.monotonic()
    result = person.run(person.host(0))
    assert time.monotonic() - began < 5
    assert result.ok or (setting == "RevokedHostKeys" and kind != "large file"), result.hosts[0].outcome


@pytest.mark.parametrize("name", ["a..b", ".", "a" * 70 + ".example", "a" * 5000])
def test_name_that_no_server_of_names_takes_leads_nowhere(person: Person, name: str) -> None:
    person.make_key("id_ed25519")
    outcome = person.run(OwnHost(host=name)).hosts[0].outcome
    assert outcome.failure is Failure.UNREACHABLE
    assert "leads nowhere" in outcome.detail


def test_configuration_that_is_not_utf8_is_read(person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    text = f"Host box\n  HostName {farm.hosts[0].ip}\n  Port {farm.hosts[0].port}\nHost x\n  User m\xfcller\n"
    (person.ssh / "config").write_bytes(text.encode("latin-1"))
    assert _outputs(person.run(parse_address("box"))) == [_home_of(farm, 0)]
    assert person.address(parse_address("x")).user == "m\ufffdller"


def test_address_of_ipv6_with_a_scope() -> None:
    assert parse_address("me@[fe80::1%eth0]:2222") == OwnHost(host="fe80::1%eth0", user="me", port=2222)


# ---- when the configuration is read again


@pytest.mark.parametrize("written", ["more", "config.d/*", "~/.ssh/more", '"{ssh}/more" other', "=  outer"])
def test_stamp_changes_with_a_file_that_is_included(person: Person, written: str) -> None:
    (person.ssh / "config.d").mkdir()
    (person.ssh / "outer").write_text("Include more\n")
    person.configure(f"Host box\n\tinclude {written.format(ssh=person.ssh)}  # mine\n")
    for name in ("more", "config.d/one"):
        (person.ssh / name).write_text("Port 1\n")
    first = config_stamp()
    assert config_stamp() == first
    for name in ("more", "config.d/one"):
        (person.ssh / name).write_text("Port 22\n")
    assert config_stamp() != first


@pytest.mark.parametrize(
    "line", ["Match host a exec true", "match localnetwork 10.0.0.0/8", "CanonicalizeHostname yes"]
)
def test_stamp_of_a_configuration_that_depends_on_more_holds_for_one_process(person: Person, line: str) -> None:
    person.configure("Host a\n")
    print_stamp = "from orchestrator.providers.ssh_config import config_stamp; print(config_stamp())"
    assert run_program(sys.executable, "-c", print_stamp).strip() == config_stamp()
    person.configure(f"{line}\n")
    assert config_stamp() == config_stamp()
    assert run_program(sys.executable, "-c", print_stamp).strip() != config_stamp()


def test_file_that_includes_itself_ends(person: Person) -> None:
    person.configure("Include config\nInclude *\nInclude '\n")
    assert config_stamp()
