"""What instances read at boot: packed and unpacked, and run for real in a folder with a metadata server beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import UserError
from orchestrator.providers.aws.userdata import LARGEST, MOST_HOSTS, render, unpack
from orchestrator.remote.keys import make_host_key

HOSTS = [make_host_key() for _ in range(8)]
USER_PUBLIC = make_host_key()[1]
HOUR = 3600
TOKEN = "imds-token"
_NOTING = """#!/usr/bin/env python3
import json, os, sys
with open(os.environ["ORCH_LOG"], "a") as log:
    print(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]), file=log)
"""


@contextmanager
def metadata(rank: str, *, token: str = TOKEN) -> Generator[str]:
    """IMDSv2: the launch index for who shows a token that it gave."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def answer(self, status: int, words: str) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(words.encode())

        def do_PUT(self) -> None:
            asked = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "300"
            self.answer(200 if asked and token else 403, token)

        def do_GET(self) -> None:
            if self.headers["X-aws-ec2-metadata-token"] != TOKEN:
                self.answer(401, "")
            else:
                known = self.path == "/latest/meta-data/ami-launch-index"
                self.answer(200 if known else 404, rank)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/latest"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@dataclass(slots=True)
class Machine:
    """A folder that stands for an instance; systemd only notes what it is told."""

    folder: Path

    @property
    def key(self) -> Path:
        return self.folder / "ssh" / "ssh_host_ed25519_key"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def told(self, program: str) -> list[list[str]]:
        log = self.folder / "log"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [words for words in lines if words[0] == program]

    def boot(self, text: str, rank: str = "0", *, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
        (command,) = yaml.safe_load(text)["bootcmd"]
        with metadata(rank, token=token) as url:
            return self.run(command, ORCH_METADATA_URL=url)

    def run(self, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "ORCH_SSH_FOLDER": str(self.folder / "ssh"),
            "ORCH_LOG": str(self.folder / "log"),
            "ORCH_PROC_DIR": str(self.folder / "proc"),
            "ORCH_RUN_FOLDER": str(self.folder / "run"),
        }
        return subprocess.run(command, env=environment | more, capture_output=True, text=True, timeout=60, check=False)

    def tick(self, uptime: int) -> bool:
        """Run what the timer was told to run, so long after the boot; whether the machine goes off."""
        command = self.told("systemd-run")[-1]
        (self.folder / "proc" / "uptime").write_text(f"{uptime}.42 1.00\n")
        before = len(self.told("systemctl"))
        done = self.run(command[command.index("bash") :])
        assert done.returncode == 0, done.stderr
        return ["systemctl", "poweroff"] in self.told("systemctl")[before:]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    for name in ("bin", "ssh", "proc", "home", "run"):
        (tmp_path / name).mkdir()
    for name in ("systemd-run", "systemctl"):
        (tmp_path / "bin" / name).write_text(_NOTING)
        (tmp_path / "bin" / name).chmod(0o755)
    getent = tmp_path / "bin" / "getent"
    getent.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "passwd ubuntu" ] && echo "ubuntu:x:1000:1000::{tmp_path}/home:/bin/sh"\n'
    )
    getent.chmod(0o755)
    yield Machine(tmp_path)


def user_data(hosts: int = 4, **more: Any) -> str:
    return render(USER_PUBLIC, [private for private, _ in HOSTS[:hosts]], **more)


def test_sshd_makes_no_keys_of_its_own_and_the_login_user_has_ours() -> None:
    read = yaml.safe_load(user_data())
    assert read["ssh_deletekeys"] is False
    assert read["ssh_genkeytypes"] == ["ed25519"], "which is there by then, and is kept"
    assert read["ssh_authorized_keys"] == [USER_PUBLIC]
    assert "users" not in read
    other = yaml.safe_load(user_data(user="ec2-user"))
    assert other["users"] == ["default", {"name": "ec2-user", "ssh_authorized_keys": [USER_PUBLIC]}]
    assert user_data().startswith("#cloud-config\n")


