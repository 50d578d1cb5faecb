"""Read commands through a service: what they print is what they print on the store itself, byte for byte."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch
from support.served import served
from support.service_site import OUTCOMES, Served, record_run, save_steps, serve, write_points
from support.terminal import on_terminal

from orchestrator.__main__ import main
from orchestrator.acting import acting_as
from orchestrator.cli.app import SECTIONS
from orchestrator.cli.execution.served_commands import LOCAL, REFUSED, SERVED, refuse_without_store
from orchestrator.client.logins import keep_login
from orchestrator.client.transport import ServiceError
from orchestrator.clock import SteadyClock
from orchestrator.documents.output_parts import decode_output
from orchestrator.engine.loop.follow import LogFiles
from orchestrator.errors import UserError
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.store.leases import Lease
from orchestrator.store.read import Reader
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

TASK = json.dumps({"train": {"args": {"lr": "1e-3"}}, "envs": {"API_TOKEN": "canary-env"}})
HEAVY = ("pydantic", "sqlalchemy", "rich", "jinja2", "paramiko", "obstore", "boto3", "google", "yaml", "cryptography",
         "asyncio", "importlib.metadata")  # fmt: skip


# The service says the time of the file `now` beside this one, where there is one: documents have their time.
_HELD_CLOCK = """
from pathlib import Path
from orchestrator.clock import SteadyClock

def held(clock, real=SteadyClock.now, file=Path(__file__).with_name("now")):
    return float(file.read_text()) if file.exists() else real(clock)

SteadyClock.now = held
"""


@dataclass(frozen=True)
class Printed:
    status: int
    out: str
    err: str


@dataclass(frozen=True, kw_only=True)
class Team:
    """A service with records, and a member with the token of a viewer.

    now: the time at which commands are compared.
    """

    served: Served
    me: Orch
    secret: str
    now: float

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.served.port}"

    def store(self) -> Store:
        return Store(self.served.orch.state / "orch.db")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    for name in ("service", "me"):
        (folder / name).mkdir()
    clock = folder / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(_HELD_CLOCK)
    orch = Orch(folder / "service", {"PYTHONPATH": str(clock)})
    bucket = folder / "bucket"
    secret = orch.ok("token", "create", "bobs", "--member", "bob", "--role", "viewer").strip()
    held = _record(orch.state / "orch.db", bucket)
    with serve(orch) as served, held:
        me = Orch(folder / "me", {"ORCH_SERVER": f"http://127.0.0.1:{served.port}"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ORCH_HOME", str(folder / "me" / "orch"))
            keep_login(me.more["ORCH_SERVER"], secret)
        yield Team(served=served, me=me, secret=secret, now=time.time())


def _record(file: Path, bucket: Path) -> Store:
    """Record runs of two members, one deleted cluster, another project, a queue, a pipeline and a command at work."""
    with acting_as("ann"), Store(file) as store:
        record_run(store, "first", "one", f"file://{bucket}", attempts=2, task=TASK)
        record_run(store, "third", "three", f"file://{bucket}", status=3, task=TASK.replace("1e-3", "1e-4"))
        lease = store.acquire("cluster:third", "down")
        assert isinstance(lease, Lease)
        cluster = store.cluster("third")
        assert cluster is not None
        store.close_cluster(lease, cluster)
        store.release(lease)
        store.open_pipeline("both", (TASK, TASK), json.dumps({"project": "default", "owner": "ann"}))
    with acting_as("bob"), Store(file) as store:
        second = record_run(store, "second", "two", ended=False, task=TASK)
        store.queue_job(
            second,
            NewJob(kind="launch", run_id="next", digest="e", task=TASK, bucket="", ranks=None,
                   after_end=TeardownPolicy.KEEP, watch="engine", queued=True),
        )  # fmt: skip
        left = record_run(store, "fifth", "five")
        store.open_job(
            left,
            NewJob(kind="launch", run_id="six", digest="f", task=TASK, bucket="", ranks=None,
                   after_end=TeardownPolicy.KEEP, watch="engine"),
        )  # fmt: skip
    with acting_as("bob"), Store(file, project="vision") as store:
        record_run(store, "first", "other", task=TASK)
    for run_id, begin in (("one", 5.0), ("three", 4.0)):
        write_points(bucket, run_id, 1, [(step, time.time() + step, begin - step / 10) for step in range(1, 11)])
    save_steps(bucket, "one", [10])
    held = Store(file, lease_seconds=3600.0)
    assert isinstance(held.acquire("cluster:second", "launch"), Lease)
    return held


def run(home: Path, words: Sequence[str], **more: str) -> Printed:
    """Run one command line in this process."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("ORCH_")]:
            patch.delenv(name)
        for name, value in ({"ORCH_HOME": str(home)} | more).items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err):
            status = main(words)
    texts = [stream.buffer.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err)]
    return Printed(status, *texts)


