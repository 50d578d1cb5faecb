"""The keys of machines of one's own outlive clusters: a changed one is refused, a new one gets no secrets unseen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support.orch_process import Orch
from support.own_ssh import Person, run_program
from support.postgres import postgres_server
from support.sshd import Farm, sshd_farm

TASK = """\
name: mine
resources: {infra: hosts, accelerators: cpu}
num_nodes: 1
hosts: {addresses: [one]}
run: echo "hello of rank $ORCH_RANK"
"""
SECRET_TASK = TASK + "secrets: {TOKEN: sesame}\n"
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    with sshd_farm(tmp_path / "farm", 1) as farm:
        yield farm


@pytest.fixture
def orch(tmp_path: Path) -> Orch:
    return Orch(tmp_path, {"SSH_AUTH_SOCK": ""})


@pytest.fixture
def person(tmp_path: Path, farm: Farm, orch: Orch) -> Iterator[Person]:
    """A person whose machine `one` accepts their key; what arrives there is in `$HOME` of the host."""
    person = Person(tmp_path, farm)
    person.make_key("id_ed25519")
    name_machine(person)
    (tmp_path / "task.yaml").write_text(TASK)
    yield person
    orch("down", "mine", "--yes", "--abandon")


def name_machine(person: Person, more: str = "") -> None:
    host = person.farm.hosts[0]
    person.configure(f"Host one\n  HostName {host.ip}\n  Port {host.port}\n{more}")


def fingerprint_of(farm: Farm) -> str:
    """The fingerprint that the machine presents now, by ssh-keygen."""
    return run_program("ssh-keygen", "-lf", str(farm.hosts[0].folder / "host_key")).split()[1]


def take_over(farm: Farm) -> tuple[str, str]:
    """Let another machine answer at the address, and return the fingerprints: the earlier one, and its own."""
    before = fingerprint_of(farm)
    farm.hosts[0].change_host_key()
    return before, fingerprint_of(farm)


def assert_refused(done: CompletedProcess[str], before: str, after: str) -> None:
    assert done.returncode == 9, done.stderr
    assert f"presented {after} (ssh-ed25519), pinned since 20" in done.stderr
    assert f": {before} (ssh-ed25519)" in done.stderr
    assert f"orch check hosts FILE --accept-host-key {after}" in done.stderr
    assert "hello" not in done.stdout


def test_another_key_on_the_address_is_refused_after_down(orch: Orch, person: Person, farm: Farm) -> None:
    first = orch("launch", "task.yaml", "--yes")
    assert first.returncode == 0, first.stderr
    assert f"{fingerprint_of(farm)} (ssh-ed25519) (it is new)" in first.stderr
    orch.ok("down", "mine", "--yes")
    before, after = take_over(farm)
    assert_refused(orch("launch", "task.yaml", "--yes"), before, after)
    orch("down", "mine", "--yes", "--abandon")
    assert_refused(orch("launch", "task.yaml", "--yes", "-c", "other"), before, after)
    orch.ok("events", "--verify")


def test_named_fingerprint_is_accepted_and_no_other(orch: Orch, person: Person, farm: Farm) -> None:
    orch.ok("launch", "task.yaml", "--yes")
    before, after = take_over(farm)
    looked = orch("check", "hosts", "task.yaml")
    assert looked.returncode == 9
    assert _FINGERPRINT.findall(looked.stdout) == [after, before, after]
    other = orch("check", "hosts", "task.yaml", "--accept-host-key", before)
    assert other.returncode == 9, other.stdout + other.stderr
    accepted = orch("check", "hosts", "task.yaml", "--accept-host-key", after)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert "its key is pinned since 20" in accepted.stdout
    assert after in accepted.stdout
    assert "hello of rank 0" in orch.ok("launch", "task.yaml", "--yes")
    assert orch.ok("ssh", "mine", "--", "echo", "in").strip() == "in"
    events = orch.ok("events", "-o", "json")
    assert "its fingerprint was named" in events
    assert f"{after} (ssh-ed25519) instead of {before} (ssh-ed25519)" in events
    orch.ok("events", "--verify")


def test_fingerprint_that_no_machine_presents_pins_nothing(orch: Orch, person: Person, farm: Farm) -> None:
    done = orch("check", "hosts", "task.yaml", "--accept-host-key", "SHA256:" + "A" * 43)
    assert done.returncode == 2, done.stderr
    assert "no machine presented SHA256:AAA" in done.stderr
    assert "its key is new" in orch.ok("check", "hosts", "task.yaml")


def test_named_fingerprint_sends_secrets_at_the_first_launch(orch: Orch, person: Person, farm: Farm) -> None:
    (orch.folder / "task.yaml").write_text(SECRET_TASK)
    orch.ok("check", "hosts", "task.yaml", "--accept-host-key", fingerprint_of(farm))
    assert "hello of rank 0" in orch.ok("launch", "task.yaml", "--yes")


def test_detached_launch_leaves_no_secrets_either(orch: Orch, person: Person, farm: Farm) -> None:
    (orch.folder / "task.yaml").write_text(SECRET_TASK)
    stopped = orch("launch", "task.yaml", "--yes", "-d")
    assert stopped.returncode == 9, stopped.stderr
    assert not sent(farm)
    orch.ok("launch", "task.yaml", "--yes", "-d")
    assert "hello of rank 0" in orch.ok("logs", "mine", "--follow")


def sent(farm: Farm) -> bool:
    """Whether the secret is in any file of the machine."""
    return any(b"sesame" in file.read_bytes() for file in farm.hosts[0].home.rglob("*") if file.is_file())


def test_secrets_are_not_sent_in_the_run_that_accepted_the_key(orch: Orch, person: Person, farm: Farm) -> None:
    (orch.folder / "task.yaml").write_text(SECRET_TASK + "setup: echo setting up\n")
    stopped = orch("launch", "task.yaml", "--yes")
    assert stopped.returncode == 9, stopped.stderr
    assert "the key of host 0 of 'mine' is new, so no secrets were sent" in stopped.stderr
    assert stopped.stderr.count(fingerprint_of(farm)) >= 2, "at the acceptance, and in the message"
    assert "the same command again" in stopped.stderr
    assert "hello" not in stopped.stdout
    assert not sent(farm)
    assert "hello of rank 0" in orch.ok("launch", "task.yaml", "--yes")
    assert "is new" not in orch("launch", "task.yaml", "--yes").stderr


def test_flag_confirms_new_keys_and_says_which(orch: Orch, person: Person, farm: Farm) -> None:
    (orch.folder / "task.yaml").write_text(SECRET_TASK)
    done = orch("launch", "task.yaml", "--yes", "--accept-host-key")
    assert done.returncode == 0, done.stderr
    assert f"{fingerprint_of(farm)} (ssh-ed25519) (--accept-host-key)" in done.stderr
    before, after = take_over(farm)
    assert_refused(orch("launch", "task.yaml", "--yes", "--accept-host-key"), before, after)
    assert orch("exec", "mine", "--secret", "TOKEN=sesame", "--accept-host-key", "--", "true").returncode == 9


def test_run_that_was_cut_off_after_the_acceptance_sends_no_secrets(orch: Orch, person: Person, farm: Farm) -> None:
    """The same command continues the same job: it is the run that accepted the key, in another process."""
    (orch.folder / "task.yaml").write_text(SECRET_TASK)
    cut = Orch(orch.folder, {**orch.more, "PYTHONPATH": str(orch.folder)})
    (orch.folder / "sitecustomize.py").write_text(_DIE_BEFORE_DECIDING)
    assert cut("launch", "task.yaml", "--yes").returncode == 137
    again = orch("launch", "task.yaml", "--yes")
    assert again.returncode == 9, again.stderr
    assert fingerprint_of(farm) in again.stderr
    assert not sent(farm)


_DIE_BEFORE_DECIDING = """
import os, sys
def die(frame, event, arg):
    if event == "call" and frame.f_code.co_name == "keep_host_pin":
        return ended
