"""Another user of this computer does not enter a local host, and reads none of its files."""

from __future__ import annotations

import ipaddress
import subprocess
from typing import Any

from provider_support import LocalWorld
from support.other_user import as_other_user, root_only

from orchestrator.providers.local.sshd import find_sshd

CLOSED = ("passwordauthentication", "kbdinteractiveauthentication", "hostbasedauthentication", "permitemptypasswords")
OPTIONS = ("-F/dev/null", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oBatchMode=yes")


def test_sshd_of_a_host_takes_public_keys_alone_and_listens_on_the_loopback(world: LocalWorld) -> None:
    world.up()
    command = [str(find_sshd().path), "-T", "-f", str(world.host(0).config)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    options = dict(line.split(" ", 1) for line in said.splitlines() if " " in line)
    assert {name: options[name] for name in CLOSED} == dict.fromkeys(CLOSED, "no")
    assert options["authenticationmethods"] == "publickey"
    assert options["gatewayports"] == "no"
    assert ipaddress.ip_address(options["listenaddress"].rpartition(":")[0]).is_loopback


@root_only
def test_another_user_neither_enters_a_host_nor_reads_its_folder(world: LocalWorld) -> None:
    host = world.up()[0]

    def attack() -> Any:
        command = ["ssh", *OPTIONS, f"-p{host.port}", f"{host.user}@{host.host}", "id"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [done.returncode, done.stderr]

    status, said = as_other_user(attack)
    assert status == 255 and "Permission denied (publickey)." in said
    assert world.paths.path.stat().st_mode & 0o777 == 0o700
    private = (world.host(0).host_key, world.host(0).authorized_keys, world.host(0).log, world.paths.record)
    assert [path.stat().st_mode & 0o777 for path in private] == [0o600] * 4