def run_both(team: Team, words: Sequence[str], now: float, **more: str) -> tuple[Printed, Printed]:
    """Run a command as bob on the store itself, and through the service, at the same time of the clock."""
    held = Path(team.served.orch.more["PYTHONPATH"]) / "now"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: now)
        patch.setattr(SteadyClock, "now", lambda _clock: now)
        with acting_as("bob"):
            local = run(team.served.orch.folder / "orch", words, **more)
        held.with_name("new").write_text(repr(now))
        held.with_name("new").replace(held)
        try:
            return local, run(team.me.folder / "orch", words, ORCH_SERVER=team.url, **more)
        finally:
            held.unlink()


FORMS = ("", "-o json")
LINES = [
    *(
        f"{command} {form}".strip()
        for command in (
            "status", "status first", "status second", "status third", "status frist", "status --all",
            "status --all --owner me", "status --owner ann", "runs", "runs one", "runs on", "runs first",
            "runs one two", "runs -c first", "runs -c none", "runs --all --owner me --limit 1",
            "runs --compare one three", "runs --compare one", "runs --compare one none",
            "runs --compare a b c d e f g h i", "queue", "queue -a", "queue second", "queue none",
            "queue --all-projects --owner bob", "events", "events first", "events third --after 3", "events none",
            "events -n 4 --all", "events --all --owner bob", "cost", "cost --by owner,project --all --since all",
            "cost --by day,run", "cost --by what", "cost --owner me",
            "budget", "token", "offers --capacity", "offers --accuracy", "runs --limit 2", "events -n 1200",
            "cost --owner bobb", "events --owner none", "status --owner none",
        )
        for form in FORMS
    ),
    "events -o jsonl", "events -f -o json",
    "pull second x", "pull two x", "pull zzzz x", "pull onee x", "pull what x --bucket file:///none",
]  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_a_command_prints_what_it_prints_on_the_store(team: Team, line: str) -> None:
    local, served = run_both(team, line.split(), team.now)
    assert served == local
    assert (served.out or served.err) and "canary" not in served.out


@pytest.mark.parametrize("line", ["status", "runs -o json", "queue", "events", "cost", "status second"])
def test_the_project_is_chosen_as_ever(team: Team, line: str) -> None:
    for project in ("vision", "empty", "Wrong Name"):
        local, served = run_both(team, line.split(), team.now, ORCH_PROJECT=project)
        assert served == local


def test_who_is_at_work_and_what_came_since_are_shown(team: Team) -> None:
    assert f"process {os.getpid()} on" in run(team.me.folder / "orch", ["status", "second"], ORCH_SERVER=team.url).out
    with acting_as("ann"), team.store() as store:
        record_run(store, "fourth", "four", ended=False)
        cluster = store.cluster("fourth")
        assert cluster is not None
        for state in ("ready", "stopped"):  # the second changes no audited column
            store.note_state(cluster, state)
            local, served = run_both(team, ["status", "fourth"], time.time())
            assert served == local and state in served.out
        lease = store.acquire("cluster:fourth", "down")
        assert isinstance(lease, Lease)
        assert "(down)" in run(team.me.folder / "orch", ["status", "fourth"], ORCH_SERVER=team.url).out
        store.close_cluster(lease, cluster)
        store.release(lease)
    local, served = run_both(team, ["status", "fourth"], time.time())
    assert served == local and "was deleted" in served.err


def test_no_answer_is_an_error_and_never_an_old_state(team: Team) -> None:
    home = team.me.folder / "orch"
    assert run(home, ["status"], ORCH_SERVER=team.url).status == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(home))
        keep_login("http://127.0.0.1:9", "orch_x")
        keep_login(team.url, team.secret)
    away = run(home, ["status"], ORCH_SERVER="http://127.0.0.1:9/")
    assert (away.status, away.out) == (1, "") and "does not answer" in away.err and "next: curl" in away.err
    unknown = run(home, ["status"], ORCH_SERVER="https://other.example.org")
    assert unknown.status == 4 and "next: orch login https://other.example.org" in unknown.err


