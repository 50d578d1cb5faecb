"""`orch resume --bucket`: what the bucket's task record says is shown and asked about before anything of it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.orch_process import Orch
from test_cli_questions import on_a_terminal

from orchestrator.engine.preparation.bucket_record import record_digest
from orchestrator.exits import Exit

Command = Callable[..., Any]
RUN = "run-1"
SECRET_FILE = "what only this computer knows"


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a bucket; the computer has a folder ~/.ssh and a variable TOKEN that no record may take."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_ed25519").write_text(SECRET_FILE)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x.py").write_text("1")
    monkeypatch.setenv("TOKEN", "the value of the token")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "bucket"


def write_record(bucket: Path, **fields: object) -> str:
    """Write the record of a run and return its digest."""
    content = {"name": "mine", "resources": {"infra": "local:1"}, "run": "echo fine"}
    text = json.dumps({**content, "checkpoint": {"bucket": f"file://{bucket}"}, **fields})
    (bucket / RUN).mkdir(parents=True, exist_ok=True)
    (bucket / RUN / "task.json").write_text(text)
    return record_digest(text)


def words_for(bucket: Path, *more: str) -> tuple[str, ...]:
    return ("resume", RUN, "--bucket", f"file://{bucket}", *more)


def nothing_was_done(home: Path, bucket: Path) -> bool:
    return not (home / "state" / "local").exists() and sorted(path.name for path in bucket.rglob("*")) == [
        RUN,
        "task.json",
    ]


HOSTILE = {
    "run": "cat ~/keys/id_ed25519",
    "setup": "echo one\necho two",
    "file_mounts": {"~/keys": {"source": "~/.ssh", "mode": "COPY"}},
    "secrets": {"TOKEN": None},
    "envs": {"HF_TOKEN": "hf_abcdefghijklmnop", "PLAIN": "1"},
}


def test_an_unknown_record_is_shown_and_refused_without_a_terminal(
    orch_process: Command, home: Path, bucket: Path
) -> None:
    digest = write_record(bucket, **HOSTILE)
    done = orch_process(*words_for(bucket, "--yes"))
    assert done.status == Exit.UNTRUSTED == 12
    said, error = done.err[: done.err.index("error[untrusted-record]")], done.err[done.err.index("error[") :]
    assert f"the task record of run {RUN} in file://{bucket} is not known to this installation" in said
    assert f"digest: {digest}" in said
    for line in (
        "run: cat ~/keys/id_ed25519",
        "    | echo two",
        "file_mounts.~/keys.source: ~/.ssh",
        "resources.infra: local:1",
        "envs.PLAIN: 1",
        "infra:local: setup and run are executed on this computer, as you",
        f"~/.ssh: {home.parent}/.ssh is copied to the hosts, as ~/keys",
        "TOKEN: the value of this variable of your environment is sent to the hosts",
    ):
        assert line in said
    assert "hf_abcdefghijklmnop" not in done.err
    assert "--expect sha256:..." in error and "--trust-bucket" in error and len(error.splitlines()) <= 5
    assert digest not in error, "the digest to copy is that of the launch, not of what is there now"
    assert nothing_was_done(home, bucket)


@pytest.mark.promise("P42")
@pytest.mark.parametrize("agreement", ["--trust-bucket", "--expect"])
def test_who_agrees_to_the_record_has_not_agreed_to_what_it_takes_from_this_computer(
    orch_process: Command, home: Path, bucket: Path, agreement: str
) -> None:
    digest = write_record(bucket, **HOSTILE)
    agreed = [agreement, *([digest] if agreement == "--expect" else [])]
    # Also where it could not be read, no one tries to: the refusal is the same.
    (home.parent / ".ssh").chmod(0)
    done = orch_process(*words_for(bucket, "--yes", *agreed, "--allow", "infra:local", "--allow", "TOKEN"))
    (home.parent / ".ssh").chmod(0o700)
    assert done.status == 12, done.err
    assert "would use what is on this computer" in done.err
    assert done.err.rstrip().endswith("if that is meant, add: --allow '~/.ssh'")
    assert nothing_was_done(home, bucket)


@pytest.mark.parametrize("answers", [b"n\n", b"y\nn\n"], ids=["not the record", "not what is here"])
def test_a_terminal_gets_both_questions(home: Path, bucket: Path, answers: bytes) -> None:
    write_record(bucket, **HOSTILE)
    status, shown = on_a_terminal(*words_for(bucket), answer=answers)
    assert status == 1 and "not agreed to" in shown and "run what this record says? [y/N]" in shown
    assert ("let it use what is listed of this computer? [y/N]" in shown) == (answers != b"n\n")
    assert nothing_was_done(home, bucket)


def test_a_dry_run_shows_the_same_and_asks_nothing(orch_process: Command, home: Path, bucket: Path) -> None:
    digest = write_record(bucket)
    done = orch_process(*words_for(bucket, "--dry-run", "-o", "json"))
    assert (done.status, json.loads(done.out)["error"]["code"]) == (12, "untrusted-record")
    assert "run: echo fine" in done.err
    plan = orch_process(*words_for(bucket, "--dry-run", "--trust-bucket", "--allow", "infra:local"))
    assert plan.status == 0 and "what the bucket holds is used, whoever wrote it" in plan.err
    plan = orch_process(*words_for(bucket, "--dry-run", "--expect", digest, "--allow", "infra:local"))
    assert plan.status == 0, plan.err
    assert nothing_was_done(home, bucket)


def test_another_digest_than_expected_is_refused_whatever_else_is_given(
    orch_process: Command, home: Path, bucket: Path
) -> None:
    write_record(bucket)
    other = f"sha256:{'0' * 64}"
    done = orch_process(*words_for(bucket, "--expect", other, "--trust-bucket", "--allow", "infra:local"))
    assert done.status == 12 and f"expected is {other}" in done.err
    for wrong in ("sha256:12", "5b0c"):
        assert orch_process(*words_for(bucket, "--expect", wrong)).status == Exit.USAGE
    assert orch_process("resume", RUN, "--allow", "src").status == Exit.USAGE


def test_launched_here_and_changed_in_the_bucket(tmp_path: Path) -> None:
    """A new user's way: the launch prints the command, another computer gives it; a change in between is found."""
    bucket = tmp_path / "bucket"
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "src").mkdir()
    first, second, third = (Orch(tmp_path / name) for name in ("first", "second", "third"))
    (first.folder / "t.yaml").write_text(
        f"name: mine\nresources: {{infra: local:1}}\nworkdir: src\nenvs: {{A: 1}}\n"
        'run: "[ $ORCH_ATTEMPT -gt 1 ] && echo resumed"\n'
        f"checkpoint: {{bucket: file://{bucket}}}\n"
    )
    launched = first("launch", "t.yaml", "--down")
    found = re.search(r"on another computer: orch (resume (\S+) .* --expect (sha256:\S+))", launched.stderr)
    assert found is not None, launched.stderr
    printed, run_id, digest = found[1].split(), found[2], found[3]
    path = bucket / run_id / "task.json"
    assert record_digest(path.read_text()) == digest
    allowed = ("--down", "--allow", "infra:local", "--allow", "src")
    again = second(*printed, *allowed)
    assert again.returncode == 0 and "resumed" in again.stdout, again.stderr
    assert second("resume", run_id, "--force", "--down").returncode == 0, "now it is known there"
    assert second("resume", run_id, "--force", "--down", "--bucket", f"file://{bucket}").returncode == 0

    changed = json.loads(path.read_text())
    path.write_text(json.dumps({**changed, "run": "echo other", "envs": {"A": "2"}}))
    refused = third(*printed, *allowed)
    assert refused.returncode == 12 and "is not the expected one" in refused.stderr
    differs = first("resume", run_id, "--force", "--bucket", f"file://{bucket}")
    assert differs.returncode == 12, differs.stderr
    assert "is not the one that this installation has" in differs.stderr
    for line in ("  - envs.A: 1", "  + envs.A: 2", "  - run: [ $ORCH", "  + run: echo other"):
        assert line in differs.stderr
    assert "recovery." not in differs.stderr and "resources." not in differs.stderr, "only the differences"
    known = first("resume", run_id, "--force", "--down")
    assert known.returncode == 0 and "resumed" in known.stdout, known.stderr
    assert "task.json was changed, and is not used here" in known.stderr
    trusted = third(*printed[:-2], "--trust-bucket", *allowed)
    assert trusted.returncode == 0 and "other" in trusted.stdout, trusted.stderr


