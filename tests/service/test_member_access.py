"""Commands that reach hosts, from a computer without a store, through a real service with its engine and real sshd."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import jsonschema
import pytest
from support.jupyter import JUPYTER, PUT_JUPYTER
from support.orch_process import Orch, until
from support.service_site import Reply, Served, serve

from orchestrator.remote.keys import make_host_key
from orchestrator.service.openapi import load_schema
from orchestrator.store.token_records import digest_token

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
FORWARD = ("forward", "mine", "47123:80")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A service, and computers that are logged in to it; ada has launched 'mine' with two hosts."""

    site: Served
    folder: Path

    def computer(self, name: str, member: str, role: str = "member") -> Orch:
        """Return a new computer of a member."""
        folder, url = self.folder / name, f"http://127.0.0.1:{self.site.port}"
        folder.mkdir()
        secret = self.site.orch.ok("token", "create", name, "--member", member, "--role", role)
        orch = Orch(folder)
        orch.ok("login", url, "--token-stdin", stdin=secret)
        return Orch(folder, {"ORCH_SERVER": url})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("access")
    service = Orch(folder / "service")
    service.folder.mkdir()
    with serve(service, "--allow", "infra:local", page_only=False) as site:
        yield Place(site=site, folder=folder)


@pytest.fixture(scope="module")
def ada(place: Place) -> Iterator[Orch]:
    """ada's computer; she has launched 'mine'."""
    orch = place.computer("ada", "ada")
    orch.ok("launch", "--infra", "local:2", "true", "-c", "mine")
    yield orch
    orch.ok("down", "mine")