def test_a_token_that_was_taken_back_shows_nothing(team: Team, tmp_path: Path) -> None:
    orch = team.served.orch
    secret = orch.ok("token", "create", "short", "--member", "eve", "--role", "viewer").strip()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORCH_HOME", str(tmp_path))
        keep_login(team.url, secret)
    lines = (["status"], ["runs", "--compare", "one", "three"])
    assert [run(tmp_path, line, ORCH_SERVER=team.url).status for line in lines] == [0, 0]
    orch.ok("token", "revoke", "short")
    for line in lines:
        refused = run(tmp_path, line, ORCH_SERVER=team.url)
        assert (refused.status, refused.out) == (4, "") and f"orch login {team.url}" in refused.err


def keep_output(team: Team, name: str, folder: str, rank: int, content: bytes) -> None:
    """Add to what the engine of the service has kept of job 1."""
    with Reader(team.served.orch.state / "orch.db") as reader:
        record = reader.cluster(name) or reader.deleted_cluster(name)
        assert record is not None
    files = LogFiles(team.served.orch.state / "logs" / record.uid / "1" / folder)
    files.write(rank, content)
    files.close()


@pytest.fixture(scope="module")
def kept(team: Team) -> Team:
    """Keep output of two attempts and a setup of 'first', and long output of 'third', which is deleted."""
    for rank in (0, 1):
        keep_output(team, "first", "attempt-0001", rank, b"begin\nloss 3.0\nno end of line")
        keep_output(team, "first", "attempt-0002", rank, f"again {rank}\nloss 2.0\nend\n".encode())
    keep_output(team, "first", "setup-x", 0, b"pip install\n")
    keep_output(team, "third", "attempt-0001", 0, bytes(range(256)) + b"a line of many\n" * 400_000)
    return team


OUTPUT = ["first", "first 1 --host 1", "first --tail 1", "first --no-prefix", "first -o json", "first -o jsonl",
          "first --grep loss", "first --since 1h", "first --setup", "third --host 0", "first -f",
          "third -f --tail 2"]  # fmt: skip


@pytest.mark.parametrize("line", OUTPUT)
def test_output_that_the_engine_kept_is_shown(kept: Team, line: str) -> None:
    local, served = run_both(kept, ["logs", *line.split()], kept.now)
    assert (served.status, served.out) == (local.status, local.out) and served.out
    assert served.err == local.err


@pytest.mark.parametrize("line", ["none", "first 9", "first --host 7", "frist", "third -f -o json"])
def test_output_that_is_not_there_is_the_same_error(kept: Team, line: str) -> None:
    local, served = run_both(kept, ["logs", *line.split()], kept.now)
    assert served == local and served.status in (2, 3)


def test_a_job_without_kept_output_says_where_else_it_may_be(team: Team) -> None:
    said = run(team.me.folder / "orch", ["logs", "fifth", "1"], ORCH_SERVER=team.url)
    assert (said.status, said.out) == (3, "") and "there is no output of job 1 on 'fifth'" in said.err


def test_output_is_followed_until_the_job_ends(team: Team) -> None:
    with acting_as("bob"), team.store() as store:
        cluster = record_run(store, "long", "long", ended=False)
        keep_output(team, "long", "attempt-0001", 0, b"one\n")
        process = team.me.start("logs", "long", "-f", "--no-prefix")
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "one\n"
            keep_output(team, "long", "attempt-0001", 0, b"two\n")
            assert process.stdout.readline() == "two\n"
            keep_output(team, "long", "attempt-0001", 1, b"of another host\n")
            assert process.stdout.readline() == "of another host\n"
            store.record_outcome(cluster, 1, OUTCOMES[3])
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
    assert (process.returncode, out) == (3, "") and "program failed on host 1" in err


def test_a_bar_without_a_line_end_is_seen_through_the_service(team: Team) -> None:
    with acting_as("bob"), team.store() as store:
        cluster = record_run(store, "bar", "bar", ended=False)
        keep_output(team, "bar", "attempt-0001", 0, b"begin\n\r10%|\xe2\x96")
        with on_terminal(team.me.command("logs", "bar", "-f"), env=team.me.env, cwd=team.me.folder) as terminal:
            terminal.expect(r"begin\n.*10%\|$")
            keep_output(team, "bar", "attempt-0001", 0, b"\x88\r20%")
            terminal.expect(r"\r\x1b\[J.*20%$")
            keep_output(team, "bar", "attempt-0001", 0, b"\r100%\nend\n")
            terminal.expect(r"100%\n.*end\n")
            store.record_outcome(cluster, 1, OUTCOMES[3])
            terminal.finish()