def ended(frame, event, arg):
    if event == "return":
        os._exit(137)
    return ended
import threading
threading.settrace(die); sys.settrace(die)
"""


def test_known_hosts_comes_before_the_pin_and_leaves_one(orch: Orch, person: Person, farm: Farm) -> None:
    host = farm.hosts[0]
    (orch.folder / "task.yaml").write_text(SECRET_TASK)
    known = person.ssh / "known_hosts"
    known.write_text(f"[{host.ip}]:{host.port} {host.address.host_key}\n")
    done = orch("launch", "task.yaml", "--yes")
    assert done.returncode == 0, done.stderr
    assert "is new" not in done.stderr
    orch.ok("down", "mine", "--yes")
    before, after = take_over(farm)
    refused = orch("launch", "task.yaml", "--yes")
    assert refused.returncode == 9, refused.stderr
    assert f"your known_hosts has {before}" in refused.stderr
    assert f"ssh-keygen -R '[{host.ip}]:{host.port}'; orch check hosts FILE --accept-host-key {after}" in refused.stderr
    known.unlink()
    assert_refused(orch("launch", "task.yaml", "--yes"), before, after)
    assert orch("check", "hosts", "task.yaml", "--accept-host-key", after).returncode == 0
    assert "hello of rank 0" in orch.ok("launch", "task.yaml", "--yes")


def test_name_of_host_key_alias_is_the_pin(orch: Orch, person: Person, farm: Farm) -> None:
    name_machine(person, "  HostKeyAlias rack/7\n")
    orch.ok("launch", "task.yaml", "--yes")
    orch.ok("down", "mine", "--yes")
    assert "@rack%2F7" in orch.ok("events")
    orch.ok("events", "--verify")
    before, after = take_over(farm)
    assert_refused(orch("launch", "task.yaml", "--yes"), before, after)


def test_program_behind_another_machine_is_not_forgotten(orch: Orch, person: Person, farm: Farm) -> None:
    (orch.folder / "task.yaml").write_text(TASK.replace("run: echo", "run: sleep 600; echo"))
    orch.ok("launch", "task.yaml", "--yes", "-d")
    before, after = take_over(farm)
    read = orch("logs", "mine")
    assert read.returncode == 9, read.stderr
    assert f"--accept-host-key {after}" in read.stderr
    assert_refused(orch("exec", "mine", "--", "true"), before, after)
    down = orch("down", "mine", "--yes")
    assert down.returncode == 8, down.stderr
    assert "the program of 'mine' may still run on host 0" in down.stderr
    assert f"--accept-host-key {after}" in down.stderr
    assert "mine" in orch.ok("status")


def test_machine_with_another_type_of_key_is_refused_with_both_fingerprints(
    orch: Orch, person: Person, farm: Farm
) -> None:
    orch.ok("launch", "task.yaml", "--yes")
    before, host = fingerprint_of(farm), farm.hosts[0]
    host.kill()
    (host.folder / "host_key").unlink()
    run_program("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", str(host.folder / "host_key"))
    host.start()
    refused = orch("launch", "task.yaml", "--yes")
    assert refused.returncode == 9, refused.stderr
    assert f"presented {fingerprint_of(farm)} (ssh-rsa), pinned since 20" in refused.stderr
    assert f": {before} (ssh-ed25519)" in refused.stderr
    assert orch("check", "hosts", "task.yaml", "--accept-host-key", fingerprint_of(farm)).returncode == 0
    assert "hello of rank 0" in orch.ok("launch", "task.yaml", "--yes")


def test_jump_host_has_a_pin_too(orch: Orch, person: Person, farm: Farm, tmp_path: Path) -> None:
    (orch.folder / "task.yaml").write_text(SECRET_TASK)
    with sshd_farm(tmp_path / "gate", 1) as gates:
        gate = gates.hosts[0]
        (gate.folder / "authorized_keys").write_text((person.ssh / "id_ed25519.pub").read_text())
        name_machine(person, f"  ProxyJump gate\nHost gate\n  HostName {gate.ip}\n  Port {gate.port}\n")
        stopped = orch("launch", "task.yaml", "--yes")
        assert stopped.returncode == 9, stopped.stderr
        why = stopped.stderr.partition("error[")[2]
        assert fingerprint_of(farm) in why
        assert fingerprint_of(gates) in why
        assert "hello of rank 0" in orch.ok("launch", "task.yaml", "--yes")
        assert orch.ok("ssh", "mine", "--", "echo", "in").strip() == "in"
        orch.ok("down", "mine", "--yes")
        before, after = take_over(gates)
        assert_refused(orch("launch", "task.yaml", "--yes"), before, after)


def test_flag_counts_for_every_stage_of_a_pipeline(orch: Orch, person: Person, farm: Farm) -> None:
    (orch.folder / "task.yaml").write_text(
        f"name: line\n---\n{SECRET_TASK}---\n{SECRET_TASK.replace('name: mine', 'name: other')}"
    )
    stopped = orch("launch", "task.yaml", "--yes")
    assert stopped.returncode == 9, stopped.stderr
    assert not sent(farm)
    forget_machine(orch)
    done = orch("launch", "task.yaml", "--yes", "--accept-host-key")
    assert done.returncode == 0, done.stderr
    assert "(--accept-host-key)" in done.stderr


def forget_machine(orch: Orch) -> None:
    """Begin with a new store."""
    for file in orch.state.glob("orch.db*"):
        file.unlink()


def test_ssh_and_cp_refuse_a_changed_key(orch: Orch, person: Person, farm: Farm) -> None:
    orch.ok("launch", "task.yaml", "--yes")
    _, after = take_over(farm)
    entered = orch("ssh", "mine", "--", "echo", "in")
    assert entered.returncode == 9, entered.stderr
    assert f"--accept-host-key {after}" in entered.stderr
    copied = orch("cp", "task.yaml", "mine:")
    assert copied.returncode == 9, copied.stderr
    assert f"--accept-host-key {after}" in copied.stderr


def test_two_computers_with_one_store_agree_on_one_key(tmp_path: Path, person: Person, farm: Farm, orch: Orch) -> None:
    """Each meets another machine at the address first, as behind a network that leads one of them astray."""
    with postgres_server() as server:
        store = {"ORCH_STORE": server.new_store(), "SSH_AUTH_SOCK": ""}
        here, there = (Orch(tmp_path, {**store, "ORCH_HOME": str(tmp_path / name)}) for name in ("here", "there"))
        first = here("launch", "task.yaml", "--yes", "-c", "first")
        assert first.returncode == 0, first.stderr
        before, after = take_over(farm)
        assert_refused(there("launch", "task.yaml", "--yes", "-c", "second"), before, after)
        assert there("check", "hosts", "task.yaml", "--accept-host-key", after).returncode == 0
        assert "hello of rank 0" in here.ok("launch", "task.yaml", "--yes", "-c", "first")
        for computer, name in ((here, "first"), (there, "second")):
            computer("down", name, "--yes", "--abandon")
        here.ok("events", "--verify")