@pytest.mark.parametrize("rank", [0, 3, 7])
def test_host_rebuilds_the_key_that_was_made_for_it(rank: int, machine: Machine) -> None:
    text = user_data(8)
    done = machine.boot(text, str(rank))
    assert done.returncode == 0, done.stderr
    shown = subprocess.run(["ssh-keygen", "-y", "-f", machine.key], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[:2] == HOSTS[rank][1].split()[:2]
    assert machine.key.with_suffix(".pub").read_text().split()[:2] == HOSTS[rank][1].split()[:2]
    assert machine.key.read_text() == unpack(text)[1][rank], "the pretend cloud gives its hosts the same file"
    assert machine.key.stat().st_mode & 0o777 == 0o600
    assert machine.key.with_suffix(".pub").stat().st_mode & 0o777 == 0o644
    assert sorted(one.name for one in machine.key.parent.iterdir()) == [machine.key.name, f"{machine.key.name}.pub"]


def test_real_sshd_takes_the_rebuilt_key(machine: Machine) -> None:
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    machine.boot(user_data())
    config = machine.folder / "sshd_config"
    config.write_text(f"HostKey {machine.key}\n")
    done = subprocess.run([sshd, "-t", "-f", config], capture_output=True, text=True, check=False)
    assert "key" not in done.stderr.lower(), done.stderr


def test_keys_that_the_image_brought_are_removed(machine: Machine) -> None:
    for kind in ("rsa", "ecdsa", "ed25519"):
        (machine.folder / "ssh" / f"ssh_host_{kind}_key").write_text("known to others")
        (machine.folder / "ssh" / f"ssh_host_{kind}_key.pub").write_text("known to others")
    assert machine.boot(user_data()).returncode == 0
    assert {one.name for one in machine.key.parent.iterdir()} == {machine.key.name, f"{machine.key.name}.pub"}


def test_later_boots_leave_the_keys_alone(machine: Machine) -> None:
    machine.boot(user_data())
    (machine.folder / "ssh" / "ssh_host_rsa_key").write_text("made by the user since")
    before = machine.key.stat()
    assert machine.boot(user_data()).returncode == 0
    assert (machine.key.stat().st_ino, machine.key.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (machine.folder / "ssh" / "ssh_host_rsa_key").exists()
    assert machine.told("systemctl") == [["systemctl", "--no-block", "try-restart", "ssh", "sshd"]]


@pytest.mark.parametrize(
    ("rank", "token", "word"),
    [
        ("4", TOKEN, "no key for host 4"),
        ("none", TOKEN, "does not know its number"),
        ("", TOKEN, "does not know its number"),
        ("0", "", "gives no token"),
        ("0", "stale", "does not know its number"),
    ],
)
def test_what_is_wrong_fails_without_a_key_and_the_timer_is_set_all_the_same(
    rank: str, token: str, word: str, machine: Machine
) -> None:
    done = machine.boot(user_data(4), rank, token=token)
    assert done.returncode == 1
    assert word in done.stderr
    assert not machine.key.exists()
    assert len(machine.told("systemd-run")) == 1


def test_no_key_is_printed(machine: Machine) -> None:
    text = user_data()
    done = machine.boot(text)
    secrets = [line for file in unpack(text)[1] for line in file.splitlines()[2:-1]]
    packed = next(line for line in text.splitlines() if "orch_keys=" in line).split("=", 1)[1]
    said = done.stdout + done.stderr + (machine.folder / "log").read_text()
    assert packed not in said
    assert not any(line in said for line in secrets)


def test_timer_is_a_unit_of_systemd_that_this_boot_does_not_wait_for(machine: Machine) -> None:
    """cloud-init runs before sysinit.target, and timers after it: to wait would be to wait for ever."""
    machine.boot(user_data(max_hours=2))
    ((_, *words),) = machine.told("systemd-run")
    assert "--no-block" in words
    assert {"--unit=orch-dead-man", "--on-active=600", "--on-unit-active=600"} <= set(words)
    assert words[-4:] == ["bash", f"{machine.folder}/run/orch-dead-man", "ubuntu", str(2 * HOUR + 600)]
    assert not any(mark in word for word in words for mark in "$%"), "systemd would fill them in"


def test_machine_that_nobody_came_to_ends_after_an_hour(machine: Machine) -> None:
    machine.boot(user_data())
    assert not machine.tick(HOUR - 1)
    assert machine.tick(HOUR)
    (machine.home / ".orch").mkdir()
    assert not machine.tick(100 * HOUR), "somebody came, and no time was asked for"


def test_machine_ends_when_its_time_is_over_and_no_other_timer_was_ever_set(machine: Machine) -> None:
    machine.boot(user_data(max_hours=2))
    (machine.home / ".orch").mkdir()
    assert not machine.tick(2 * HOUR + 599)
    assert machine.tick(2 * HOUR + 600)
    (machine.home / ".orch/hosts/mine-1-0-abc/limits").mkdir(parents=True)
    assert not machine.tick(100 * HOUR), "orch's own timer knows the limits as they are now"


def test_time_is_counted_even_when_nobody_came(machine: Machine) -> None:
    machine.boot(user_data(max_hours=0.25))
    assert not machine.tick(1499)
    assert machine.tick(1500)


@pytest.mark.parametrize("hosts", [1, 16, 64, 128, MOST_HOSTS])
def test_it_is_small_enough(hosts: int) -> None:
    text = render(USER_PUBLIC, [HOSTS[at % 8][0] for at in range(hosts)], user="a" * 32, max_hours=8784)
    assert len(text.encode()) <= LARGEST
    public, private = unpack(text)
    assert public == USER_PUBLIC
    assert len(private) == hosts


def test_too_many_hosts_are_refused_with_how_many_fit() -> None:
    with pytest.raises(UserError, match="do not fit") as raised:
        render(USER_PUBLIC, [HOSTS[0][0]] * 200)
    fit = int(raised.value.why.split("up to ")[1].split()[0])
    assert len(render(USER_PUBLIC, [HOSTS[0][0]] * fit)) <= LARGEST
    with pytest.raises(UserError):
        render(USER_PUBLIC, [HOSTS[0][0]] * (fit + 1))


def test_unpacked_keys_are_the_given_ones(tmp_path: Path) -> None:
    for at, file in enumerate(unpack(user_data(8))[1]):
        path = tmp_path / f"key{at}"
        path.write_text(file)
        path.chmod(0o600)
        shown = subprocess.run(["ssh-keygen", "-y", "-f", path], capture_output=True, text=True, check=True)
        assert shown.stdout.split()[:2] == HOSTS[at][1].split()[:2]
    assert unpack(render(USER_PUBLIC, unpack(user_data(8))[1]))[1] == unpack(user_data(8))[1]


def test_key_of_ssh_keygens_own_is_taken(tmp_path: Path) -> None:
    """It has check numbers and a comment; both are left out."""
    made = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "some comment", "-f", made], check=True)
    (file,) = unpack(render(USER_PUBLIC, [made.read_text()]))[1]
    made.write_text(file)
    shown = subprocess.run(["ssh-keygen", "-y", "-f", made], capture_output=True, text=True, check=True)
    assert shown.stdout.split()[:2] == made.with_suffix(".pub").read_text().split()[:2]