def test_step_and_loss_from_output_are_those_that_the_service_read(team: Team) -> None:
    git = {"commit": "0123456789abcdef", "branch": "dev", "changes": "fedcba9876543210"}
    task = json.dumps({"metrics": {"pattern": "at {step} obj {loss}"}, "git": git})
    with acting_as("bob"), team.store() as store:
        record_run(store, "unchanged", "unchanged", ended=False)
        record_run(store, "own", "own", ended=False, task=task)
        keep_output(team, "unchanged", "attempt-0001", 1, b"step 450/1000  loss 2.31\n")
        keep_output(team, "own", "attempt-0001", 0, b"at 7 obj nan\n")
    for line in ("runs", "runs unchanged", "runs own -o json", "status", "status own", "status -o json"):
        local, served = run_both(team, line.split(), team.now)
        assert served == local and ("step 450" in local.out or "7" in local.out), line
    assert "step 450, loss 2.31" in local.out or '"form": "metrics.pattern"' in local.out
    page = team.served.ask("/runs/unchanged", cookie=team.served.sign_in()).body.decode()
    assert "<b>step 450, loss 2.31</b> from output" in page and "commit" not in page
    page = team.served.ask("/runs/own", cookie=team.served.sign_in()).body.decode()
    assert "commit 012345678, changed since" in page


@pytest.mark.parametrize("begin", ["x", "attempt-0001/0.log:-1", ":3", "../../../orch.db:0"])
def test_a_place_in_a_file_that_is_not_kept_shows_nothing_else(kept: Team, begin: str) -> None:
    answer = kept.served.ask(f"/v1/clusters/first/logs?begin={begin}&host=0&tail=0")
    assert answer.status == (200 if "orch.db" in begin else 400)
    if answer.status == 200:
        files = {part.file for part in decode_output(answer.body)[1]}
        assert files == {"attempt-0001/0.log", "attempt-0002/0.log"}


def other_service(status: int, document: Mapping[str, object]) -> AbstractContextManager[str]:
    """Run something that answers every request with one document."""
    return served(lambda *_: (status, dict(document)))


