"""Whatever sshd and whatever account there is: it works, or the error says what to do."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from provider_support import REPOSITORY, LocalWorld, asked, living, make_keys, make_spec, on_host

from orchestrator.errors import CloudError, UserError
from orchestrator.hosts import HostAddress
from orchestrator.providers.local.addresses import Place
from orchestrator.providers.local.sshd import account, config, find_sshd, is_locked
from orchestrator.slices import SliceKeys, SliceState

SYSTEM_PYTHON = "/usr/bin/python3"


def _shell_user() -> pwd.struct_passwd | None:
    shells = ("bash", "sh", "zsh", "dash")
    fit = [user for user in pwd.getpwall() if user.pw_uid >= 500 and Path(user.pw_shell).name in shells]
    return next(iter(fit), None)


def _can_drop_to(user: pwd.struct_passwd | None) -> bool:
    if os.getuid() != 0 or user is None or not shutil.which("setpriv") or not Path(SYSTEM_PYTHON).exists():
        return False
    # The other user must be able to read the code under test, with an interpreter that is new enough.
    check = "import sys, enum; sys.path.insert(0, sys.argv[1]); enum.StrEnum; import orchestrator.errors"
    argv = [*_as(user), SYSTEM_PYTHON, "-c", check, str(REPOSITORY)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def _as(user: pwd.struct_passwd) -> list[str]:
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


USER = _shell_user()
drops_privileges = pytest.mark.skipif(
    not _can_drop_to(USER), reason="needs root, another user with a shell, and a system Python 3.11 for it"
)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can own; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="orch-test-"))
    yield folder
    shutil.rmtree(folder)


@drops_privileges
def test_works_without_root(open_folder: Path) -> None:
    assert USER is not None
    spec, keys = make_spec(hosts=2), make_keys(open_folder / "keys", 2)
    state = open_folder / "state"
    verbs = {
        verb: asked(verb, state, spec, keys, open_folder, SYSTEM_PYTHON) for verb in ("create", "stop", "start", "end")
    }
    for path in (open_folder, *open_folder.rglob("*")):
        os.chown(path, USER.pw_uid, USER.pw_gid)
    try:
        made = verbs["create"].run(*_as(USER))
        assert made.stdout.split() == ["ready", "ready"], made.stderr
        for host in _addresses(state, spec.name, keys):
            said = on_host(
                host,
                "mkdir -p a/b; touch a/b/c; chmod -R a-w a; id -un; pwd; "
                "setsid nohup sleep 1000 >/dev/null 2>&1 </dev/null &",
                prefix=_as(USER),
            )
            home = state / "local" / spec.name / "hosts" / str(host.rank) / "home"
            assert said.stdout.split() == [USER.pw_name, str(home)], said.stderr
        assert verbs["stop"].run(*_as(USER)).stdout.split() == ["ready", "stopped"]
        assert verbs["start"].run(*_as(USER)).stdout.split() == ["ready", "ready"]
    finally:
        ended = verbs["end"].run(*_as(USER))
    assert ended.stdout.split() == ["ready", "absent"], ended.stderr
    assert living(str(state)) == {}
    assert not any(
        "sleep 1000" in command for pid, command in living("sleep 1000").items() if _owner(pid) == USER.pw_uid
    )


def _addresses(state: Path, name: str, keys: SliceKeys) -> list[HostAddress]:
    """From the record alone: the provider of this process runs as another user."""
    record = json.loads((state / "local" / name / "slice.json").read_text())
    hosts = [
        HostAddress(
            rank=rank,
            alias=f"{name}-{record['id'][:8]}-{rank}",
            host=place["host"],
            port=place["port"],
            user=record["user"],
            identity_file=Path(keys.identity_file),
            known_hosts=Path(keys.known_hosts),
            internal_ip=place["host"],
            host_key=keys.host_public[rank],
        )
        for rank, place in enumerate(record["places"])
    ]
    Path(keys.known_hosts).write_text("".join(f"{host.alias} {host.host_key}\n" for host in hosts))
    Path(keys.known_hosts).chmod(0o644)
    return hosts


def _owner(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except FileNotFoundError:
        return -1


@drops_privileges
@pytest.mark.parametrize(
    ("number", "reason"), [(65534, "may not log in: its shell is"), (54321, "has no name on this computer")]
)
def test_account_that_sshd_would_not_let_in_is_refused_with_a_reason(
    open_folder: Path, number: int, reason: str
) -> None:
    if number == 65534 and Path(pwd.getpwuid(number).pw_shell).name not in ("nologin", "false"):
        pytest.skip("nobody may log in here")
    open_folder.chmod(0o777)
    ask = asked(
        "create", open_folder / "state", make_spec(), make_keys(open_folder / "keys", 2), open_folder, SYSTEM_PYTHON
    )
    for path in open_folder.rglob("*"):
        path.chmod(0o777)
    done = ask.run("setpriv", f"--reuid={number}", "--clear-groups")
    assert reason in done.stderr
    assert not (open_folder / "state").exists()


def test_without_sshd_the_error_names_the_package(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        find_sshd({"PATH": str(tmp_path)}, places=[str(tmp_path / "sshd")])
    lines = "\n".join(caught.value.lines())
    assert "no OpenSSH server (sshd) on this computer" in lines
    assert "install openssh-server" in lines or "openssh" in lines
    assert "ORCH_SSHD" in lines


def test_chosen_sshd_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a program"):
        find_sshd({"ORCH_SSHD": str(tmp_path / "nothing")})


def test_chosen_program_that_is_no_sshd_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "sshd"
    program.write_text("#!/bin/sh\necho I am something else >&2\n")
    program.chmod(0o755)
    with pytest.raises(UserError, match="does not look like an OpenSSH server") as caught:
        find_sshd({"ORCH_SSHD": str(program)})
    assert "something else" in caught.value.why


def test_unpacked_copy_of_sshd_serves(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_sshd()
    copy = world.folder / "unpacked" / "usr" / "sbin" / "sshd"
    copy.parent.mkdir(parents=True)
    shutil.copy2(found.path, copy)
    parts = world.folder / "unpacked" / "usr" / "lib" / "openssh"
    parts.mkdir(parents=True)
    for name in ("sftp-server", "sshd-session", "sshd-auth"):
        for helper in found.path.resolve().parent.parent.glob(f"lib*/openssh/{name}"):
            shutil.copy2(helper, parts)
    monkeypatch.setenv("ORCH_SSHD", str(copy))
    host = world.up()[0]
    assert on_host(host, "echo ok").stdout == "ok\n"
    assert any(str(copy) in command for command in world.processes().values())
    assert str(parts / "sftp-server") in world.host(0).config.read_text()


def test_sshd_that_refuses_the_configuration_is_quoted(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    picky = world.folder / "sshd"
    picky.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] && exec {find_sshd().path} -V\necho "line 3: I do not like it" >&2\nexit 255\n'
    )
    picky.chmod(0o755)
    monkeypatch.setenv("ORCH_SSHD", str(picky))
    with pytest.raises(CloudError, match="I do not like it"):
        world.provider.create(world.spec, world.keys)
    assert world.seen is SliceState.CREATING
    monkeypatch.delenv("ORCH_SSHD")
    assert on_host(world.up()[0], "echo ok").stdout == "ok\n"


def test_sshd_that_ends_at_once_is_an_error_with_its_last_words(
    world: LocalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = world.folder / "sshd"
    broken.write_text(
        f"#!/bin/sh\ncase $1 in -V) exec {find_sshd().path} -V;; -t) exit 0;; esac\n"
        'echo "fatal: no luck today" >&2\nexit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("ORCH_SSHD", str(broken))
    with pytest.raises(CloudError, match="no luck today") as caught:
        world.provider.create(world.spec, world.keys)
    assert "2 of 2 local hosts did not start" in caught.value.what
    assert world.processes() == {}
    world.provider.end(world.spec.name)
    assert world.seen is SliceState.ABSENT


def test_port_that_is_taken_at_the_last_moment_is_changed(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    unlucky, tried = world.folder / "sshd", world.folder / "tried"
    real = find_sshd().path
    unlucky.write_text(  # as if something had bound the port between the look and the start: the first two times
        f'#!/bin/sh\n[ "$1" != -t ] || grep ListenAddress "$3" >> {world.folder}/offered\n'
        f'case $1 in -V|-t) exec {real} "$@";; esac\n'
        f'mkdir {tried}-1 || mkdir {tried}-2 || exec {real} "$@"\n'
        'echo "Bind to port 1 on 127.0.0.1 failed: Address already in use." >&2\nexit 255\n'
    )
    unlucky.chmod(0o755)
    monkeypatch.setenv("ORCH_SSHD", str(unlucky))
    hosts = world.up()
    assert {path.name for path in world.folder.glob("tried-*")} == {"tried-1", "tried-2"}
    offered = (world.folder / "offered").read_text().splitlines()
    assert len(offered) == 2
    assert offered[0] != offered[1], "the same port was tried again"
    assert [on_host(host, "echo ok").stdout for host in hosts] == ["ok\n", "ok\n"]


@pytest.mark.parametrize(
    ("line", "locked"),
    [("root:!:1::::::", True), ("root:!*:1::::::", True), ("root:*:1::::::", False), ("root:$y$x:1::::::", False)],
)
def test_locked_account_is_noticed(tmp_path: Path, line: str, locked: bool) -> None:
    shadow = tmp_path / "shadow"
    shadow.write_text(f"rooted:!:1::::::\n{line}\n")
    assert is_locked("root", shadow) is locked
    assert is_locked("root", tmp_path / "none") is False


def test_newer_sshd_gets_the_options_it_needs_and_older_none_it_would_refuse(world: LocalWorld) -> None:
    def told(version: tuple[int, int]) -> str:
        sshd = replace(find_sshd(), version=version)
        return config(sshd, account(), world.host(0), Place("127.0.0.1", 2222), world.paths.session, "mark")

    assert "PerSourcePenalties no" in told((9, 8))
    assert "PerSourcePenalties no" in told((10, 0))
    assert "PerSourcePenalties" not in told((9, 7))
