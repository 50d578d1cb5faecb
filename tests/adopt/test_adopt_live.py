"""Adopting a TPU VM with real sshd hosts behind it: what is added, what is used, how it ends, and cut off anywhere."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from adopt_bench import PARENT, THEIR_KEY, THEIRS, ZONE, Maker, ok, orch, sent
from support.slice_names import slice_name

from orch_fronts.google.cloud import SimulatedGoogle
from orchestrator.exits import Exit
from orchestrator.plan.observed import Outcome
from orchestrator.plan.teardown import TeardownPolicy
from orchestrator.providers.google.client import TpuApi
from orchestrator.providers.google.record import Records
from orchestrator.remote.keys import make_host_key
from orchestrator.store.records import NewJob
from orchestrator.store.store import Store

TASK = "name: mine\nresources: {accelerators: v5litepod-8, infra: gcp/us-west4}\nrun: echo rank $ORCH_RANK ran\n"


def made_by_gcloud(maker: Maker, home: Path, name: str) -> None:
    """By the real gcloud where it is there, by Google's own client where not."""
    if shutil.which("gcloud") is None:
        maker.make(name)
        return
    metadata = ",".join(f"{key}={value}" for key, value in THEIRS.items())
    words = f"gcloud compute tpus tpu-vm create {name} --zone={ZONE} --accelerator-type=v5litepod-8 --async"
    argv = [*words.split(), "--version=v2-alpha-tpuv5-lite", "--labels=team=ml", f"--metadata={metadata}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    maker.until(name, "READY")


def test_a_tpu_vm_of_gclouds_is_used_and_ended_as_one_of_ours(
    maker: Maker, google: SimulatedGoogle, home: Path
) -> None:
    made_by_gcloud(maker, home, "mine")
    before = maker.metadata("mine")
    patches = len(sent(google, "PATCH"))
    assert "'mine' is adopted as cluster 'mine'" in ok("adopt", "mine", "--zone", ZONE).err
    labels, metadata = maker.labels("mine"), maker.metadata("mine")
    assert labels.pop("team") == "ml" and set(labels) == {f"orch-{key}" for key in MARKS}
    theirs, ours = metadata.pop("ssh-keys").splitlines()
    assert theirs == THEIR_KEY and re.fullmatch(r"orch:ssh-ed25519 \S+ orch", ours), (theirs, ours)
    assert metadata == {key: value for key, value in before.items() if key != "ssh-keys"}
    ok("adopt", "mine", "--zone", ZONE)
    assert len(sent(google, "PATCH")) == patches + 1, "the second time there is nothing to do"

    assert ok("exec", "mine", "--no-prefix", "--", "echo $ORCH_RANK of $ORCH_NUM_HOSTS").out == "0 of 1\n"
    (home.parent / "task.yaml").write_text(TASK)
    assert "rank 0 ran" in ok("launch", str(home.parent / "task.yaml"), "-c", "mine", "--yes").out
    ok("stop", "mine")
    assert maker.state("mine") == "STOPPED"
    ok("start", "mine", "--yes")
    assert ok("exec", "mine", "--no-prefix", "--", "echo up").out == "up\n"

    refused = orch("down", "mine")
    assert refused.status == 2 and "which orch did not create" in refused.err and maker.state("mine") == "READY"
    ok("down", "mine", "--yes")
    assert maker.node("mine") is None
    assert json.loads(ok("status", "-o", "json").out)["clusters"] == []


MARKS = ("installation", "cluster", "intent", "project", "member", "adopted")


@pytest.fixture(scope="module")
def cut_off(google: SimulatedGoogle) -> Iterator[str]:
    """One TPU VM for all of these: each adoption is released in the end."""
    maker = Maker.at(google.server)
    maker.make("cut-off")
    yield "cut-off"
    maker.remove("cut-off")


def test_a_released_one_is_as_it_was(maker: Maker, home: Path, cut_off: str) -> None:
    maker.make("borrowed")
    before = (maker.labels("borrowed"), maker.metadata("borrowed"))
    ok("adopt", "borrowed", "--zone", ZONE, "-c", "lent")
    assert maker.labels("borrowed")["orch-cluster"] == "lent"
    planned = ok("release", "lent", "--dry-run").out
    assert f"PATCH {PARENT}/nodes/borrowed?updateMask=labels,metadata" in planned
    assert maker.labels("borrowed")["orch-cluster"] == "lent", "a dry run changes nothing"
    twice, taken = (
        orch("adopt", "borrowed", "--zone", ZONE, "-c", "mine"),
        orch("adopt", cut_off, "--zone", ZONE, "-c", "lent"),
    )
    assert (twice.status, taken.status) == (Exit.CONFLICT, Exit.CONFLICT)
    assert "already adopted, as cluster 'lent'" in twice.err and "there is a cluster 'lent' already" in taken.err
    number = a_job_runs(home, "lent")
    refused = orch("release", "lent")
    assert refused.status == Exit.CONFLICT and f"job {number} runs on 'lent'" in refused.err
    a_job_runs(home, "lent", over=True)
    ok("release", "lent")
    assert (maker.labels("borrowed"), maker.metadata("borrowed")) == before
    assert maker.state("borrowed") == "READY"
    assert json.loads(ok("status", "-o", "json").out)["clusters"] == []
    assert not list((home / "state" / "google").glob("*.checked"))
    ok("adopt", "borrowed", "--zone", ZONE, "-c", "lent")
    ok("down", "lent", "--yes")


def a_job_runs(home: Path, cluster: str, *, over: bool = False) -> int:
    """By the record alone. over: not any more. Its number."""
    with Store(home / "state" / "orch.db") as store:
        record = store.cluster(cluster)
        assert record is not None
        if over:
            store.record_outcome(record, store.jobs(record)[-1].id, Outcome(status=0, code="ok", what="over"))
            return 0
        job = store.open_job(
            record,
            NewJob(
                kind="launch",
                run_id="run-1",
                digest="d1",
                task="",
                bucket="",
                ranks=None,
                after_end=TeardownPolicy.KEEP,
            ),
        )
        store.start_attempt(record, job.id)
        return job.id


class Killed(BaseException):
    """The process ends here."""


def before(where: type[Any], method: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: _die(patch, where, method, acts=False)


def after(where: type[Any], method: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: _die(patch, where, method, acts=True)


def _die(patch: pytest.MonkeyPatch, where: type[Any], method: str, *, acts: bool) -> None:
    real = getattr(where, method)

    def killed(*args: Any, **kwargs: Any) -> Any:
        if acts:
            real(*args, **kwargs)
        raise Killed

    patch.setattr(where, method, killed)


KILLS = {
    "before the intent": before(Store, "write_intent"),
    "after the intent": after(Store, "write_intent"),
    "after our record": after(Records, "write"),
    "before the request": before(TpuApi, "update"),
    "after the request": after(TpuApi, "update"),
    "before it is accepted": before(Store, "update_intent"),
    "after it is accepted": after(Store, "update_intent"),
}


@pytest.mark.parametrize("moment", KILLS)
def test_cut_off_anywhere_the_same_command_completes_it(
    maker: Maker, google: SimulatedGoogle, home: Path, cut_off: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("adopt", cut_off, "--zone", ZONE)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        KILLS[moment](patch)
        orch(*words)
    marked = "orch-intent" in maker.labels(cut_off)
    known = [record["name"] for record in json.loads(ok("status", "-o", "json").out)["clusters"]]
    assert known == [cut_off] or not marked, "changed before it was on record"
    patches = len(sent(google, "PATCH"))
    ok(*words)
    assert len(sent(google, "PATCH")) - patches == (0 if marked else 1)
    assert [line.split(":")[0] for line in maker.metadata(cut_off)["ssh-keys"].splitlines()] == ["me", "orch"]
    assert maker.labels(cut_off)["orch-adopted"] == slice_name(cut_off)
    with Store(home / "state" / "orch.db") as store:
        assert [
            (one.name, intent.state) for one in [store.cluster(cut_off)] if one for intent in store.intents(one)
        ] == [(cut_off, "accepted")]
    ok("release", cut_off)
    assert maker.metadata(cut_off) == THEIRS


def test_what_is_cut_off_is_never_ended_by_going_on(
    maker: Maker, home: Path, cut_off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second try that Google refuses leaves it alone: the first one may have worked."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        KILLS["before the request"](patch)
        orch("adopt", cut_off, "--zone", ZONE)
    maker.client.update_node(
        node={
            "name": f"{PARENT}/nodes/{cut_off}",
            "labels": {"orch-installation": "theirs", "orch-intent": "theirs-1"},
        },
        update_mask={"paths": ["labels"]},
    )
    again = orch("adopt", cut_off, "--zone", ZONE)
    assert again.status == 2 and "managed already: by installation theirs" in again.err, again
    (home.parent / "task.yaml").write_text(TASK)
    launched = orch("launch", str(home.parent / "task.yaml"), "-c", cut_off, "--yes")
    assert launched.status != 0
    assert maker.state(cut_off) == "READY"
    maker.client.update_node(
        node={"name": f"{PARENT}/nodes/{cut_off}", "labels": {"team": "ml"}}, update_mask={"paths": ["labels"]}
    )
    ok("release", cut_off)
    assert maker.state(cut_off) == "READY"


def test_hosts_that_do_not_tell_their_keys_are_trusted_at_first_sight_and_that_is_said(
    maker: Maker, home: Path
) -> None:
    maker.make("silent", metadata={"enable-guest-attributes": "FALSE"})
    assert "the key that each showed first" in ok("adopt", "silent", "--zone", ZONE).err
    assert ok("exec", "silent", "--no-prefix", "--", "echo in").out == "in\n"
    ok("down", "silent", "--yes")


def test_a_host_with_another_key_than_google_tells_is_not_entered(
    maker: Maker, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker.make("crossed")
    other = make_host_key()[1].split()[1]
    monkeypatch.setattr(TpuApi, "host_keys", lambda *_: (other,))
    said = orch("adopt", "crossed", "--zone", ZONE)
    assert said.status == Exit.IDENTITY and "presented another key" in said.err, said
    monkeypatch.undo()
    maker.remove("crossed")


def test_the_plan_is_what_gcloud_would_do(maker: Maker, home: Path) -> None:
    """The previewed command, its unknowns filled in, changes a second TPU VM into what we make of the first."""
    if shutil.which("gcloud") is None:
        pytest.skip("there is no gcloud here")
    maker.make("first")
    maker.make("second")
    ok("adopt", "first", "--zone", ZONE, "-c", "pair")
    labels, metadata = maker.labels("first"), maker.metadata("first")
    plan = json.loads(ok("adopt", "second", "--zone", ZONE, "-c", "other", "--dry-run", "-o", "json").out)
    (request,) = [step["request"] for step in plan["steps"] if step["do"] == "create_slice"]
    known = {
        "cluster id, made at launch": labels["orch-intent"].rpartition("-")[0],
        "the lines that are there": THEIR_KEY,
        "public key of this computer, made at first launch": metadata["ssh-keys"].partition("orch:")[2],
        "installation id, made at first launch": labels["orch-installation"],
    }
    words = [_filled(word, known) for word in request["command"]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, (shlex.join(words), done.stderr)
    assert maker.metadata("second") == metadata
    assert maker.labels("second") == {**labels, "orch-cluster": "other", "orch-adopted": slice_name("other")}
    ok("down", "pair", "--yes")
    maker.remove("second")


def _filled(word: Any, known: dict[str, str]) -> str:
    if isinstance(word, str):
        return word
    if "parts" in word:
        return "".join(_filled(part, known) for part in word["parts"])
    return known[word["unknown"]]