def test_a_member_reaches_the_hosts_of_their_cluster(place: Place, ada: Orch) -> None:
    done = ada("ssh", "mine", "1", "--", "echo there; exit 7")
    assert (done.returncode, done.stdout) == (7, "there\n"), done.stderr
    (ada.folder / "file").write_text("content")
    ada.ok("cp", "file", "mine:kept/")
    ada.ok("cp", "mine/1:kept/file", "back")
    assert (ada.folder / "back").read_text() == "content"
    config = ada.folder / "config"
    config.write_text(ada.ok("ssh-config", "mine"))
    with_ssh = subprocess.run(
        ["ssh", "-F", str(config), "mine-1", "cat", "kept/file"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (with_ssh.returncode, with_ssh.stdout) == (0, "content"), with_ssh.stderr
    assert not (ada.state / "orch.db").exists()
    orders = [one for one in place.site.ask("/v1/orders").document["orders"] if one["verb"] == "access"]
    assert len(orders) == 1 and orders[0]["member"] == "ada", "the same key asks once"


def test_exec_prints_and_ends_as_without_a_service(place: Place, ada: Orch) -> None:
    (ada.folder / "work").mkdir()
    (ada.folder / "work" / "a.txt").write_text("sent\n")
    (ada.folder / "work" / ".orchignore").write_text("b.txt\n")
    (ada.folder / "work" / "b.txt").write_text("kept\n")
    mine, theirs = ada, place.site.orch
    lines = (
        ("exec", "mine", "--", 'echo "$ORCH_NODE_RANK" "$WORD"; exit $ORCH_NODE_RANK'),
        ("exec", "mine", "--host", "1", "--no-prefix", "--", "echo one"),
        ("exec", "mine", "--head", "--workdir", str(ada.folder / "work"), "--", "cat a.txt"),
        ("exec", "mine", "--host", "7", "--", "true"),
        ("exec", "none", "--", "true"),
    )
    for line in lines:
        there, here = mine(*line), theirs(*line)
        assert (there.returncode, sorted(there.stdout.splitlines())) == (
            here.returncode, sorted(here.stdout.splitlines()),
        ), (line, there.stderr, here.stderr)  # fmt: skip
        left = "the workdir is sent without what .orchignore excludes: 1 file, 5 B (b.txt 5 B)"
        assert (left in there.stderr) == (left in here.stderr) == ("--workdir" in line), (there.stderr, here.stderr)
    secret = mine("exec", "mine", "--head", "--secret", "WORD=hidden-word", "--", 'test "$WORD" = hidden-word')
    assert secret.returncode == 2 and "an order is kept on record" in secret.stderr, secret.stderr
    assert "hidden-word" not in json.dumps(place.site.ask("/v1/orders").document)
    done = json.loads(mine.ok("exec", "mine", "--head", "-o", "json", "--", "true"))
    assert done["status"] == 0 and f"job {done['job']} on 'mine' succeeded" in done["message"]
    assert "cat a.txt" in mine.ok("exec", "mine", "--dry-run", "-v", "--", "cat a.txt")
    left = mine("exec", "mine", "-d", "--head", "--", "echo later; exit 3")
    number = re.search(r"orch logs -f mine (\d+)", left.stderr)
    assert left.returncode == 0 and number is not None, left.stderr
    followed = mine("logs", "-f", "mine", number[1], "--no-prefix")
    assert (followed.returncode, followed.stdout) == (3, "later\n"), followed.stderr
    assert [job for job in place.site.ask("/v1/queue").document["jobs"] if job["cluster"] == "mine"] == []


def test_a_command_that_is_interrupted_continues_until_it_is_cancelled(ada: Orch) -> None:
    process = ada.start("exec", "mine", "--head", "--no-prefix", "--", "echo $$; exec sleep 600")
    assert process.stdout is not None
    number = int(process.stdout.readline())
    os.kill(number, 0)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=90)
    found = re.search(r"stopped watching; job (\d+) continues at the service", said)
    assert process.returncode == 130 and found is not None, said
    os.kill(number, 0)
    ada.ok("cancel", "mine", found[1])
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_top_shows_the_hosts(ada: Orch) -> None:
    shown: Any = json.loads(ada.ok("top", "mine", "-o", "json"))
    assert [host["contact"] for host in shown["hosts"]] == [True, True]


def test_a_forwarded_port_reaches_a_program_on_the_host(ada: Orch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        process = ada.start("forward", "mine", f"{port}:{server.getsockname()[1]}")
        assert process.stdout is not None
        assert process.stdout.readline() == f"http://127.0.0.1:{port}\n"
        with socket.create_connection(("127.0.0.1", port), 30) as here:
            there, _ = server.accept()
            with there:
                here.sendall(b"through")
                assert there.recv(7) == b"through"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130


def test_a_notebook_stays_until_its_job_is_cancelled(place: Place, ada: Orch) -> None:
    missing = ada("notebook", "mine", "--host", "1")
    assert missing.returncode == 7 and "jupyter is not installed on host 1" in missing.stderr, missing.stderr
    assert "next: orch exec mine --host 1 -- python3 -m pip install jupyterlab" in missing.stderr
    ada.ok("ssh", "mine", "0", "--", PUT_JUPYTER, stdin=JUPYTER)
    process = ada.start("notebook", "mine")
    assert process.stdout is not None and process.stderr is not None
    url = process.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:"), process.stderr.read()
    with urlopen(url, timeout=60) as answer:
        assert answer.status == 200
    with pytest.raises(HTTPError):
        urlopen(url.partition("?")[0], timeout=60)
    token = url.partition("token=")[2]
    assert token not in subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=90)
    found = re.search(r"the notebook continues; .* end it: orch cancel mine (\d+)", said)
    assert process.returncode == 130 and found is not None, said
    second = ada.start("notebook", "mine")
    assert second.stdout is not None
    assert second.stdout.readline().partition("token=")[2].strip() == token, "one that runs is used"
    second.send_signal(signal.SIGINT)
    assert second.wait(90) == 130
    for file in (*place.site.orch.state.rglob("*"), *ada.state.rglob("*")):
        if file.is_file() and "home" not in file.parts:
            assert token.encode() not in file.read_bytes(), file
    ada.ok("cancel", "mine", found[1])


TRAINER = r"""
mkdir -p $ORCH_HOST_DIR/trainer/trainer; touch $ORCH_HOST_DIR/trainer/trainer/profiling.py "$ORCH_HEARTBEAT_FILE"
until id=$(grep -o '"id": "[^"]*' "$ORCH_JOB_DIR/profile-request.json" 2>/dev/null); do sleep 0.2; done
place=$ORCH_JOB_DIR/profiles/${id##*\"}; mkdir -p "$place/rank-0"
echo '{"traceEvents": []}' >"$place/rank-0/trace.json"; echo '{}' >"$place/done-0.json"; sleep 600"""


def test_a_profile_is_downloaded_from_the_hosts(ada: Orch) -> None:
    ada.ok("launch", "--infra", "local:1", "-c", "steps", "-d", f"# as python -m trainer{TRAINER}")
    until("it runs", lambda: '"running"' in ada.ok("queue", "-o", "json"))
    folder = Path(ada.ok("profile", "steps", "--steps", "2", "--into", "made").strip())
    assert (ada.folder / folder / "rank-0" / "trace.json").exists()
    ada.ok("cancel", "steps")
    ada.ok("launch", "--infra", "local:1", "-c", "steps", "-d", "sleep 600")
    until("it runs", lambda: '"running"' in ada.ok("queue", "-o", "json"))
    refused = ada("profile", "steps")
    assert refused.returncode == 2 and "job 2 on 'steps' is not the bundled trainer" in refused.stderr, refused.stderr
    ada.ok("down", "steps", "--yes")
    idle = ada("profile", "mine")
    assert idle.returncode == 6 and "no job runs on 'mine'" in idle.stderr


def ask(place: Place, secret: str, cluster: str = "mine", **more: Any) -> Reply:
    """Ask for access with a new key, or the one that is given."""
    body = json.dumps({"public_key": make_host_key()[1]} | more).encode()
    return place.site.ask(
        f"/v1/clusters/{cluster}/access", method="POST", body=body, content_type="application/json",
        authorization=f"Bearer {secret}",
    )  # fmt: skip


def make_token(place: Place, name: str, member: str, role: str = "member") -> str:
    return str(place.site.orch.ok("token", "create", name, "--member", member, "--role", role)).strip()


@pytest.mark.usefixtures("ada")
def test_only_the_member_of_a_cluster_and_owners_are_let_in(place: Place) -> None:
    bob, vera = make_token(place, "bob", "bob"), make_token(place, "vera", "vera", "viewer")
    mine, olga = make_token(place, "ada-2", "ada"), make_token(place, "olga", "olga", "owner")
    before = [one["id"] for one in place.site.ask("/v1/orders").document["orders"]]
    refused = ask(place, bob)
    assert (refused.status, "belongs to ada" in refused.text) == (409, True)
    assert ask(place, vera).status == 403
    assert ask(place, mine, uid="0" * 32).status == 404, "another cluster that has the name now"
    assert ask(place, mine, "none").status == 404
    assert ask(place, "orch_wrong").status == 401
    for key in (
        "ssh-ed25519 AAAA",
        f'command="x" {make_host_key()[1]}',
        f"{make_host_key()[1]}\nssh-rsa A",
        "",
        "x" * 9,
    ):
        assert ask(place, mine, public_key=key).status == 400, key
    for seconds in (0, -5, 86_401, 1e300):
        assert ask(place, mine, seconds=seconds).status == 400, seconds
    assert [one["id"] for one in place.site.ask("/v1/orders").document["orders"]] == before
    granted = ask(place, olga)
    assert granted.status == 200
    jsonschema.validate(granted.document, load_schema("access"))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A key that was let in, and how real ssh uses it."""

    identity: Path
    host: dict[str, Any]

    def works(self, *options: str) -> bool:
        known = self.identity.with_suffix(".known")
        known.write_text(f"{self.host['alias']} {self.host['host_key']}\n")
        words = [
            "ssh",
            "-F",
            "none",
            "-i",
            str(self.identity),
            "-p",
            str(self.host["port"]),
            "-o",
            "IdentitiesOnly=yes",
        ]
        words += ["-o", "IdentityAgent=none", "-o", "BatchMode=yes", "-o", f"HostKeyAlias={self.host['alias']}"]
        words += ["-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={known}", *options]
        target = f"{self.host['user']}@{self.host['host']}"
        done = subprocess.run([*words, target, "true"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0 or "Permission denied" in done.stderr, done.stderr
        return done.returncode == 0


def enter(place: Place, secret: str, **more: Any) -> Entry:
    """Return a new key when the hosts admit it."""
    private, public = make_host_key()
    answer = ask(place, secret, public_key=public, **more)
    assert answer.status == 200, answer.text
    order = answer.document["order"]
    until("the key is written", lambda: place.site.ask(f"/v1/orders/{order}").document["state"] == "ended")
    ended = place.site.ask(f"/v1/orders/{order}").document
    assert ended["status"] == 0 and answer.document["key"] in ended["what"], ended
    identity = place.folder / f"key-{order}"
    identity.write_text(private)
    identity.chmod(0o600)
    return Entry(identity=identity, host=answer.document["hosts"][0])


@pytest.mark.usefixtures("ada")
def test_a_key_ends_at_its_time_and_with_the_token_of_its_member(place: Place) -> None:
    short, long = make_token(place, "short", "ada"), make_token(place, "long", "ada")
    lasting, revoked = enter(place, short), enter(place, long)
    passing = enter(place, short, seconds=10)
    assert lasting.works() and revoked.works()
    until("sshd refuses the key after its time", lambda: not passing.works())
    place.site.orch.ok("token", "revoke", "long")
    until("the engine takes the key off", lambda: not revoked.works())
    assert lasting.works(), "others stay"
    assert ask(place, long).status == 401
    events = place.site.ask("/v1/events?limit=1000").document["events"]
    said = [one["what"] for one in events if "may log in to the hosts of 'mine'" in one["what"]]
    assert all("for ada: ada may log in" in what or "for olga" in what for what in said) and said
    text = json.dumps([one for one in events if one["kind"] == "order"])
    assert not any(secret in text for secret in (short, long, digest_token(short), digest_token(long)))


def test_another_host_key_than_the_recorded_one_is_refused(place: Place, ada: Orch) -> None:
    ada.ok("ssh", "mine", "--", "true")
    with sqlite3.connect(place.site.orch.state / "orch.db") as store:
        (hosts,) = store.execute("SELECT hosts FROM clusters WHERE name = 'mine' AND gone IS NULL").fetchone()
        wrong = json.dumps([host | {"host_key": make_host_key()[1]} for host in json.loads(hosts)])
        store.execute("UPDATE clusters SET hosts = ? WHERE name = 'mine' AND gone IS NULL", (wrong,))
    try:
        for words in (("ssh", "mine", "--", "true"), ("cp", "mine:x", "y"), FORWARD):
            done = ada(*words)
            assert done.returncode not in (0, 1), (words, done.stderr)
            assert "verification failed" in done.stderr or "pinned is" in done.stderr, done.stderr
    finally:
        with sqlite3.connect(place.site.orch.state / "orch.db") as store:
            store.execute("UPDATE clusters SET hosts = ? WHERE name = 'mine' AND gone IS NULL", (hosts,))
    assert ada("ssh", "mine", "--", "true").returncode == 0


def test_access_goes_on_after_a_restart(tmp_path: Path) -> None:
    service = Orch(tmp_path / "service")
    service.folder.mkdir()
    with serve(service, "--allow", "infra:local", page_only=False) as site:
        first = Place(site=site, folder=tmp_path)
        secret = make_token(first, "ada", "ada")
        orch = first.computer("ada-laptop", "ada")
        orch.ok("launch", "--infra", "local:1", "true", "-c", "mine")
        kept = enter(first, secret)
        assert kept.works()
    service.ok("token", "revoke", "ada")
    assert kept.works(), "no engine works now"
    with serve(service, "--no-ssh", page_only=False) as site:
        until("the next engine takes the key off", lambda: not kept.works())
        second = Place(site=site, folder=tmp_path)
        refused = ask(second, make_token(second, "again", "ada"))
        assert (refused.status, "lets no member log in" in refused.text) == (403, True)
        service.ok("down", "mine", "--force")
