"""The preview cannot lie: what a dry run lists is, action by action, what the real run then does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from support.driving import Listener, local_task

from orchestrator.engine import prepare
from orchestrator.engine.drive import drive
from orchestrator.engine.known import open_reader
from orchestrator.engine.ready import Ready
from orchestrator.plan.actions import Action, SyncTree
from orchestrator.plan.compare import mismatches
from orchestrator.plan.desired import After
from orchestrator.plan.imagined import make_plan
from orchestrator.spec.task import Checkpoint, FileMount, Task
from orchestrator.values import Secret


def check(ready: Ready, *, follow: bool = True) -> list[Action]:
    """Plan first, then do it, and compare; returns what was done."""
    planned = make_plan(ready.desired, ready.known, ready.facts).actions
    done: list[Action] = []
    drive(ready, Listener(), recorder=done, follow=follow)
    if not follow:
        planned = planned[: len(done)]
    assert mismatches(planned, done) == []
    assert len(done) > 0
    return done


def variants(root: Path) -> Iterator[tuple[str, Task, After]]:
    """Every combination of the options that change what is done."""
    (root / "data").mkdir()
    (root / "data" / "a b").write_text("data")
    (root / "bucket" / "in").mkdir(parents=True)
    (root / "bucket" / "in" / "x").write_text("x")
    work = {"workdir": str(root / "data")}
    mounts = {"file_mounts": (FileMount("~/data", str(root / "data")), FileMount("~/in", f"file://{root}/bucket/in"))}
    setup = {"setup": "echo 'set up' \"$HELLO\"", "envs": (("HELLO", "it's $HOME\n`x`"),)}
    bucket = {"checkpoint": Checkpoint(bucket=f"file://{root}/bucket")}
    for number, (a, b, c, d) in enumerate(product([{}, work], [{}, mounts], [{}, setup], [{}, bucket])):
        after = After.DOWN if number % 2 else After.KEEP
        yield f"v{number}", local_task(1 + number % 2, run="true", **a, **b, **c, **d), after


@pytest.mark.slow
def test_every_combination_of_options_does_what_its_preview_says(home: Path, tmp_path: Path) -> None:
    count = 0
    for name, task, after in variants(tmp_path):
        check(prepare.launch(task, cluster=name, after=after))
        with open_reader() as reader:
            still_there = reader.cluster(name) is not None
        assert still_there is (after is After.KEEP)
        if still_there:
            check(prepare.down(name))
        count += 1
    assert count == 16


def test_every_verb_on_an_existing_cluster_does_what_its_preview_says(home: Path, tmp_path: Path) -> None:
    (tmp_path / "bucket").mkdir()
    task = local_task(
        2,
        run="sleep 300",
        setup="true",
        checkpoint=Checkpoint(bucket=f"file://{tmp_path}/bucket"),
        secret_names=("KEY",),
        secrets=(Secret("KEY", "hidden"),),
    )
    check(prepare.launch(task, cluster="c", after=After.KEEP), follow=False)
    check(prepare.exec_("c", "true", hosts=(1,), workdir=None))
    check(prepare.cancel("c", None))
    failed = local_task(2, run="exit 4", setup="true", checkpoint=Checkpoint(bucket=f"file://{tmp_path}/bucket"))
    drive(prepare.launch(failed, cluster="c", after=After.KEEP), Listener())
    resumed = prepare.resume("c", after=After.KEEP)
    planned = make_plan(resumed.desired, resumed.known, resumed.facts).actions
    done: list[Action] = []
    drive(resumed, Listener(), recorder=done)
    assert mismatches(planned[:-1], done[:-1]) == []  # the last one records how it ended: the plan assumes success
    check(prepare.stop("c"))
    check(prepare.start("c"))
    check(prepare.down("c"))


def test_the_comparison_notices_a_real_difference(home: Path, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "f").write_text("1")
    ready = prepare.launch(local_task(1, workdir=str(tmp_path / "w"), run="true"), cluster="c", after=After.DOWN)
    planned = make_plan(ready.desired, ready.known, ready.facts).actions
    assert mismatches(planned, planned[1:]) != []
    other = tuple(replace(one, destination="elsewhere") if isinstance(one, SyncTree) else one for one in planned)
    assert mismatches(planned, other) != []


def test_two_terminals_at_once_make_one_cluster_and_say_who_is_in_the_way(home: Path) -> None:
    endings: list[object] = []

    def launch(seconds: str) -> None:
        try:
            ready = prepare.launch(local_task(2, run=f"sleep {seconds}"), cluster="c", after=After.KEEP)
            endings.append(drive(ready, Listener()).status)
        except Exception as error:  # the second one is refused; its words are looked at
            endings.append(error)

    threads = [threading.Thread(target=launch, args=(seconds,)) for seconds in ("6", "7")]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    refused = [ending for ending in endings if isinstance(ending, Exception)]
    assert 0 in endings
    assert len(refused) == 1
    assert "still runs" in str(refused[0]) or "worked on" in str(refused[0])
    with open_reader() as reader:
        (cluster,) = reader.clusters()
        assert len(reader.intents(cluster)) == 1
