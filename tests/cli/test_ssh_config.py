"""`orch ssh-config`: which names hosts get, and what becomes of a person's own configuration."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.state.ssh_aliases import Alias, format_ssh_config, list_aliases
from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress, OwnSsh, ssh_argv
from orchestrator.store.records import ClusterRecord
from orchestrator.store.store import Store

Orch = Callable[..., Any]

HOST = HostAddress(
    rank=0, alias="a-1.0", host="192.0.2.1", port=2200, user="me", identity_file=Path("/k/id"),
    known_hosts=Path("/k/known"), internal_ip="10.0.0.1", host_key="ssh-ed25519 AAAA",
)  # fmt: skip
JUMP = replace(HOST, alias="jump.0", host="192.0.2.9", known_hosts=Path("/k %d/known"))


def cluster(name: str, hosts: int, project: str = "default") -> ClusterRecord:
    return ClusterRecord(
        uid=f"{project}/{name}", name=name, created=0, desired_state="up", host_contents="", summary="", last_state="",
        last_seen=0, project=project,
        hosts=tuple(replace(HOST, rank=rank, alias=f"{project}.{name}.{rank}") for rank in range(hosts)),
    )  # fmt: skip


def names(*records: ClusterRecord) -> dict[str, tuple[str, ...]]:
    return {alias.host.alias: alias.names for alias in list_aliases(records)}


def test_a_head_has_the_name_of_its_cluster() -> None:
    assert names(cluster("mine", 2), cluster("stopped", 0)) == {
        "default.mine.0": ("mine", "mine-0"),
        "default.mine.1": ("mine-1",),
    }


def test_a_cluster_keeps_its_name_against_a_host_of_another() -> None:
    found = names(cluster("mine", 3), cluster("mine-1", 1))
    assert found["default.mine-1.0"] == ("mine-1", "mine-1-0")
    assert "default.mine.1" not in found and found["default.mine.2"] == ("mine-2",)


def test_clusters_of_other_projects_have_its_name_before_theirs() -> None:
    found = names(
        cluster("a", 1), cluster("a", 1, "x"), cluster("b", 1, "x"), cluster("c", 1, "x"), cluster("c", 1, "y")
    )
    assert found == {
        "default.a.0": ("a", "a-0"),
        "x.a.0": ("x.a", "x.a-0"),
        "x.b.0": ("b", "x.b", "b-0", "x.b-0"),
        "x.c.0": ("x.c", "x.c-0"),
        "y.c.0": ("y.c", "y.c-0"),
    }


def test_no_name_is_given_twice() -> None:
    every = [cluster(name, 3, project) for name in ("a", "a-1", "a-1-0") for project in ("default", "x", "y")]
    for count in range(1, 5):
        for records in itertools.combinations(every, count):
            given = [name for alias in list_aliases(records) for name in alias.names]
            assert len(given) == len(set(given)), records


@pytest.mark.parametrize(
    "changed",
    [
        {"host": "fe80::1%h\n    ProxyCommand touch x\n#"},
        {"host": "a b"},
        {"host": ""},
        {"user": "me\tx"},
        {"user": "me\r"},
        {"alias": "a b"},
        {"identity_file": Path("/k\nProxyCommand touch x")},
        {"proxy": ("nc", "a\nUser x")},
    ],
)
def test_what_ssh_would_read_as_more_than_a_value_is_not_written(changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="is not written to a configuration of ssh"):
        format_ssh_config([Alias(("mine",), "uid", replace(HOST, **changed))])
    for name in ("*", "!mine", "a b", "x\n", "-x"):
        with pytest.raises(UserError):
            format_ssh_config([Alias((name,), "uid", HOST)])


@pytest.mark.parametrize(
    "host",
    [
        HOST,
        replace(HOST, identity_file=Path("/with space/100%/id")),
        replace(HOST, jump=JUMP),
        replace(HOST, proxy=("gcloud", "ssh proxy", "--port=%p", "it's", "100%%")),
        replace(HOST, host_key=None, own=OwnSsh(keys=(Path("/a"), Path("/b")), certificates=(Path("/c"),), agent="/s")),
    ],
)
def test_ssh_reads_the_same_from_the_entry_as_from_the_command_of_orch_ssh(tmp_path: Path, host: HostAddress) -> None:
    config = tmp_path / "config"
    mine = replace(cluster("mine", 1), hosts=(host,))
    others = "Host *\n    ForwardAgent yes\n    ProxyJump elsewhere\n    User another\n    Port 1\n"
    config.write_text(format_ssh_config(list_aliases([mine])) + others)
    command = ssh_argv(host, strict=host.own is not None)
    expected = read_settings(command)
    found = read_settings(["ssh", "-F", str(config), "mine"])
    forward = {"forwardagent": ["no"], "host": [host.host]}  # the person's own choice, and the word on the command line
    assert found | forward | {"canonicalizehostname": expected["canonicalizehostname"]} == expected


def read_settings(command: list[str]) -> dict[str, list[str]]:
    done = subprocess.run([command[0], "-G", *command[1:]], capture_output=True, text=True, check=True, timeout=30)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


def test_the_entries_of_a_cluster_are_printed(orch: Orch, filled: Path) -> None:
    said = orch("ssh-config", "mine")
    assert (said.status, said.err) == (0, "")
    assert [line for line in said.out.splitlines() if line.startswith("Host ")] == ["Host mine mine-0", "Host mine-1"]
    assert orch("ssh-config").out == said.out
    assert "mine-1.1 ssh-ed25519 AAAA" in (filled / "known_hosts").read_text()
    assert not (filled / "state" / "ssh_config").exists()


def test_a_cluster_that_has_no_hosts_is_refused(orch: Orch, filled: Path) -> None:
    with Store(filled / "state" / "orch.db") as store:
        store.open_cluster("empty", "")
    assert orch("ssh-config", "empty").status == 3
    assert orch("ssh-config", "none").status == 3
    assert orch("ssh-config", "--write", "mine").status == 2


def test_without_consent_a_persons_configuration_stays_as_it_is(orch: Orch, filled: Path) -> None:
    said = orch("ssh-config", "--write")
    file = filled / "state" / "ssh_config"
    assert said.status == 0 and f'  Include "{file}"' in said.err.splitlines()
    assert not (Path.home() / ".ssh").exists()
    assert "Host mine mine-0\n" in file.read_text() and file.stat().st_mode & 0o777 == 0o600


def test_with_consent_one_line_comes_before_what_a_person_wrote(orch: Orch, filled: Path) -> None:
    settings, config = Path.home() / "dotfiles", Path.home() / ".ssh" / "config"
    settings.mkdir()
    config.parent.mkdir()
    own = "Host mine other\n    HostName example.org\n"
    (settings / "config").write_text(own)
    (settings / "config").chmod(0o644)
    config.symlink_to(settings / "config")
    said = orch("ssh-config", "--write", "--yes")
    file = filled / "state" / "ssh_config"
    assert "already has a host 'mine'" in said.err
    assert config.is_symlink() and config.read_text() == f'Include "{file}"\n\n{own}'
    assert (settings / "config").stat().st_mode & 0o777 == 0o644
    again = orch("ssh-config", "--write", "--yes")
    assert "Include" not in again.err and config.read_text().count("Include") == 1


def test_an_include_below_a_host_holds_for_that_host_alone(orch: Orch, filled: Path) -> None:
    config = Path.home() / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text(f"Host other\n    Include {filled / 'state' / 'ssh_config'}\n")
    assert "needs this line above its first Host" in orch("ssh-config", "--write").err