def test_what_a_record_shows_cannot_act_on_the_terminal(orch_process: Command, home: Path, bucket: Path) -> None:
    hidden = "echo \u001b[8mhidden\u001b[0m\r\u202e\u200b\u009b2J\necho two"
    write_record(bucket, run=hidden, envs={"A": "\u001b]52;c;aGk=\u0007"}, setup="x" * 100_000 + "\n" * 5_000)
    done = orch_process(*words_for(bucket))
    assert done.status == 12
    assert not [char for char in done.err if char != "\n" and not char.isprintable()]
    assert r"echo \x1b[8mhidden\x1b[0m\r\u202e\u200b\x9b2J" in done.err
    assert "(98,000 more characters)" in done.err and len(done.err) < 100_000


def test_a_secret_that_is_changed_is_seen_and_not_shown(tmp_path: Path) -> None:
    from orchestrator.engine.preparation.bucket_record import BucketRecord
    from orchestrator.engine.preparation.record_review import review_record
    from orchestrator.task.parse import parse_task

    one, two = (
        parse_task(
            f"resources: {{infra: local}}\nrun: x\nenvs: {{HF_TOKEN: hf_{letter * 20}}}\n", file="t", env={}
        ).only
        for letter in "ab"
    )
    record = BucketRecord(run_id=RUN, bucket="gs://bbb", text=two.to_json(), task=two, attempt=1)
    lines = "\n".join(review_record(record, one).lines())
    assert "- envs.HF_TOKEN" in lines and "+ envs.HF_TOKEN" in lines and "aaaa" not in lines and "bbbb" not in lines


