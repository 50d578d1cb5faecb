"""Changing commands of a computer without a store, through a real service with its engine."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.counting_relay import CountingRelay, counting_relay
from support.orch_process import Orch, until
from support.service_site import Served, log_in, record_run, serve

from orchestrator.acting import acting_as
from orchestrator.store.store import Store

pytestmark = pytest.mark.slow  # processes of orch, 0.8 CPU s each
HERE = ("--infra", "local:1")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A service, and a computer of ada that is logged in to it through a relay."""

    site: Served
    ada: Orch
    relay: CountingRelay

    def events(self) -> list[Any]:
        return list(self.site.ask("/v1/events?limit=1000").document["events"])

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command that must leave no store on ada's computer."""
        done = self.ada(*words)
        assert not (self.ada.state / "orch.db").exists(), words
        return done


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("served")
    service = Orch(folder / "service")
    service.folder.mkdir()
    allowed = ("infra:local", f"file://{folder}/ada/bucket")
    words = [word for name in allowed for word in ("--allow", name)]
    with serve(service, *words, page_only=False) as site, counting_relay(site.port) as relay:
        yield Pair(site=site, ada=log_in(site, folder / "ada", relay.port), relay=relay)


def write_project(folder: Path, run: str) -> None:
    (folder / "project" / "sub").mkdir(parents=True, exist_ok=True)
    (folder / "project" / "a.txt").write_text("A\n")
    (folder / "project" / "sub" / "run.sh").write_text("#!/bin/sh\necho from a program\n")
    (folder / "project" / "sub" / "run.sh").chmod(0o755)
    (folder / "project" / "left-out.bin").write_text("no\n")
    (folder / "project" / ".orchignore").write_text("left-out.bin\n")
    (folder / "my data.txt").write_text("D\n")
    mounts = "file_mounts: {~/orch_workdir/data.txt: './my data.txt'}"
    task = f"name: mine\nworkdir: ./project\n{mounts}\nresources: {{infra: 'local:1'}}\nenvs: {{FROM: null}}\n"
    (folder / "task.yaml").write_text(f"{task}run: |\n  {run}\n")


