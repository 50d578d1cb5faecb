"""Every form of a known_hosts line means to orch what it means to OpenSSH, by its own ssh-keygen."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.own_ssh import Person, run_program
from support.sshd import Farm, sshd_farm

from orchestrator.hosts import Failure
from orchestrator.remote.known_hosts import read_known_hosts

# In each: {key} is a key, {kind} and {blob} its words, {other} another key. Some cannot be read, and hide no other.
_FORMS = {
    "words apart by tabs": "box\t{kind}\t{blob}\n",
    "words apart by several blanks": "box  {kind} \t {blob}\n",
    "indented": " \tbox {key}\n",
    "no line end": "box {key}",
    "end of a line of Windows": "box {key}\r\n",
    "comment of a megabyte": "box {key} {long}\n",
    "comment that is not UTF-8": "box {key} \udcff\udce4\n",
    "comment with an ending that is none": "box {key} a\u2028box {other}\x0cbox {other}\n",
    "two keys of one kind": "box {key}\nbox {other}\n",
    "pattern": "b?x,other* {key}\n",
    "negated before": "!box,* {key}\n",
    "negated after": "*,!box {key}\n",
    "list of a megabyte": "{names}box {key}\n",
    "revoked": "@revoked box {key}\n",
    "revoked, apart by a tab": "@revoked\tbox\t{kind}\t{blob}\n",
    "revoked, apart by several blanks": "@revoked  box {key}\n",
    "revoked, indented": " @revoked * {key}\n",
    "revoked and accepted": "box {key}\n@revoked * {key}\n",
    "unknown marker": "@other box {key}\n",
}
_BROKEN = {
    "hash that is no base64": "|1|x|y {other}\n",
    "hash without its end": "|1| {other}\n",
    "hash of three bytes": "|1|YWJj|YWJj {other}\n",
    "hash that is not ASCII": "|1|\u00fc|y {other}\n",
    "key that is no base64": "box {kind} %%%%\n",
    "key of another kind": "box ssh-rsa {blob}\n",
    "key of version 1": "box 1024 35 1234567\n",
    "empty names": ", {other}\n",
    "too few words": "box\nbox ssh-ed25519\n@revoked\n",
    "not UTF-8": "\udcff\udce4 \udcff\n",
}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("key", "other"):
        run_program("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    key, other = (" ".join((folder / f"{name}.pub").read_text().split()[:2]) for name in ("key", "other"))
    kind, blob = key.split()
    names = "".join(f"host{number}," for number in range(100_000))
    return {"key": key, "other": other, "kind": kind, "blob": blob, "long": "x" * 1_000_000, "names": names}


def _write(folder: Path, text: str) -> Path:
    file = folder / "known_hosts"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    return file


@pytest.mark.parametrize("form", _FORMS)
def test_form_means_what_it_means_to_openssh(keys: Mapping[str, str], tmp_path: Path, form: str) -> None:
    file = _write(tmp_path, _FORMS[form].format_map(keys))
    found_by_ssh = subprocess.run(["ssh-keygen", "-F", "box", "-f", str(file)], capture_output=True, check=False)
    lines = [line.split() for line in found_by_ssh.stdout.splitlines() if not line.startswith(b"#")]
    revoked = {line[3] for line in lines if line[0] == b"@revoked"}
    accepted = {line[2] for line in lines if not line[0].startswith(b"@")}
    found = read_known_hosts([file], "box")
    assert {b64encode(blob) for _, blob in found.accepted} == accepted
    assert {b64encode(blob) for blob in found.revoked} == revoked


@pytest.mark.parametrize("form", _BROKEN)
def test_line_that_cannot_be_read_hides_no_other(keys: Mapping[str, str], tmp_path: Path, form: str) -> None:
    file = _write(tmp_path, (_BROKEN[form] + "box {key}\n").format_map(keys))
    assert [b64encode(blob).decode() for _, blob in read_known_hosts([file], "box").accepted] == [keys["blob"]]


# ---- whole connections


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with sshd_farm(tmp_path_factory.mktemp("forms"), 1) as farm:
        yield farm


@pytest.fixture
def person(tmp_path: Path, farm: Farm, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (farm.hosts[0].folder / "authorized_keys").write_text("")
    person = Person(tmp_path / "home", farm)
    person.make_key("id_ed25519")
    return person


@pytest.mark.parametrize("setting", ['"{folder}/known keys" /dev/null', "/dev/null {folder}/%k.keys", "${{KEYS}}/mine"])
def test_files_of_the_configuration_are_found(
    person: Person, farm: Farm, keys: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    host = farm.hosts[0]
    monkeypatch.setenv("KEYS", str(person.ssh))
    for name in ("known keys", f"{host.ip}.keys", "mine"):
        (person.ssh / name).write_text(f"[{host.ip}]:{host.port} {keys['other']}\n")
    person.configure(f"Host *\n  UserKnownHostsFile {setting.format(folder=person.ssh)}\n")
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.IDENTITY
    assert "your known_hosts has SHA256:" in outcome.detail


@pytest.mark.parametrize("form", ["list", "key revocation list"])
def test_revoked_host_keys_of_the_configuration_are_refused(person: Person, farm: Farm, form: str) -> None:
    host = farm.hosts[0]
    listed = person.ssh / "revoked"
    person.configure(f"Host *\n  RevokedHostKeys {listed}\n")
    (person.home / "key.pub").write_text(f"{host.address.host_key}\n")
    for file, refused in ((person.ssh / "id_ed25519.pub", False), (person.home / "key.pub", True)):
        listed.write_text(file.read_text())
        if form != "list":
            run_program("ssh-keygen", "-q", "-k", "-f", str(listed), str(file))
        outcome = person.run(person.host(0)).hosts[0].outcome
        assert (outcome.failure is Failure.IDENTITY) == refused, outcome
        assert (f"which {listed} revokes" in outcome.detail) == refused


def test_revoked_host_keys_that_cannot_be_read_refuse_every_host(person: Person) -> None:
    person.configure(f"Host *\n  RevokedHostKeys {person.ssh}/absent\n")
    outcome = person.run(person.host(0)).hosts[0].outcome
    assert outcome.failure is Failure.IDENTITY
    assert "absent cannot be read" in outcome.detail