LOCAL = {
    "workdir": ({"workdir": "/etc"}, "/etc"),
    "local mount": ({"file_mounts": {"/d": "/etc/passwd"}}, "/etc/passwd"),
    "mount of a local bucket": ({"file_mounts": {"/d": {"source": "file:///etc", "mode": "COPY"}}}, "file:///etc"),
    "no such user": ({"workdir": "~no-such-user/x"}, "~no-such-user/x"),
    "another bucket": ({"checkpoint": {"bucket": "file:///var/tmp/elsewhere"}}, "file:///var/tmp/elsewhere"),
    "secret": ({"secrets": {"AWS_SECRET_ACCESS_KEY": None}}, "AWS_SECRET_ACCESS_KEY"),
    "own machine": ({"resources": {"infra": "hosts"}, "hosts": {"addresses": ["me@far"]}}, "me@far"),
    "key": ({"resources": {"infra": "hosts"}, "hosts": {"addresses": [{"host": "far", "key": "~/k"}]}}, "~/k"),
    "jump host": ({"resources": {"infra": "hosts"}, "hosts": {"addresses": [{"host": "far", "jump": "j"}]}}, "j"),
    "jump host of Google": ({"config": {"gcp": {"access": "jump", "jump": "me@j"}}}, "me@j"),
    "jump host of AWS": ({"config": {"aws": {"access": "jump", "jump": "me@j"}}}, "me@j"),
    "profile": ({"config": {"aws": {"profile": "work"}}}, "work"),
}


@pytest.mark.parametrize("case", LOCAL)
def test_all_that_a_record_can_take_from_this_computer_needs_its_own_consent(
    orch: Command, home: Path, bucket: Path, case: str
) -> None:
    fields, name = LOCAL[case]
    write_record(bucket, **fields)
    done = orch(*words_for(bucket, "--trust-bucket", "--allow", "infra:local", "--yes"))
    assert done.status == 12 and f"\n  {name}: " in done.err, done.err
    assert "would use what is on this computer" in done.err
