"""A local host is like a machine of its own to whoever logs in."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from provider_support import LocalWorld, clear, make_world, on_host, pin

from orchestrator.errors import UserError
from orchestrator.hosts import HostAddress, ssh_argv
from orchestrator.remote.keys import make_host_key
from orchestrator.slices import SliceState

USER = pwd.getpwuid(os.getuid()).pw_name


def _copy_argv(tool: str, host: HostAddress) -> list[str]:
    """The tool with the same trust options as ssh_argv; the port option differs in its letter."""
    options = ssh_argv(host)[1:-1]
    options[0] = "-P"
    return [tool, "-q", "-F", "none", *options]


def test_two_hosts_have_homes_addresses_and_keys_of_their_own(world: LocalWorld) -> None:
    first, second = world.up()
    assert (first.rank, second.rank) == (0, 1)
    assert first.host != second.host
    assert first.alias != second.alias
    assert first.host_key != second.host_key
    homes = [on_host(host, "cd && pwd -P").stdout.strip() for host in (first, second)]
    assert homes == [str(world.host(0).home), str(world.host(1).home)]


def test_a_session_begins_in_its_home_with_a_clean_environment(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_CREATOR", "must not be seen")
    host = world.up()[0]
    done = on_host(host, 'pwd; echo ~; echo "$USER"; echo "$PATH"; echo "${SHELL##*/}"; env')
    lines = done.stdout.splitlines()
    home = str(world.host(0).home)
    assert lines[:3] == [home, home, USER]
    assert lines[3] == "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    assert lines[4] in ("bash", "sh")
    names = {line.partition("=")[0] for line in lines[5:]}
    assert "OF_THE_CREATOR" not in names
    assert "SSH_ORIGINAL_COMMAND" not in names
    assert not {name for name in names if name.startswith(("PYTHON", "VIRTUAL_ENV", "PYTEST"))}


def test_a_login_without_a_command_gets_a_login_shell_at_home(world: LocalWorld) -> None:
    host = world.up()[0]
    argv = ssh_argv(host)
    argv[1:1] = ["-F", "none", "-T"]
    done = subprocess.run(argv, input="pwd; exit 9\n", capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 9
    assert done.stdout.splitlines()[-1] == str(world.host(0).home)


@pytest.mark.parametrize(
    ("command", "said"),
    [("echo a' b'", "a b"), ('printf "%s|" "x y" \'$HOME\'', "x y|$HOME|"), ("echo one; echo two", "one\ntwo")],
)
def test_a_command_arrives_unchanged(world: LocalWorld, command: str, said: str) -> None:
    assert on_host(world.up()[0], command).stdout.strip() == said


def test_status_and_signal_of_a_program_come_back(world: LocalWorld) -> None:
    host = world.up()[0]
    assert on_host(host, "exit 7").returncode == 7
    killed = on_host(host, "kill -SEGV $$", options=["-v"])
    assert "rtype exit-signal" in killed.stderr, "the signal of the program was lost on the way"


def test_scp_sftp_and_rsync_land_in_the_home_of_the_host(world: LocalWorld) -> None:
    host = world.up()[1]
    (world.folder / "sent").write_text("content")
    target = f"{host.user}@{host.host}"
    source = str(world.folder / "sent")
    subprocess.run([*_copy_argv("scp", host), source, f"{target}:by-scp"], check=True, timeout=30)
    subprocess.run([*_copy_argv("scp", host), source, f"{target}:~/by-tilde"], check=True, timeout=30)
    subprocess.run(
        [*_copy_argv("sftp", host), "-b", "-", target],
        input=f'put "{source}" by-sftp\n', text=True, check=True, timeout=30, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    names = {"by-scp", "by-tilde", "by-sftp"}
    if shutil.which("rsync"):
        shell = shlex.join(["ssh", "-F", "none", *ssh_argv(host)[1:-1]])
        subprocess.run(["rsync", "-e", shell, source, f"{target}:by-rsync"], check=True, timeout=30)
        names.add("by-rsync")
    home = world.host(1).home
    assert {path.name for path in home.iterdir()} == names
    assert {(home / name).read_text() for name in names} == {"content"}


def test_a_host_with_another_key_is_refused(world: LocalWorld) -> None:
    host = world.up()[0]
    assert on_host(host, "true").returncode == 0
    pin([replace(host, host_key=make_host_key()[1])])
    done = on_host(host, "echo reached")
    assert done.returncode == 255
    assert done.stdout == ""
    assert "Host key verification failed" in done.stderr


def test_only_our_key_opens_a_host(world: LocalWorld) -> None:
    host = world.up()[0]
    other = world.folder / "other"
    other.touch(mode=0o600)
    other.write_text(make_host_key()[0])
    done = on_host(replace(host, identity_file=other), "echo reached")
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("odd", ["with space", "with 'quote", "with %h percent", "with #hash", "ünïcode"])
def test_a_state_folder_may_have_an_odd_name(tmp_path: Path, odd: str) -> None:
    world = make_world(tmp_path, hosts=1, state_name=odd)
    try:
        done = on_host(world.up()[0], "pwd")
        assert done.stdout.strip() == str(world.host(0).home), done.stderr
        world.provider.end(world.spec.name)
        assert world.seen is SliceState.ABSENT
    finally:
        clear(world)


def test_a_state_folder_that_sshd_cannot_take_is_refused_with_a_reason(tmp_path: Path) -> None:
    world = make_world(tmp_path, hosts=1, state_name='with "double" quotes')
    with pytest.raises(UserError, match="a quote"):
        world.provider.create(world.spec, world.keys)
    assert world.processes() == {}