def test_a_launch_sends_its_files_once_and_ends_as_its_run(pair: Pair) -> None:
    out = pair.ada.folder / "out"
    write_project(pair.ada.folder, f'(cat a.txt data.txt; sub/run.sh; echo "$FROM"; ls) >> {out}; [ "$FROM" != 3 ]')
    before = pair.events()
    dry = pair.run("launch", "task.yaml", "--env", "FROM=1", "--dry-run", "-v")
    assert dry.returncode == 0, dry.stderr
    assert str(pair.ada.folder / "project") in dry.stdout and "orch-tree" not in dry.stdout
    assert "To do it: orch launch task.yaml --env FROM=1\n" in dry.stdout
    assert pair.events() == before, "a preview changes nothing"
    assert pair.relay.count("PUT", "/") == pair.relay.count("POST", "/v1/orders") == 0, "and sends no file"

    done = pair.run("launch", "task.yaml", "--env", "FROM=1")
    assert done.returncode == 0, done.stderr
    assert out.read_text() == "A\nD\nfrom a program\n1\na.txt\ndata.txt\nsub\n"
    assert "job 1 on 'mine' succeeded on 1 host" in done.stderr and "starting the program on 1 host" in done.stderr
    assert "1 host keeps running until: orch down mine" in done.stderr
    assert pair.relay.count("PUT", "/v1/blobs/") == 2

    again = pair.run("launch", "task.yaml", "--env", "FROM=2", "-o", "json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["message"] == "job 2 on 'mine' succeeded on 1 host"
    assert pair.relay.count("PUT", "/v1/blobs/") == 2, "an unchanged tree sends nothing"

    (pair.ada.folder / "project" / "a.txt").write_text("other\n")
    failed = pair.run("launch", "task.yaml", "--env", "FROM=3")
    assert failed.returncode == 1 and "error[program-failed]: job 3 failed on head (rank 0): exit 1" in failed.stderr
    assert pair.relay.count("PUT", "/v1/blobs/") == 3, "only what changed"
    assert "other" in out.read_text()
    down = pair.run("down", "mine")
    assert (down.returncode, "cluster 'mine' is deleted" in down.stderr) == (0, True)
    assert pair.run("down", "mine").returncode == 0
    assert pair.site.ask("/v1/clusters").document["clusters"] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_commands_end_with_the_statuses_that_they_have_without_a_service(pair: Pair, tmp_path: Path) -> None:
    local = Orch(tmp_path)
    lines = (
        ("launch", *HERE, "exit 7", "-c", "one"),
        ("launch", *HERE, "exit 0", "-c", "one", "--num-nodes", "2"),
        ("launch", "--infra", "local:2", "exit 0", "-c", "one"),
        ("launch", *HERE, "exit 0", "-c", "One"),
        ("launch", *HERE, "exit 0", "-c", "one", "--dry-run"),
        ("stop", "one"),
        ("start", "one"),
        ("cancel", "one"),
        ("cancel", "one", "9"),
        ("resume", "one"),
        ("resume", "none"),
        ("stop", "none"),
        ("down", "none", "one"),
        ("down", "one"),
        ("launch", "task-that-is-absent.yaml"),
        ("launch", "--infra", "gcp", "--accelerators", "v5litepod-8", "true", "-c", "rented"),
    )
    for line in lines:
        here, there = local(*line), pair.run(*line)
        assert here.returncode == there.returncode, (line, here.stderr, there.stderr)
        assert errors_of(here) == errors_of(there), line
    assert pair.site.ask("/v1/clusters").document["clusters"] == []


def errors_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines of errors, without the parts of a run's id that are chance."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("error[")]
    return [re.sub(r"-\d{8}-\d{6}-\w{4}", "-ID", line) for line in lines]


@pytest.mark.parametrize(
    "words",
    [
        ("launch", *HERE, "true", "--force-setup"),
        ("launch", *HERE, "true", "--accept-host-key"),
        ("launch", *HERE, "true", "--secret", "A=not-to-be-sent"),
        ("launch", *HERE, "true", "--dry-run", "--compile"),
        ("launch", "true"),
        ("launch", "two.yaml"),
        ("resume", "x", "--force"),
        ("resume", "x", "--no-down"),
        ("resume", "x", "--bucket", "gs://b"),
    ],
)
def test_what_an_order_cannot_do_is_refused_before_anything_is_sent(pair: Pair, words: tuple[str, ...]) -> None:
    (pair.ada.folder / "two.yaml").write_text("run: 'true'\nresources: {infra: local}\n---\nrun: 'true'\n")
    before = sum(pair.relay.requests.values())
    done = pair.run(*words)
    assert done.returncode == 2 and "service" in done.stderr and "next:" in done.stderr, done.stderr
    assert "not-to-be-sent" not in done.stderr
    assert sum(pair.relay.requests.values()) == before


def test_machines_that_cost_money_need_consent(pair: Pair) -> None:
    words = ("launch", "--infra", "gcp", "--accelerators", "v5litepod-8", "true", "-c", "rented")
    orders = pair.relay.count("POST", "/v1/orders")
    done = pair.run(*words)
    assert done.returncode == 2 and "there is no terminal to ask on" in done.stderr and "/h" in done.stderr
    assert pair.run(*words, "--dry-run").returncode == 0
    assert pair.relay.count("POST", "/v1/orders") == orders


def test_a_command_that_is_interrupted_leaves_the_run_and_says_so(pair: Pair) -> None:
    watching = pair.ada.start("launch", *HERE, "sleep 300", "-c", "long")
    until("it runs", lambda: running_jobs(pair.site, "long") == ["running"])
    watching.send_signal(signal.SIGINT)
    _, said = watching.communicate(timeout=30)
    assert watching.returncode == 130 and "the run continues at the service" in said and "orch cancel long" in said
    queued = pair.run("launch", *HERE, "echo second", "-c", "long", "-d")
    assert queued.returncode == 0 and "job 2 is queued on 'long'" in queued.stderr
    everything = pair.run("cancel", "long", "--all")
    assert everything.returncode == 0, everything.stderr
    assert running_jobs(pair.site, "long") == []
    assert pair.run("down", "--all", "--yes").returncode == 0
    assert pair.site.ask("/v1/clusters").document["clusters"] == []


def running_jobs(site: Served, cluster: str) -> list[str]:
    return [one["state"] for one in site.ask("/v1/queue").document["jobs"] if one["cluster"] == cluster]


def test_a_cluster_of_another_member_needs_force_and_an_owner(pair: Pair) -> None:
    assert pair.run("launch", *HERE, "true", "-c", "adas").returncode == 0
    bob = log_in(pair.site, pair.ada.folder.parent / "bob", pair.site.port)
    olga = log_in(pair.site, pair.ada.folder.parent / "olga", pair.site.port, "owner")
    vera = log_in(pair.site, pair.ada.folder.parent / "vera", pair.site.port, "viewer")
    assert vera("down", "adas").returncode == 4, "a viewer changes nothing"
    for other in (bob, olga):
        refused = other("down", "adas")
        assert refused.returncode == 6 and "belongs to ada" in refused.stderr, refused.stderr
    assert bob("down", "adas", "--force").returncode == 6
    assert bob("launch", *HERE, "true", "-c", "adas").returncode == 6
    for status, other in ((6, bob), (0, olga)):
        done = other("exec", "adas", "--force", "--", "echo from another")
        assert done.returncode == status and ("from another" in done.stdout) is (other is olga), done.stderr
    assert olga("down", "adas", "--force").returncode == 0


def test_a_resume_has_the_files_of_its_launch(pair: Pair) -> None:
    out, bucket = pair.ada.folder / "resumed", pair.ada.folder / "bucket"
    write_project(pair.ada.folder, f"cat a.txt data.txt >> {out}; [ $(grep -c D {out}) = 2 ]")
    failed = pair.run("launch", "task.yaml", "--env", "FROM=1", "--bucket", f"file://{bucket}", "-c", "again")
    assert failed.returncode == 1, failed.stderr
    (pair.ada.folder / "project" / "a.txt").unlink()
    bob = pair.site.orch.ok("token", "create", "bob-2", "--member", "bob").strip()
    run = pair.site.ask("/v1/runs").document["runs"][0]["run_id"]
    body = json.dumps({"verb": "resume", "run": run, "cluster": "bobs"}).encode()
    headers: dict[str, Any] = {"content_type": "application/json", "authorization": f"Bearer {bob}"}
    stolen = pair.site.ask("/v1/plans", method="POST", body=body, **headers)
    assert (stolen.status, "belongs to ada" in stolen.text) == (409, True), "not on a cluster of another member"
    resumed = pair.run("resume", "again", "--down")
    assert resumed.returncode == 0, resumed.stderr
    assert out.read_text() == "A\nD\nA\nD\n"
    assert pair.site.ask("/v1/clusters").document["clusters"] == [], "--down is part of the end"


def test_a_command_goes_on_when_the_service_was_killed(tmp_path: Path) -> None:
    service = Orch(tmp_path / "service")
    service.folder.mkdir()
    gate = tmp_path / "gate"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with serve(service, "--port", port, "--allow", "infra:local", page_only=False) as site:
        ada = log_in(site, tmp_path / "ada", site.port)
        script = f"until [ -e {gate} ]; do sleep 0.1; done; exit 5"
        watching = ada.start("launch", *HERE, script, "-c", "kept")
        until("it runs", lambda: running_jobs(site, "kept") == ["running"])
        site.process.kill()
        site.process.wait(10)
        with serve(service, "--port", port, "--allow", "infra:local", page_only=False) as next_site:
            until("it is driven again", lambda: running_jobs(next_site, "kept") == ["running"])
            gate.touch()
            _, said = watching.communicate(timeout=90)
            assert watching.returncode == 5, said
            assert "job 1 failed on head (rank 0): exit 5" in said
            assert ada("down", "kept").returncode == 0


def test_the_end_of_running_jobs_needs_consent_on_a_terminal(tmp_path: Path) -> None:
    service = Orch(tmp_path / "service")
    service.folder.mkdir()
    with acting_as("ada"), Store(service.state / "orch.db") as store:
        record_run(store, "busy", "busy-run", ended=False)
    with serve(service) as site:
        ada = log_in(site, tmp_path / "ada", site.port)
        near, far = os.openpty()
        process = subprocess.Popen(
            ada.command("down", "busy"), stdin=far, stdout=far, stderr=far, env=ada.env, cwd=ada.folder
        )
        os.close(far)
        said = b""
        while b"delete the hosts?" not in said:
            said += os.read(near, 1000)
        assert b"is running on 'busy'" in said
        os.write(near, b"n\n")
        assert process.wait(30) == 1
        os.close(near)
        assert site.ask("/v1/orders").document["orders"] == []