def test_a_service_of_another_version_says_what_to_do(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    with other_service(404, {"title": "there is no /v1/clusters"}) as url:
        keep_login(url, "orch_x")
        refused = run(tmp_path, ["status"], ORCH_SERVER=url)
    assert (refused.status, refused.out) == (1, "") and "an older orch" in refused.err and "upgrade" in refused.err


@contextmanager
def forwarder(team: Team) -> Generator[tuple[str, list[str]]]:
    """Run what passes the requests of the member on to the service; give its address, and the paths of the requests."""
    paths: list[str] = []

    def pass_on(_method: str, path: str, _body: bytes) -> tuple[int, dict[str, Any]]:
        paths.append(path)
        answer = team.served.ask(path, signed=False, authorization=f"Bearer {team.secret}")
        return answer.status, answer.document

    with served(pass_on) as url:
        yield url, paths


ASKING = ["status", "status first", "status --all --owner me", "runs", "runs one", "runs --compare one three", "queue",
          "queue second", "events -n 1000", "cost --by owner,day", "budget", "token", "offers --capacity",
          "offers --accuracy"]  # fmt: skip


@pytest.mark.parametrize("line", ASKING)
def test_a_read_command_is_one_request(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    with forwarder(team) as (url, paths):
        keep_login(url, team.secret)
        shown = run(tmp_path, line.split(), ORCH_SERVER=url)
    assert shown.status == 0 and len(paths) == 1, (paths, shown.err)


def test_a_list_of_more_than_a_page_is_whole(team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.client.reads.PAGE", 2)
    for line in ("runs --all -o json", "runs --all --limit 3 -o json", "events -n 5 -o json", "events -n 9999 -o json"):
        local, served = run_both(team, line.split(), team.now)
        assert served == local, line
    local, served = run_both(team, ["status", "--all"], team.now)
    assert served == local


WORDS_OF_OTHERS: list[dict[str, object]] = [
    {}, {"clusters": None}, {"clusters": [1]}, {"clusters": [{}], "refusal": None}, {"runs": [{"run_id": 1}]},
    {"jobs": [[]]}, {"events": [{"seq": "x"}]}, {"rows": [{}], "total": {}}, {"tables": {"clusters": {"rows": [[1]]}}},
    {"project": "default", "member": "bob", "installation": "x", "incarnation": 1,
     "tables": {"clusters; DROP": {"columns": ["uid"], "rows": []}}},
]  # fmt: skip


@pytest.mark.parametrize("document", WORDS_OF_OTHERS, ids=json.dumps)
def test_documents_that_cannot_be_read_are_the_services_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, object]
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    with other_service(200, document) as url:
        keep_login(url, "orch_x")
        for line in ("status", "status c", "runs", "runs c", "queue", "events", "cost", "budget", "token", "ssh c",
                     "offers --capacity", "offers --accuracy", "top c", "logs c"):  # fmt: skip
            refused = run(tmp_path, line.split(), ORCH_SERVER=url)
            assert refused.status in (1, 3), (line, refused.err)
            assert refused.out == "" and "error[" in refused.err and "a bug in orch" not in refused.err, line


@pytest.mark.parametrize("status", [0, 126, 256, 512, -1, "7", None])
def test_a_refusal_never_ends_with_the_status_of_a_success(status: object) -> None:
    error = ServiceError({"title": "no", "status": 400, "exit_status": status})
    assert error.exit_status == 1


def test_every_command_is_served_or_local_or_refused() -> None:
    commands = {row.name for section in SECTIONS for row in section.commands}
    assert commands <= SERVED | LOCAL | set(REFUSED)
    assert not SERVED & LOCAL and not (SERVED | LOCAL) & set(REFUSED)
    with pytest.raises(UserError, match="does not work through a service"):
        refuse_without_store("new-command", {"ORCH_SERVER": "https://orch.example.org"})


WORDS = {"exec": ["first", "true"], "blocks": ["list"], "local": ["preempt", "first", "0"], "watch": ["first"],
         "top": ["first"], "profile": ["first"], "ssh": ["first"], "cp": ["x", "first:x"], "forward": ["first", "80"],
         "notebook": ["first"], "pull": ["first"]}  # fmt: skip


@pytest.mark.parametrize("command", sorted(REFUSED))
def test_a_refused_command_says_what_to_do_and_its_help_is_shown(tmp_path: Path, command: str) -> None:
    url = "https://orch.example.org"
    refused = run(tmp_path, [command, *WORDS.get(command, [])], ORCH_SERVER=url)
    assert refused.status == 2 and refused.out == ""
    assert f"`orch {command}` does not work through a service" in refused.err and "unset ORCH_SERVER" in refused.err
    assert REFUSED[command][0] in refused.err and len(refused.err.splitlines()) <= 5
    assert f"| `{command}` | {REFUSED[command][0]} |" in (Path(__file__).parents[2] / "docs" / "team.md").read_text(
        "utf-8"
    )
    assert run(tmp_path, [command, "--help"], ORCH_SERVER=url).status == 0
    assert not (tmp_path / "state" / "orch.db").exists()


@pytest.mark.parametrize("line", ["status --refresh", "status first --refresh", "events --verify"])
def test_an_option_that_needs_the_store_is_refused(team: Team, line: str) -> None:
    refused = run(team.me.folder / "orch", line.split(), ORCH_SERVER=team.url)
    assert refused.status == 2 and "does not work through a service" in refused.err


def test_names_of_clusters_are_completed(team: Team) -> None:
    env = {"_ORCH_COMPLETE": "bash_complete", "COMP_WORDS": "orch status s", "COMP_CWORD": "2"}
    done = Orch(team.me.folder, team.me.more | env)()
    assert done.stdout == "plain,second\n" and done.stderr == ""
    away = Orch(team.me.folder, env | {"ORCH_SERVER": "http://127.0.0.1:9"})()
    assert (away.stdout.strip(), away.stderr) == ("", "")


@contextmanager
def endless_pages(document: Mapping[str, object]) -> Generator[tuple[str, list[str]]]:
    """Run a service whose lists have a next page for ever; give its address, and the paths of the requests."""
    paths: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            paths.append(self.path)
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Link", f'<{self.path}>; rel="next"')
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("items", [[], [{"name": "x", "summary": "s", "run_id": "r"}]], ids=["empty", "full"])
@pytest.mark.parametrize("line", ["status", "runs --limit 1000000", "events -n 1000000"])
def test_a_list_without_an_end_is_the_services_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, items: list[object]
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    monkeypatch.setattr("orchestrator.client.reads._MOST_PAGES", 20)
    pages = {"clusters": items, "runs": items, "events": items, "from": 7, "until": 9}
    with endless_pages(pages) as (url, paths):
        keep_login(url, "orch_x")
        refused = run(tmp_path, line.split(), ORCH_SERVER=url)
    assert (refused.status, refused.out) == (1, "") and "cannot be read" in refused.err
    assert len(paths) <= 20


ROWS: list[Mapping[str, object]] = [
    {"columns": ["uid", "uid"], "rows": []}, {"columns": ["select"], "rows": [["x"]]},
    {"columns": ["uid"], "rows": [[]]}, {"columns": ["uid"], "rows": [[{}]]},
    {"columns": [f"c{number}" for number in range(3000)], "rows": []},
]  # fmt: skip


@pytest.mark.parametrize("table", ROWS, ids=range(len(ROWS)))
def test_rows_that_cannot_be_read_are_the_services_fault(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: Mapping[str, object]
) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    document = team.served.ask("/v1/records?cluster=first").document
    with other_service(200, {**document, "tables": {**document["tables"], "clusters": table}}) as url:
        keep_login(url, "orch_x")
        refused = run(tmp_path, ["top", "first", "--once"], ORCH_SERVER=url)
    assert refused.status in (1, 3) and refused.out == "" and "a bug in orch" not in refused.err, refused.err


def test_what_is_no_name_is_not_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_HOME", str(tmp_path))
    names = ["safe", "x;touch${IFS}file;#", "-oProxyCommand=x", "s\nplain,other", "$(id)", ""]
    with other_service(200, {"clusters": [{"name": name, "summary": "s"} for name in names]}) as url:
        keep_login(url, "orch_x")
        env = {"_ORCH_COMPLETE": "bash_complete", "COMP_WORDS": "orch status ", "COMP_CWORD": "2"}
        done = Orch(tmp_path, env | {"ORCH_SERVER": url, "ORCH_HOME": str(tmp_path)})()
    assert (done.stdout, done.stderr) == ("plain,safe\n", "")


def test_followed_events_come_as_they_happen(team: Team) -> None:
    process = team.me.start("events", "first", "-f", "-o", "jsonl")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with team.store() as store:
            store.event("second", "note", "of another cluster")
            store.event("first", "note", "something new")
        line = ""
        while "something new" not in line:
            assert "of another cluster" not in line
            line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("through", ["the store", "the service"])
def test_no_event_of_a_pause_is_passed_over(team: Team, through: str) -> None:
    """More came while it was stopped than one answer of a service has."""
    orch = team.me if through == "the service" else team.served.orch
    process = orch.start("events", "first", "-f", "-o", "jsonl")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        with team.store() as store:
            for number in range(1300):
                store.event("first", "note", f"{through} {number}")
        process.send_signal(signal.SIGCONT)
        seen: list[str] = []
        while not seen or seen[-1] != f"{through} 1299":
            what = str(json.loads(process.stdout.readline())["what"])
            seen += [what] if what.startswith(through) else []
        assert seen == [f"{through} {number}" for number in range(1300)]
    finally:
        process.kill()
        process.communicate()


def test_it_stays_light(team: Team) -> None:
    code = (
        "import json, sys; from orchestrator.__main__ import main; status = main(sys.argv[1:]);"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, "status"], env=team.me.env, capture_output=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "orchestrator.client.http" in loaded and not {
        "orchestrator.client.local",
        "orchestrator.documents.status",
    } & set(loaded)
    assert [name for name in loaded if name.split(".")[0] in HEAVY or name in HEAVY] == []


def _cost(orch: Orch) -> float:
    process = subprocess.Popen(
        orch.command("status"), env=orch.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.slow
def test_status_costs_little_more_than_on_the_store(team: Team) -> None:
    """A ratio, in turns and the least of each, as tests/cli/test_cli_budget.py measures."""
    costs = [(_cost(team.me), _cost(team.served.orch)) for _ in range(8)]
    assert min(one for one, _ in costs) / min(two for _, two in costs) <= 1.7
