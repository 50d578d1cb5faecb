"""What a hostile or broken service says of hosts never becomes an argument of ssh, or a line of its files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.driving import Listener

from orchestrator.client.service_hosts import await_key, parse_hosts, refuse_remote_loopback
from orchestrator.errors import AccessError, CloudError, OrchError
from orchestrator.hosts import HostAddress, parse_public_key, ssh_argv
from orchestrator.remote.keys import make_host_key

URL = "https://orch.example.org"
KEY = make_host_key()[1]
HOST = {
    "rank": 0, "alias": "orch-mine-1-0", "host": "192.0.2.7", "port": 22, "user": "orch", "internal_ip": "10.0.0.2",
    "host_key": KEY,
}  # fmt: skip


def parse(folder: Path, **changed: Any) -> HostAddress:
    return parse_hosts(URL, {"hosts": [HOST | changed]}, folder / "key", folder / "known_hosts")[0]


@pytest.mark.parametrize("host", ["192.0.2.7", "2001:db8::1", "ec2-192-0-2-7.compute-1.amazonaws.com"])
def test_addresses_are_read_and_their_keys_are_strict(tmp_path: Path, host: str) -> None:
    address = parse(tmp_path, host=host)
    argv = ssh_argv(address)
    assert argv[-1] == f"orch@{host}" and "StrictHostKeyChecking=yes" in argv
    assert address.host_key == KEY and not address.proxy and address.own is None


@pytest.mark.parametrize(
    "changed",
    [
        {"user": "-oProxyCommand=touch x"},
        {"user": "a b"},
        {"user": ""},
        {"host": "-oProxyCommand=x"},
        {"host": "a;b"},
        {"host": "x\ny"},
        {"host": ""},
        {"host": "fe80::1%h\n    ProxyCommand touch x\n#"},
        {"host": "fe80::1%eth0"},
        {"internal_ip": "fe80::2%$(x)\ny"},
        {"alias": "x\nother ssh-ed25519 AAAA"},
        {"alias": "*"},
        {"alias": "@cert-authority"},
        {"port": 0},
        {"port": 65_536},
        {"port": "x"},
        {"port": 1e400},
        {"rank": -1},
        {"internal_ip": "$(x)"},
        {"host_key": ""},
        {"host_key": None},
        {"host_key": "ssh-ed25519 AAAA"},
        {"host_key": f"{KEY}\n* {KEY}"},
        {"host_key": f"@cert-authority {KEY}"},
    ],
)
def test_what_could_be_more_than_an_address_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(CloudError, match="cannot be read"):
        parse(tmp_path, **changed)


ANSWERS: list[dict[str, Any]] = [{}, {"hosts": None}, {"hosts": [1]}, {"hosts": [{}]}, {"hosts": {"a": 1}}]


@pytest.mark.parametrize("answer", ANSWERS)
def test_another_answer_than_hosts_is_refused(tmp_path: Path, answer: dict[str, Any]) -> None:
    with pytest.raises(CloudError, match="cannot be read"):
        parse_hosts(URL, answer, tmp_path / "key", tmp_path / "known_hosts")


def test_processes_of_the_computer_of_the_service_are_refused_elsewhere(tmp_path: Path) -> None:
    local = parse(tmp_path, host="127.0.0.2")
    with pytest.raises(AccessError, match="processes of the service's computer"):
        refuse_remote_loopback(URL, "mine", (local,))
    refuse_remote_loopback("http://127.0.0.1:6724", "mine", (local,))
    refuse_remote_loopback(URL, "mine", (parse(tmp_path),))


@pytest.mark.parametrize("status", [256, 0, -1, 126, "x", 10**400, 3.5, [1], True])
def test_a_service_chooses_no_exit_status_but_one_of_a_failure(status: Any) -> None:
    ended = {
        "state": "ended",
        "status": status or "0",
        "what": "no",
        "why": "",
        "next_command": "",
        "next_words": "",
        "code": "x",
    }

    def show_order(_: str) -> dict[str, Any]:
        return ended

    client: Any = SimpleNamespace(url=URL, show_order=show_order)  # what it answers, and nothing else
    with pytest.raises(OrchError) as raised:
        await_key(client, "mine", "1", Listener())
    assert raised.value.exit_status == 1 and raised.value.code == "x"


@pytest.mark.parametrize(
    "text",
    ["", "ssh-ed25519", f"{KEY}\n", f"  {KEY} a comment", f"restrict {KEY}", KEY[:-9]],
    ids=["empty", "type", "line", "comment", "option", "cut"],  # the key is another one in each process
)
def test_a_public_key_is_a_type_and_its_base64(text: str) -> None:
    found = parse_public_key(text)
    assert found in ("", KEY) and (found == KEY) is text.strip().startswith(KEY)