@pytest.mark.parametrize("comment", ["", " a 'b\" $(id) `id` \\ : # {x}", " x]\nruncmd: [reboot]", ' x"]'])
def test_comment_of_the_users_key_goes_nowhere(comment: str) -> None:
    if "\n" in comment:
        with pytest.raises(ValueError, match="not a public key"):
            render(USER_PUBLIC + comment, [HOSTS[0][0]])
        return
    assert render(USER_PUBLIC + comment, [HOSTS[0][0]]) == user_data(1)


@pytest.mark.parametrize(
    "public", ["", "ssh-ed25519", 'ssh-ed25519 AAAA"]', "command=x ssh-ed25519 AAAA", "ssh-rsa AA AA\n"]
)
def test_what_is_no_public_key_is_refused(public: str) -> None:
    if public == "ssh-rsa AA AA\n":  # a comment and the newline of its file
        assert yaml.safe_load(render(public, [HOSTS[0][0]]))["ssh_authorized_keys"] == ["ssh-rsa AA"]
        return
    with pytest.raises(ValueError, match="not a public key"):
        render(public, [HOSTS[0][0]])


@pytest.mark.parametrize("user", ["", "Root", "a b", "-x", "a'; id #", "a\nb", "a" * 33])
def test_what_is_no_login_name_is_refused(user: str) -> None:
    with pytest.raises(ValueError, match="login name"):
        render(USER_PUBLIC, [HOSTS[0][0]], user=user)


def _rsa(tmp_path: Path) -> str:
    made = tmp_path / "rsa"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", made], check=True)
    return made.read_text()


@pytest.mark.parametrize(
    "key", ["", "ssh-ed25519 AAAA", "another kind", "cut short", "base64 of nothing", "another file"]
)
def test_what_is_no_host_key_is_refused(key: str, tmp_path: Path) -> None:
    lines = HOSTS[0][0].splitlines()
    odd = {
        "another kind": _rsa(tmp_path),
        "cut short": "\n".join([*lines[:3], lines[-1]]),
        "base64 of nothing": "\n".join([lines[0], "AAAA", lines[-1]]),
        "another file": HOSTS[0][0].replace("OPENSSH", "SOME"),
    }
    with pytest.raises(ValueError, match="not an OpenSSH private key"):
        render(USER_PUBLIC, [odd.get(key, key)])


@pytest.mark.parametrize("text", ["", "#cloud-config\n", "orch_keys=AAAA\n"])
def test_other_user_data_is_not_unpacked(text: str) -> None:
    with pytest.raises(ValueError, match="not user-data"):
        unpack(text)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_to_say() -> None:
    ((_, _, script),) = yaml.safe_load(user_data(max_hours=3))["bootcmd"]
    timer = script.split("<<'ORCH'")[1].split("\n", 1)[1].split("\nORCH\n")[0] + "\n"
    for text in (script, timer):
        done = subprocess.run(
            ["shellcheck", "--shell=bash", "-"], input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout
