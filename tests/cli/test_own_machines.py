"""Machines of one's own through the command line: what people meet first when a name, a port or a key is wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.orch_process import Orch, until
from support.own_ssh import SECRET, Person, ssh_agent
from support.sshd import Farm, sshd_farm

TASK = """\
name: mine
resources: {{infra: hosts, accelerators: cpu}}
num_nodes: 2
hosts: {{addresses: [{0}, {1}]}}
run: echo "hello of rank $ORCH_RANK"
"""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("own") / "farm", 2) as farm:
        yield farm


@pytest.fixture
def orch(tmp_path: Path) -> Orch:
    return Orch(tmp_path, {"SSH_AUTH_SOCK": ""})


@pytest.fixture
def person(tmp_path: Path, farm: Farm, orch: Orch) -> Iterator[Person]:
    """A person whose SSH configuration names the two machines `one` and `two`."""
    for host in farm.hosts:
        (host.folder / "authorized_keys").write_text("")
    person = Person(tmp_path, farm)
    person.configure(
        "".join(
            f"Host {name}\n  HostName {host.ip}\n  Port {host.port}\n"
            for name, host in zip(("one", "two"), farm.hosts, strict=True)
        )
    )
    write_task(tmp_path, "one", "two")
    yield person
    orch("down", "mine", "--yes", "--abandon")


def write_task(folder: Path, *addresses: str) -> None:
    (folder / "task.yaml").write_text(TASK.format(*addresses))


def deny(farm: Farm, rank: int) -> None:
    (farm.hosts[rank].folder / "authorized_keys").write_text("")


@pytest.mark.core
def test_names_of_the_ssh_configuration_are_enough(orch: Orch, person: Person) -> None:
    person.make_key("id_ed25519")
    shown = orch.ok("launch", "task.yaml", "--yes")
    assert "rank=1, " in shown
    assert "hello of rank 1" in shown
    home = orch.ok("ssh", "mine", "1", "--", "echo $HOME")
    assert home.strip() == str(person.farm.hosts[1].home)


def test_refused_port_fails_in_seconds_and_the_corrected_address_takes_effect(orch: Orch, person: Person) -> None:
    person.make_key("id_ed25519")
    write_task(orch.folder, "one", "127.0.0.1:1")
    began = time.monotonic()
    done = orch("launch", "task.yaml", "--yes")
    assert time.monotonic() - began < 60, "an own machine is not one that boots"
    assert done.returncode == 8, done.stderr
    assert "waiting for SSH on host 1 (nothing listens at 127.0.0.1 port 1)" in done.stderr
    assert "host 1 of 'mine' cannot be reached" in done.stderr
    assert "correct the address in the task file" in done.stderr
    write_task(orch.folder, "one", "two")
    corrected = orch("launch", "task.yaml", "--yes")
    assert corrected.returncode == 0, corrected.stderr
    assert "the task names other addresses for its hosts now" in corrected.stderr
    assert "hello of rank 1" in corrected.stdout


def test_corrected_ssh_configuration_takes_effect_at_once(orch: Orch, person: Person) -> None:
    person.make_key("id_ed25519")
    right = (person.ssh / "config").read_text()
    person.configure(right.replace(f"Port {person.farm.hosts[1].port}", "Port 1"))
    assert orch("launch", "task.yaml", "--yes").returncode == 8
    person.configure(right)
    assert "hello of rank 1" in orch.ok("launch", "task.yaml", "--yes")


def test_two_names_of_one_machine_are_refused_before_anything_is_recorded(orch: Orch, person: Person) -> None:
    person.make_key("id_ed25519")
    first = person.farm.hosts[0]
    write_task(orch.folder, "one", f"{first.ip}:{first.port}")
    done = orch("launch", "task.yaml", "--yes")
    assert done.returncode == 2, done.stderr
    assert "hosts 0 and 1 are the same machine" in done.stderr
    assert "hello" not in done.stdout + done.stderr


def test_broken_ssh_configuration_ends_a_command_instead_of_being_waited_for(orch: Orch, person: Person) -> None:
    person.make_key("id_ed25519")
    orch.ok("launch", "task.yaml", "--yes")
    config = orch.folder / ".ssh" / "config"
    well = config.read_text()
    config.write_text("Host one\n Bogus yes\n")
    done = orch("exec", "mine", "--", "true", timeout=30)
    assert done.returncode == 2 and "bogus" in done.stderr.lower(), done.stderr
    assert "queued" not in orch.ok("queue", "mine")
    config.write_text(well)
    assert "fine" in orch.ok("exec", "mine", "--", "echo", "fine")


def test_machine_that_accepts_no_key_is_named_at_once(orch: Orch, person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    deny(farm, 1)
    done = orch("launch", "task.yaml", "--yes")
    assert done.returncode == 4, done.stderr
    assert "host 1 of 'mine' accepted no SSH key" in done.stderr
    assert "refused the key for user" in done.stderr
    assert "orch check hosts FILE" in done.stderr


def test_key_with_a_passphrase_makes_no_record_where_no_one_can_type_it(orch: Orch, person: Person) -> None:
    key = person.make_key("id_ed25519", SECRET)
    for words in (("--yes",), ("--yes", "-d")):
        done = orch("launch", "task.yaml", *words)
        assert done.returncode == 2, done.stderr
        assert f"the SSH key {key} has a passphrase" in done.stderr
        assert f"ssh-add {key}" in done.stderr
    assert "no clusters" in orch("status").stderr


def test_agent_serves_the_engine_in_the_background(orch: Orch, person: Person, tmp_path: Path) -> None:
    key = person.make_key("id_ed25519", SECRET)
    (tmp_path / "socket").mkdir()
    with ssh_agent(tmp_path / "socket") as add:
        add(key)
        by_agent = Orch(orch.folder, {"SSH_AUTH_SOCK": str(tmp_path / "socket" / "agent")})
        by_agent.ok("launch", "task.yaml", "--yes", "-d")
        assert "hello of rank 1" in by_agent.ok("logs", "mine", "--follow")


def test_passphrase_is_typed_once_and_down_works_without_it(orch: Orch, person: Person) -> None:
    person.make_key("id_ed25519", SECRET)
    status, shown = on_terminal(orch, ["launch", "task.yaml", "--yes"], ["wrong", SECRET])
    assert status == 0, shown
    assert "hello of rank 0" in shown
    assert shown.count("passphrase of ") == 2, "the wrong one, and the right one for both hosts and all connections"
    assert SECRET not in shown
    done = orch("down", "mine", "--yes")
    assert done.returncode == 0, done.stderr
    assert "no clusters" in orch("status").stderr


def test_down_does_not_forget_a_program_that_it_could_not_stop(orch: Orch, person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    task = (orch.folder / "task.yaml").read_text()
    (orch.folder / "task.yaml").write_text(task.replace("run: echo", "run: sleep 600; echo"))
    orch.ok("launch", "task.yaml", "--yes", "-d")
    until("the program runs", lambda: "running" in orch.ok("status"))
    allowed = (farm.hosts[1].folder / "authorized_keys").read_text()
    deny(farm, 1)
    done = orch("down", "mine", "--yes")
    assert done.returncode == 8, done.stderr
    assert "the program of 'mine' may still run on host 1" in done.stderr
    assert "orch down mine --abandon" in done.stderr
    assert "mine" in orch.ok("status")
    (farm.hosts[1].folder / "authorized_keys").write_text(allowed)
    orch.ok("down", "mine", "--yes")
    until("what ended it has ended, too", lambda: not farm.hosts[1].user_pids())


def on_terminal(orch: Orch, words: list[str], answers: list[str]) -> tuple[int, str]:
    """Run a command on a terminal and answer the questions for a passphrase; return its status and what it showed."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(orch.folder)
        os.execve(sys.executable, [sys.executable, "-m", "orchestrator", *words], orch.env)
    shown, answered = b"", 0
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:  # Linux reports the end of the last process on a terminal so
            break
        shown += block
        if answers and re.search(rb"passphrase of [^\r\n]*: $", shown[answered:]):
            answered = len(shown)
            os.write(terminal, f"{answers.pop(0)}\n".encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


# ---- orch check hosts


def test_check_names_what_is_wrong_with_each_machine(orch: Orch, person: Person, farm: Farm) -> None:
    key = person.make_key("id_ed25519")
    good = orch("check", "hosts", "task.yaml")
    assert good.returncode == 0, good.stderr
    assert good.stdout.count("ok   hosts  host ") == 2
    assert f"port {farm.hosts[0].port}, key {key}; Linux " in good.stdout
    assert "its key is new: SHA256:" in good.stdout
    assert not list(orch.folder.rglob("*known_hosts*")), "a check keeps nothing"
    deny(farm, 0)
    write_task(orch.folder, "one", "127.0.0.1:1")
    found = json.loads(orch("check", "hosts", "task.yaml", "-o", "json").stdout)
    first, second = found["providers"][0]["findings"]
    assert "refused the key for user" in first["words"]
    assert first["fix"].startswith(f"ssh-copy-id -p {farm.hosts[0].port} ")
    assert second["words"].endswith("nothing listens at 127.0.0.1 port 1")
    assert (found["status"], second["status"]) == (4, 8)


def test_check_names_a_name_that_leads_nowhere(orch: Orch, person: Person) -> None:
    person.make_key("id_ed25519")
    write_task(orch.folder, "one", "no-such-name.invalid")
    shown = orch("check", "hosts", "task.yaml").stdout
    assert "the name no-such-name.invalid leads nowhere" in shown
    assert "correct the name" in shown and "Errno" not in shown


def test_check_compares_known_hosts(orch: Orch, person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    names = [f"[{host.ip}]:{host.port}" for host in farm.hosts]
    keys = [host.address.host_key or "" for host in farm.hosts]
    (person.ssh / "known_hosts").write_text(f"{names[0]} {keys[0]}\n{names[1]} {keys[0]}\n")
    done = orch("check", "hosts", "task.yaml")
    assert done.returncode == 9, done.stdout
    assert "key is new" not in done.stdout
    assert "your known_hosts has SHA256:" in done.stdout
    assert f"ssh-keygen -R '{names[1]}'" in done.stdout


def test_check_without_machines_says_how_to_name_them(orch: Orch, person: Person) -> None:
    assert "orch check hosts FILE" in orch("check", "hosts").stderr
    (orch.folder / "other.yaml").write_text("run: echo\n")
    done = orch("check", "hosts", "other.yaml")
    assert done.returncode == 2
    assert "other.yaml names none of your machines" in done.stderr
    assert "hosts: {addresses:" in done.stderr


def test_answer_of_a_machine_cannot_write_to_the_terminal(orch: Orch, person: Person, farm: Farm) -> None:
    person.make_key("id_ed25519")
    evil = "\\033]52;c;ZXZpbA==\\007\\033[2J"
    for host in farm.hosts:
        line = (person.ssh / "id_ed25519.pub").read_text()
        (host.folder / "authorized_keys").write_text(f"command=\"printf 'missing rm -rf\\n{evil}'\" {line}")
    done = orch("check", "hosts", "task.yaml")
    assert "\x1b" not in done.stdout and "\x07" not in done.stdout
    assert "52;c;ZXZpbA==" in done.stdout, done.stdout
    assert "rm -rf" not in done.stdout
